//! Documents written by upstream's operator (snapshot e25de16c) are read, and ours are written to the same bytes.

use mcp_runconfig::{MiddlewareConfig, PermissionProfile, ProxyMode, RunConfig, Transport};
use serde_json::{Value, json};

const GOLDEN: [(&str, &str); 5] = [
    ("01", include_str!("../../operator/tests/golden/01-minimal/minimal.runconfig.json")),
    ("02", include_str!("../../operator/tests/golden/02-streamable/streamable.runconfig.json")),
    ("03", include_str!("../../operator/tests/golden/03-sse-secrets-volumes/sse.runconfig.json")),
    ("04", include_str!("../../operator/tests/golden/04-overrides/overrides.runconfig.json")),
    ("05", include_str!("../../operator/tests/golden/05-webhooks/gated.runconfig.json")),
];

// MISSION P3: either half can be swapped for upstream's.
#[test]
fn upstreams_documents_are_read_and_written_back_to_the_byte() {
    for (case, document) in GOLDEN {
        let config = RunConfig::parse(document.as_bytes()).unwrap_or_else(|error| panic!("{case}: {error}"));
        assert!(config.extra.is_empty(), "{case}: every member is acted on: {:?}", config.extra);
        assert_eq!(config.to_json(), document, "{case}");
    }
}

#[test]
fn a_document_built_from_values_has_upstreams_bytes() {
    let entry = |kind: &str, parameters: Value| MiddlewareConfig::new(kind, parameters);
    let labels =
        [("", "true"), ("-basename", "minimal"), ("-name", "minimal"), ("-port", "8080"), ("-transport", "stdio")];
    let config = RunConfig {
        schema_version: mcp_runconfig::SCHEMA_VERSION.into(),
        mcpserver_generation: 1,
        image: "localhost/everything:1".into(),
        name: "minimal".into(),
        container_name: "minimal".into(),
        base_name: "minimal".into(),
        transport: Transport::Stdio,
        host: "0.0.0.0".into(),
        port: 8080,
        target_port: 8080,
        permission_profile: Some(PermissionProfile::network()),
        env_vars: [("MCP_TRANSPORT".to_owned(), "stdio".to_owned())].into(),
        container_labels: labels.map(|(suffix, value)| (format!("toolhive{suffix}"), value.to_owned())).into(),
        proxy_mode: ProxyMode::StreamableHttp,
        middleware_configs: vec![
            entry("bodylimit", json!({"max_bytes": 8_388_608})),
            entry("auth", json!({})),
            entry("mcp-parser", json!({})),
            entry("recovery", Value::Null),
        ],
        ..RunConfig::default()
    };
    assert_eq!(config.to_json(), GOLDEN[0].1);
}

#[test]
fn members_this_version_does_not_act_on_are_kept_as_they_were() {
    let document = json!({
        "name": "x", "transport": "sse", "port": 1, "oidc_config": {"Issuer": "https://idp", "JWKSURL": "", "Scopes": null},
        "telemetry_config": {"samplingRate": "0.25"}, "from_the_future": [1, 2.5, u64::MAX],
        "permission_profile": {"name": "p", "gpu": true, "network": {"outbound": {"later": 1}, "inbound": {}}},
        "scaling_config": {"backend_replicas": 0, "session_redis": {"address": "redis:6379"}},
        "middleware_configs": [{"type": "auth", "parameters": {"oidc_config": {"Issuer": "https://idp"}}}],
        "mutating_webhooks": [{"name": "w", "url": "https://w", "timeout": 0, "failure_policy": "fail", "methods": ["*"]}],
    });
    let written: Value =
        serde_json::from_str(&RunConfig::parse(document.to_string().as_bytes()).unwrap().to_json()).unwrap();
    for (key, value) in document.as_object().unwrap() {
        assert_eq!(written[key], *value, "{key}");
    }
}

#[test]
fn keys_match_whatever_their_case_as_in_go() {
    let document = r#"{"Name":"x","TRANSPORT":"stdio","Port":9,"Middleware_Configs":[{"Type":"validating-webhook",
        "Parameters":{"Webhooks":[{"NAME":"w","Url":"https://w","Failure_Policy":"fail","Timeout":"5s",
        "Tls_Config":{"CA_bundle_path":"/ca"}}]}}]}"#;
    let config = RunConfig::parse(document.as_bytes()).unwrap();
    assert_eq!((config.name.as_str(), config.port), ("x", 9));
    let parameters = config.middleware_configs[0].parameters.clone();
    let webhooks = mcp_runconfig::webhook::WebhookParameters::from_value(parameters, "p").unwrap().webhooks;
    assert_eq!(webhooks[0].timeout.as_nanos(), 5_000_000_000);
    assert_eq!(webhooks[0].tls_config.as_ref().unwrap().ca_bundle_path, "/ca");
}

