//! Validation of chains: a bad document stops the start with an error that names the member and the fix.

use portcullis_pki::Usage;
use serde_json::{Value, json};

use crate::support::{Files, Log, authority, build, entry, issue, webhook};

fn files() -> Files {
    let (files, ca) = (Files::new(), authority("ours"));
    files.write("/ca.crt", ca.cert_pem());
    for name in ["a", "b"] {
        let pair = issue(&ca, Usage::Client, [127, 0, 0, 1]);
        files.write(&format!("/{name}.crt"), pair.cert_pem);
        files.write(&format!("/{name}.key"), pair.key_pem);
    }
    files.write("/hmac", "key");
    files.write("/empty", "");
    files
}

/// The chain with one validating webhook that has these members.
fn hook(more: Value) -> Value {
    let hook = webhook("https://127.0.0.1:1/", "fail", more);
    json!([{"type": "mcp-parser", "parameters": {}}, entry("validating-webhook", vec![hook])])
}

const ALL: &str = "permit(principal, action, resource);";

/// The chain with authorization by these parameters.
fn policies(parameters: Value) -> Value {
    json!([{"type": "auth"}, {"type": "authorization", "parameters": parameters}])
}

/// The chain with authorization by this policy decision point.
fn decided(pdp: Value) -> Value {
    policies(json!({"config_data": {"type": "httpv1", "pdp": pdp}}))
}

fn permit_all() -> Value {
    json!({"type": "authorization", "parameters": {"config_data": {"cedar": {"policies": [ALL]}}}})
}

#[tokio::test]
async fn an_unknown_middleware_stops_the_start_with_its_name_and_what_there_is() {
    for kind in ["tokenexchange", "ratelimit", "awssts", "telemetry", "typo", ""] {
        let error = build(&files(), json!([{"type": "recovery"}, {"type": kind, "parameters": {}}])).unwrap_err();
        assert_eq!(error.kind, kind);
        let text = error.to_string();
        assert!(text.starts_with("middleware_configs[1].type"), "{text}");
        assert!(text.contains(&format!("{kind:?} is not supported")) && text.contains("mcp-parser"), "{text}");
    }
}

