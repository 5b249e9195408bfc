//! Request webhooks: the rules of their configuration and the types on the wire.

use mcp_runconfig::Parameters as _;
use mcp_runconfig::webhook::{Context, Payload, Principal, Response, Timeout, WebhookConfig, WebhookParameters};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn webhook(changes: &Value) -> Value {
    let mut value = json!({"name": "policy", "url": "https://policy.example/check", "failure_policy": "fail"});
    for (key, change) in changes.as_object().into_iter().flatten() {
        value[key] = change.clone();
    }
    value
}

#[test]
fn every_rule_of_a_webhook_is_named_when_broken() {
    let insecure = json!({"insecure_skip_verify": true});
    let cases: [(Value, &str); 21] = [
        (json!({}), ""),
        (json!({"name": ""}), "name is empty"),
        (json!({"url": ""}), "url is empty"),
        (json!({"url": "policy.example/check"}), "url \"policy.example/check\" is not"),
        (json!({"url": "/check"}), "url \"/check\" is not absolute"),
        (json!({"url": "https://"}), "url \"https://\" is not a URL"),
        (json!({"url": "https://a b/"}), "url \"https://a b/\" is not a URL"),
        (json!({"url": "https://h:99999/"}), "url \"https://h:99999/\" has no usable host and port"),
        (json!({"url": "http://u:secret@h/x?token=secret"}), "url \"http://…@h/x\""),
        (json!({"url": "http://h/x?token=secret@y#secret"}), "url \"http://h/x\" is not https"),
        (json!({"url": "https://[::1]/", "timeout": 0}), ""),
        (json!({"url": "http://policy.example/"}), "url \"http://policy.example/\" is not https"),
        (json!({"url": "http://policy.example/", "tls_config": insecure}), ""),
        (
            json!({"url": "ftp://policy.example/", "tls_config": insecure}),
            "url \"ftp://policy.example/\" has the scheme \"ftp\"",
        ),
        (json!({"timeout": "500ms"}), "timeout 500ms is out of range; use 1s to 30s"),
        (json!({"timeout": 30_000_000_001_i64}), "timeout 30.000000001s is out of range"),
        (json!({"timeout": -1}), "timeout -1ns is out of range"),
        (
            json!({"tls_config": {"client_cert_path": "/c"}}),
            "tls_config.client_key_path is missing while a client certificate",
        ),
        (json!({"portcullis": {"match": {"tools": ["deploy_*"]}}}), ""),
        (json!({"portcullis": {"match": {"tools": []}}}), "portcullis.match.tools is empty and matches nothing"),
        (json!({"tls_config": {"client_key_path": "/k"}}), "tls_config.client_cert_path is missing while a client key"),
    ];
    for (changes, message) in cases {
        let config = WebhookConfig::read(webhook(&changes), "w").unwrap();
        match config.validate() {
            Ok(()) => assert_eq!(message, "", "{changes}"),
            Err(error) => {
                assert_eq!(error.problems.len(), 1, "{error}");
                let wanted = format!("webhook {:?}: {message}", config.name);
                assert!(!message.is_empty() && error.to_string().starts_with(&wanted), "{error}\n{wanted}");
            }
        }
    }
}

#[test]
fn a_member_of_ours_that_is_not_known_is_refused() {
    for member in [json!({"mtach": {}}), json!({"match": {"tool": ["a"]}})] {
        let error = WebhookConfig::read(webhook(&json!({"portcullis": member})), "w").unwrap_err().to_string();
        assert!(error.contains("is not known to this proxy"), "{error}");
    }
}

#[test]
fn all_broken_rules_are_told_at_once() {
    let changes = json!({"url": "http://x/", "timeout": "31s", "tls_config": {"client_key_path": "/k"}});
    let error = WebhookConfig::read(webhook(&changes), "w").unwrap().validate().unwrap_err();
    let fields: Vec<_> = error.problems.iter().map(|problem| problem.field).collect();
    assert_eq!(fields, ["url", "timeout", "tls_config.client_cert_path"], "{error}");
}

#[test]
fn a_timeout_is_nanoseconds_a_go_duration_or_the_default() {
    for (written, seconds) in [
        (json!(null), 10.0),
        (json!(0), 10.0),
        (json!("0s"), 10.0),
        (json!(5_000_000_000_i64), 5.0),
        (json!("1500ms"), 1.5),
    ] {
        let config = WebhookConfig::read(webhook(&json!({"timeout": written})), "w").unwrap();
        assert!((config.timeout.duration().as_secs_f64() - seconds).abs() < f64::EPSILON, "{written}");
        assert!(config.validate().is_ok());
    }
    for (written, message) in [
        (json!("soon"), "w.timeout: \"soon\" is not a duration"),
        (json!(5.5), "w.timeout: is a number; write a Go duration such as \"5s\", or integer nanoseconds"),
        (json!({}), "w.timeout: is an object"),
    ] {
        let error = WebhookConfig::read(webhook(&json!({"timeout": written})), "w").unwrap_err().to_string();
        assert!(error.starts_with(message), "{error}");
    }
    assert_eq!(Timeout::default().as_nanos(), 0);
}