#[test]
fn defaults_are_filled_in_and_the_proxy_mode_follows_the_transport() {
    let cases = [
        (r#"{"name":"x","transport":"stdio"}"#, ProxyMode::StreamableHttp),
        (r#"{"name":"x","transport":"stdio","proxy_mode":"sse"}"#, ProxyMode::Sse),
        (r#"{"name":"x","transport":"sse","proxy_mode":"streamable-http"}"#, ProxyMode::Sse),
        (r#"{"name":"x","transport":"streamable-http","proxy_mode":null,"port":null}"#, ProxyMode::StreamableHttp),
    ];
    for (document, mode) in cases {
        let config = RunConfig::parse(document.as_bytes()).unwrap();
        assert_eq!(config.proxy_mode, mode, "{document}");
        assert_eq!(config.schema_version, "v0.1.0");
    }
}

#[test]
fn session_ttl_is_nanoseconds_or_a_go_duration() {
    for (ttl, seconds) in
        [("7200000000000", Some(7200)), ("\"2h\"", Some(7200)), ("0", None), ("\"\"", None), ("null", None)]
    {
        let document = format!(r#"{{"name":"x","transport":"stdio","session_ttl":{ttl}}}"#);
        let config = RunConfig::parse(document.as_bytes()).unwrap();
        assert_eq!(config.session_ttl.map(|ttl| ttl.as_secs()), seconds, "{ttl}");
    }
}

#[test]
fn markup_is_escaped_as_go_escapes_it() {
    let config = RunConfig { name: "x".into(), image: "a<b>&\u{2028}c".into(), ..RunConfig::default() };
    assert!(config.to_json().contains(r#""image": "a\u003cb\u003e\u0026\u2028c""#), "{}", config.to_json());
    assert_eq!(RunConfig::parse(config.to_json().as_bytes()).unwrap().image, config.image);
}

#[test]
fn every_kind_of_bad_input_names_the_member_the_problem_and_the_fix() {
    let cases: [(&str, &str); 24] = [
        ("", "document: is not JSON"),
        ("name: x", "document: is not JSON"),
        (r#"{"name":"x"} {}"#, "document: is not JSON: trailing characters"),
        ("[]", "document: is a list; write one JSON object"),
        ("null", "document: is null; write one JSON object"),
        (r#"{"transport":"stdio"}"#, "name: is missing or empty; set it to a non-empty string"),
        (r#"{"name":"x"}"#, "transport: is missing or empty; set it to \"stdio\""),
        (r#"{"name":"x","transport":"inspector"}"#, "transport: \"inspector\" is not known here; use one of \"stdio\""),
        (r#"{"name":"x","transport":"stdio","proxy_mode":"ws"}"#, "proxy_mode: \"ws\" is not known here"),
        (r#"{"name":"x","transport":"stdio","port":"8080"}"#, "port: is a string; write an integer without quotes"),
        (
            r#"{"name":"x","transport":"stdio","port":70000}"#,
            "port: 70000 is out of range; use an integer from 0 to 65535",
        ),
        (r#"{"name":"x","transport":"stdio","port":80.5}"#, "port: is a number; write an integer without quotes"),
        (r#"{"name":"x","transport":"stdio","target_port":-1}"#, "target_port: -1 is out of range"),
        (r#"{"name":"x","transport":"stdio","cmd_args":"-v"}"#, "cmd_args: is a string; write a list"),
        (r#"{"name":"x","transport":"stdio","cmd_args":["-v",2]}"#, "cmd_args[1]: is a number; write a string"),
        (r#"{"name":"x","transport":"stdio","env_vars":{"A":1}}"#, "env_vars.A: is a number; write a string"),
        (
            r#"{"name":"x","transport":"stdio","trust_proxy_headers":"yes"}"#,
            "trust_proxy_headers: is a string; write true or false",
        ),
        (r#"{"name":"x","transport":"stdio","session_ttl":"2 hours"}"#, "session_ttl: \"2 hours\" is not a duration"),
        (r#"{"name":"x","transport":"stdio","session_ttl":-1}"#, "session_ttl: is negative"),
        (
            r#"{"name":"x","transport":"stdio","schema_version":"v9"}"#,
            "schema_version: \"v9\" is not supported; use \"v0.1.0\"",
        ),
        (
            r#"{"name":"x","transport":"stdio","middleware_configs":[{"parameters":{}}]}"#,
            "middleware_configs[0].type: is missing or empty",
        ),
        (
            r#"{"name":"x","transport":"stdio","middleware_configs":["auth"]}"#,
            "middleware_configs[0]: is a string; write an object",
        ),
        (
            r#"{"name":"x","transport":"stdio","permission_profile":{"network":{"outbound":{"allow_port":[1,"a"]}}}}"#,
            "permission_profile.network.outbound.allow_port[1]: is not a port",
        ),
        (
            r#"{"name":"x","transport":"stdio","validating_webhooks":[{"name":"w","url":"https://w","failure_policy":"Fail"}]}"#,
            "validating_webhooks[0].failure_policy: \"Fail\" is not known here; use one of \"fail\", \"ignore\"",
        ),
    ];
    for (document, message) in cases {
        let error = RunConfig::parse(document.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with(message), "{document}\n  says {error}\n  not  {message}");
        assert!(!error.contains('\n'), "one line: {error}");
    }
    assert!(RunConfig::parse(b"{\"name\":\"\xff\"}").is_err());
}