#[tokio::test]
async fn a_bad_parameter_or_file_stops_the_start_with_its_member() {
    let files = files();
    let tls = |more: Value| hook(json!({"tls_config": more}));
    let parser = json!({"type": "mcp-parser"});
    let of_tools = webhook("https://a/", "fail", json!({"portcullis": {"match": {"tools": ["a"]}}}));
    let pair = |certificate: &str, key: &str| tls(json!({"client_cert_path": certificate, "client_key_path": key}));
    for (entries, field, problem) in [
        (json!([{"type": "audit"}, {"type": "audit"}]), "[1].type", "twice"),
        (json!([{"type": "audit", "parameters": {"config_path": "/a"}}]), "[0].parameters.config_path", "not read"),
        (
            json!([{"type": "audit", "parameters": {"config_data": {"eventTypes": ["tool"]}}}]),
            "[0].parameters.config_data.eventTypes",
            "no type of event",
        ),
        (
            json!([{"type": "audit", "parameters": {"config_data": {"logFile": "a.log"}}}]),
            "[0].parameters.config_data.logFile",
            "not an absolute path",
        ),
        (policies(json!({"config_path": "/a"})), "parameters.config_path", "not read"),
        (policies(json!({})), "parameters.config_data", "is missing"),
        (policies(json!({"config_data": {"type": "cedarv1"}})), "parameters.config_data.cedar", "is missing"),
        (
            policies(json!({"config_data": {"cedar": {"policies": [ALL, "permit(principal,\n action resource);"]}}})),
            "parameters.config_data.cedar.policies[1]",
            "line 2, column 9",
        ),
        (
            policies(json!({"config_data": {"cedar": {"policies": [ALL], "entities_json": "{"}}})),
            "config_data.cedar.entities_json",
            "entities",
        ),
        (
            json!([{"type": "auth"}, {"type": "shadow-authorization", "parameters": {"config_data": {
                "type": "httpv1", "pdp": {"http": {"url": "https://pdp"}, "claim_mapping": "mpe"},
            }}}]),
            "config_data.type",
            "only Cedar policies can be tried",
        ),
        (decided(json!({"http": {"url": "https://pdp"}})), "pdp.claim_mapping", "is missing"),
        (decided(json!({"http": {"url": "pdp"}, "claim_mapping": "mpe"})), "pdp.http.url", "not a URL"),
        (decided(json!({"http": {"url": "ftp://pdp"}, "claim_mapping": "mpe"})), "pdp.http.url", "not a URL"),
        (decided(json!({"http": {"url": "https://u:p@pdp"}, "claim_mapping": "mpe"})), "pdp.http.url", "user name"),
        (decided(json!({"http": {"url": "https://pdp/?a"}, "claim_mapping": "mpe"})), "pdp.http.url", "has a query"),
        (decided(json!({"http": {"url": "http://169.254.169.254"}, "claim_mapping": "mpe"})), "pdp.http.url", ""),
        (json!([permit_all()]), "[0].type", "needs auth"),
        (json!([{"type": "auth"}, permit_all(), permit_all()]), "[2].type", "twice"),
        (json!([{"type": "auth"}, permit_all(), {"type": "tool-filter"}]), "[1].type", "tool-filter changes"),
        (json!([{"type": "bodylimit", "parameters": {"max_bytes": "1"}}]), "[0].parameters.max_bytes", "is a string"),
        (json!([{"type": "bodylimit", "parameters": {"Max_Bytes": "1"}}]), "max_bytes", "is a string"),
        (hook(json!({"hmac_secret_ref": "/"})), "webhooks[0].hmac_secret_ref", "not a regular file"),
        (json!([entry("validating-webhook", vec![webhook("https://a/", "fail", json!({}))])]), "[0].type", "parser"),
        (json!([parser, entry("mutating-webhook", vec![])]), "[1].parameters.webhooks", "names no webhook"),
        (hook(json!({"name": ""})), "[1].parameters.webhooks[0].name", "is empty"),
        (hook(json!({"url": "/x"})), "webhooks[0].url", "is not absolute"),
        (hook(json!({"url": "http://a/"})), "webhooks[0].url", "is not https"),
        (hook(json!({"timeout": "500ms"})), "webhooks[0].timeout", "out of range"),
        (hook(json!({"timeout": "31s"})), "webhooks[0].timeout", "out of range"),
        (hook(json!({"timeout": 1.5})), "webhooks[0].timeout", "a number"),
        (hook(json!({"failure_policy": "Fail"})), "webhooks[0].failure_policy", ""),
        (hook(json!({"portcullis": {"match": {"tools": ["a["]}}})), "portcullis.match.tools", "which has no meaning"),
        (
            json!([parser, entry("validating-webhook", vec![of_tools]), {"type": "tool-call-filter"}]),
            "[1].parameters.webhooks[0].portcullis.match.tools",
            "tool-call-filter changes",
        ),
        (hook(json!({"portcullis": {"mode": "audit"}})), "portcullis.mode", "audit"),
        (hook(json!({"portcullis": {"match": {"methods": []}}})), "portcullis.match.methods", "is empty"),
        (hook(json!({"portcullis": {"match": {"tool": ["a"]}}})), "portcullis.match.tool", "not known"),
        (hook(json!({"hmac_secret_ref": "name,target=X"})), "webhooks[0].hmac_secret_ref", "secrets provider"),
        (hook(json!({"hmac_secret_ref": "/none"})), "webhooks[0].hmac_secret_ref", "/none cannot be read"),
        (hook(json!({"hmac_secret_ref": "/empty"})), "webhooks[0].hmac_secret_ref", "/empty is empty"),
        (tls(json!({"ca_bundle_path": "/none"})), "webhooks[0].tls_config.ca_bundle_path", "/none cannot be read"),
        (tls(json!({"ca_bundle_path": "ca.crt"})), "webhooks[0].tls_config.ca_bundle_path", "not an absolute path"),
        (tls(json!({"ca_bundle_path": "/hmac"})), "webhooks[0].tls_config.ca_bundle_path", "no PEM certificate"),
        (pair("/a.crt", ""), "webhooks[0].tls_config.client_key_path", "is missing"),
        (pair("", "/a.key"), "webhooks[0].tls_config.client_cert_path", "is missing"),
        (pair("/a.crt", "/none"), "webhooks[0].tls_config.client_key_path", "/none cannot be read"),
        (pair("/a.crt", "/hmac"), "webhooks[0].tls_config.client_key_path", ""),
        (pair("/a.crt", "/b.key"), "webhooks[0].tls_config.client_key_path", ""),
    ] {
        let error = build(&files, entries).unwrap_err();
        assert!(error.field.starts_with("middleware_configs[") && error.field.ends_with(field), "{error}");
        assert!(error.problem.contains(problem) && !error.fix.is_empty(), "{error}");
    }
}

#[tokio::test]
async fn a_timeout_may_be_a_duration_nanoseconds_zero_or_left_out() {
    for timeout in [json!("5s"), json!("1500ms"), json!(5_000_000_000_i64), json!(0), Value::Null] {
        assert!(build(&files(), hook(json!({"timeout": timeout}))).is_ok(), "{timeout}");
    }
}

#[tokio::test]
async fn skipped_verification_is_said_loudly_at_the_start() {
    let log = Log::capture();
    build(&files(), hook(json!({"tls_config": {"insecure_skip_verify": true}, "url": "http://127.0.0.1:1/"})))
        .unwrap()
        .announce();
    let text = log.text();
    let line = text.lines().find(|line| line.contains("WARN")).unwrap();
    assert!(line.contains("NOT checked") && line.contains("policy"), "{line}");
}