#[test]
fn parameters_need_at_least_one_webhook_and_a_known_policy() {
    for (parameters, message) in [
        (json!({}), "p.webhooks: is missing or empty"),
        (json!({"webhooks": []}), "p.webhooks: names no webhook"),
        (json!({"webhooks": {}}), "p.webhooks: is an object; write a list"),
        (json!({"webhooks": [{"name": "w"}]}), "p.webhooks[0].failure_policy: is missing or empty; set it"),
        (
            json!({"webhooks": [webhook(&json!({"tls_config": []}))]}),
            "p.webhooks[0].tls_config: is a list; write an object",
        ),
        (json!([]), "p: is a list; write an object"),
    ] {
        let error = WebhookParameters::read(parameters, "p").unwrap_err().to_string();
        assert!(error.starts_with(message), "{error}");
    }
}

fn principal<'a>(sub: &'a str, claims: &'a Map<String, Value>) -> Principal<'a> {
    Principal { sub, platform_user_id: "", name: "", email: "", claims }
}

#[test]
fn a_payload_has_the_keys_and_the_order_of_the_contract() {
    let request =
        r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hi"}}}"#;
    let principal = serde_json::to_string(&principal("user-42", &Map::new())).unwrap();
    let payload = Payload {
        uid: "7b0f6f0e-6c0a-4f0c-9c57-3f6a3f0b1d11",
        timestamp: "2026-08-21T10:26:00.123456789Z".parse().unwrap(),
        principal: Some(&principal),
        mcp_request: request,
        source: "10.244.0.9:51874".parse().unwrap(),
        context: &Context::new("yardstick", "streamable-http"),
    };
    assert_eq!(
        String::from_utf8(payload.encode()).unwrap(),
        concat!(
            r#"{"version":"v0.1.0","uid":"7b0f6f0e-6c0a-4f0c-9c57-3f6a3f0b1d11","timestamp":"2026-08-21T10:26:00.123456789Z","#,
            r#""principal":{"sub":"user-42"},"mcp_request":{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","#,
            r#""arguments":{"text":"hi"}}},"context":{"server_name":"yardstick","source_ip":"10.244.0.9:51874","transport":"streamable-http"}}"#
        )
    );
    let context = Context::new("a \"b\" \\ \u{1}", "sse");
    let anonymous = Payload { principal: None, source: "[::1]:80".parse().unwrap(), context: &context, ..payload };
    let anonymous: Value = serde_json::from_slice(&anonymous.encode()).unwrap();
    assert_eq!(anonymous["principal"], Value::Null);
    assert_eq!(
        anonymous["context"],
        json!({"server_name": "a \"b\" \\ \u{1}", "source_ip": "[::1]:80", "transport": "sse"})
    );
}

#[test]
fn claims_stay_out_of_debug_output() {
    let claims = json!({"ssn": "078-05-1120"}).as_object().unwrap().clone();
    let shown = format!("{:?}", principal("a", &claims));
    assert!(shown.contains("ssn") && !shown.contains("078"), "{shown}");
}

// MISSION M5: an answer without `allowed: true` denies.
#[test]
fn only_a_well_typed_answer_with_allowed_true_allows() {
    let cases = [
        (r#"{"allowed":true}"#, Some(true)),
        (r#"{"ALLOWED":true,"extra":[1]}"#, Some(true)),
        (r#"{"allowed":false,"details":{"a":"b","c":null},"code":403}"#, Some(false)),
        ("{}", Some(false)),
        (r#"{"version":"v0.1.0","uid":"x","mcp_request":{}}"#, Some(false)),
        (r#"{"allowed":null}"#, Some(false)),
        (r#"{"allowed":true,"allowed":false}"#, Some(false)),
        (r#"{"allowed":"true"}"#, None),
        (r#"{"allowed":1}"#, None),
        (r#"{"allowed":true,"code":"403"}"#, None),
        (r#"{"allowed":true,"code":403.5}"#, None),
        (r#"{"allowed":true,"details":{"a":1}}"#, None),
        (r#"{"allowed":true,"uid":7}"#, None),
        (r#"{"allowed":true,"version":{}}"#, None),
        (r#"{"allowed":true,"message":[]}"#, None),
        (r#"{"allowed":true} x"#, None),
        ("", None),
        ("null", None),
        ("[]", None),
        ("\"allowed\"", None),
        (r#"{"allowed":true"#, None),
    ];
    for (answer, allowed) in cases {
        let read = serde_json::from_str::<Response>(answer);
        assert_eq!(read.as_ref().ok().map(|response| response.allowed), allowed, "{answer}: {read:?}");
    }
}

#[test]
fn a_patch_is_handed_on_as_it_was_written() {
    let response: Response =
        serde_json::from_str(r#"{"allowed":true,"patch_type":"json_patch","patch":[ {"op":"test"} ]}"#).unwrap();
    assert_eq!(response.patch.unwrap().get(), r#"[ {"op":"test"} ]"#);
    let none: Response = serde_json::from_str(r#"{"allowed":true,"patch":null}"#).unwrap();
    assert!(none.patch.is_none());
}

proptest! {
    #[test]
    fn any_bytes_are_an_answer_or_an_error_never_a_panic(bytes: Vec<u8>) {
        let _ = serde_json::from_slice::<Response>(&bytes);
        let _ = mcp_runconfig::RunConfig::parse(&bytes);
    }

    #[test]
    fn any_url_is_judged_never_a_panic(url in "\\PC{0,40}|https?://[-a-z.:@\\[\\]0-9%/?#]{0,40}") {
        let _ = WebhookConfig::read(webhook(&json!({"url": url})), "w").unwrap().validate();
    }
}
