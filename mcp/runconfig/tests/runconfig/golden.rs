//! Documents written by ToolHive's operator (v0.63.0) are read, and ours are written to the same bytes.

use std::time::Duration;

use mcp_runconfig::{
    Additions, AuditConfig, AuditParameters, HeaderForward, MiddlewareConfig, Parameters as _, PermissionProfile,
    ProxyMode, RunConfig, ScalingConfig, SessionRedis, SessionRedisTls, TOOL_CALL_FILTER, TOOL_FILTER,
    ToolFilterParameters, ToolOverride, Transport, chain,
};
use serde_json::{Value, json};

const GOLDEN: [(&str, &str); 14] = [
    ("01", include_str!("../../../operator/tests/golden/01-minimal/minimal.runconfig.json")),
    ("02", include_str!("../../../operator/tests/golden/02-streamable/streamable.runconfig.json")),
    ("03", include_str!("../../../operator/tests/golden/03-sse-secrets-volumes/sse.runconfig.json")),
    ("04", include_str!("../../../operator/tests/golden/04-overrides/overrides.runconfig.json")),
    ("05", include_str!("../../../operator/tests/golden/05-webhooks/gated.runconfig.json")),
    ("06", include_str!("../../../operator/tests/golden/06-oidc/oidc-inline.runconfig.json")),
    ("06", include_str!("../../../operator/tests/golden/06-oidc/oidc-cluster.runconfig.json")),
    ("08", include_str!("../../../operator/tests/golden/08-audit-authz-telemetry/full.runconfig.json")),
    ("09 aws-remote", include_str!("../../../operator/tests/golden/09-external-auth/aws-remote.runconfig.json")),
    ("09 bearer-remote", include_str!("../../../operator/tests/golden/09-external-auth/bearer-remote.runconfig.json")),
    ("09 ex-custom", include_str!("../../../operator/tests/golden/09-external-auth/ex-custom.runconfig.json")),
    ("09 ex-default", include_str!("../../../operator/tests/golden/09-external-auth/ex-default.runconfig.json")),
    (
        "09 ex-remote-public",
        include_str!("../../../operator/tests/golden/09-external-auth/ex-remote-public.runconfig.json"),
    ),
    ("12", include_str!("../../../operator/tests/golden/12-rate-limits/limited.runconfig.json")),
];

// MISSION P3: either half can be swapped for ToolHive's.
#[test]
fn upstreams_documents_are_read_and_written_back_to_the_byte() {
    for (case, document) in GOLDEN {
        let config = RunConfig::parse(document.as_bytes()).unwrap_or_else(|error| panic!("{case}: {error}"));
        assert_eq!(config.to_json(), document, "{case}");
        assert_eq!(config.unknown_members, [""; 0], "{case}");
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
fn upstreams_telemetry_and_redis_are_read_and_written_back_to_the_byte() {
    let full = include_str!("../../../operator/tests/golden/08-audit-authz-telemetry/full.runconfig.json");
    let remote = include_str!("../../../operator/tests/golden/10-remote-observed/observed.runconfig.json");
    let stdio = include_str!("../../../operator/tests/golden/11-authz/stdio-observed.runconfig.json");
    let limited = include_str!("../../../operator/tests/golden/12-rate-limits/limited.runconfig.json");
    for (document, member) in [
        (full, "telemetry_config"),
        (remote, "telemetry_config"),
        (stdio, "telemetry_config"),
        (full, "scaling_config"),
        (remote, "scaling_config"),
        (limited, "scaling_config"),
    ] {
        let begin = document.find(&format!("  \"{member}\": {{")).expect("the member is there");
        let member = &document[begin..begin + document[begin..].find("\n  }").unwrap() + 4];
        let minimal = format!("{{\"name\": \"x\", \"transport\": \"stdio\",\n{member}\n}}");
        let written = RunConfig::parse(minimal.as_bytes()).unwrap().to_json();
        assert!(written.contains(member), "{written}");
    }
}

#[test]
fn members_that_no_proxy_reads_are_left_out_and_guards_that_none_has_are_refused() {
    let parse = |members: &str| {
        let document = format!(r#"{{"name":"x","transport":"stdio"{members}}}"#);
        RunConfig::parse(document.as_bytes())
    };
    let plain = parse("").unwrap();
    for members in [
        r#","from_the_future":[1,2.5,18446744073709551615]"#,
        r#","permission_profile":null,"tools_override":{}"#,
        r#","authz_config":null,"authz_config_path":"","aws_sts_config":null,"token_exchange_config":null"#,
        r#","scaling_config":null,"telemetry_config":null"#,
    ] {
        let read = RunConfig { unknown_members: Vec::new(), ..parse(members).unwrap() };
        assert_eq!(read, plain, "{members}");
    }
    for (members, member) in [
        (r#","embedded_auth_\u017Ferver_config":{}"#, "embedded_auth_\u{17F}erver_config"),
        (r#","embedded_auth_server_config":{}"#, "embedded_auth_server_config"),
    ] {
        for chain in ["", r#","middleware_configs":[]"#] {
            let error = parse(&format!("{members}{chain}")).unwrap_err();
            assert!(error.field == member && error.problem.contains("not built"), "{error}");
        }
        // It lists what there is.
        let chain = r#","middleware_configs":[{"type":"auth"}]"#;
        assert!(parse(&format!("{members}{chain}")).is_ok(), "{members}");
    }
    // Where the list has no exchange, the server would get the caller's own token.
    let error = parse(r#","to\u212Aen_exchange_config":{},"middleware_configs":[{"type":"auth"}]"#).unwrap_err();
    assert!(error.field == "token_exchange_config" && error.fix.contains("tokenexchange"), "{error}");
}

#[test]
fn a_login_is_written_as_upstream_writes_it_in_both_places() {
    let mut config = RunConfig::parse(GOLDEN[5].1.as_bytes()).unwrap();
    let oidc = config.oidc_config.take().unwrap();
    assert_eq!(oidc.audience, "mcp-aud");
    config.thv_ca_bundle = String::new();
    config.require_login(oidc);
    config.middleware_configs = chain::of(&config);
    assert_eq!(config.to_json(), GOLDEN[5].1);
}

#[test]
fn the_login_of_the_document_takes_the_place_of_the_chains() {
    let parse = |chain: &str| {
        let oidc = r#"{"Issuer":"https://idp","Audience":"a"}"#;
        let document =
            format!(r#"{{"name":"x","transport":"stdio","oidc_config":{oidc},"middleware_configs":{chain}}}"#);
        RunConfig::parse(document.as_bytes())
    };
    for chain in [
        r#"[{"type":"auth","parameters":{"embedded_auth_server_issuer":"e"}}]"#,
        r#"[{"type":"auth","parameters":{"embedded_auth_server_issuer":"e","oidc_config":{"Issuer":"https://other"}}}]"#,
    ] {
        let config = parse(chain).unwrap();
        let entry = &config.middleware_configs[0].parameters;
        assert_eq!(entry["oidc_config"], serde_json::to_value(config.oidc_config.unwrap()).unwrap());
    }
    assert!(parse("[]").unwrap().middleware_configs.is_empty(), "the proxy makes its own chain");
    for (chain, field) in [
        (r#"[{"type":"recovery"}]"#, "middleware_configs"),
        (r#"[{"type":"auth","parameters":{}},{"type":"auth","parameters":{}}]"#, "middleware_configs"),
        (r#"[{"type":"recovery"},{"type":"auth"}]"#, "middleware_configs[1].parameters"),
        (r#"[{"type":"auth","parameters":[]}]"#, "middleware_configs[0].parameters"),
        (
            r#"[{"type":"auth","parameters":{"oidc_config":{"Issuer":1}}}]"#,
            "middleware_configs[0].parameters.oidc_config.Issuer",
        ),
    ] {
        assert_eq!(parse(chain).unwrap_err().field, field, "{chain}");
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
    let webhooks = mcp_runconfig::webhook::WebhookParameters::read(parameters, "p").unwrap().webhooks;
    assert_eq!(webhooks[0].timeout.as_nanos(), 5_000_000_000);
    assert_eq!(webhooks[0].tls_config.as_ref().unwrap().ca_bundle_path, "/ca");
}

#[test]
fn a_tool_filter_is_not_lost_behind_a_letter_that_go_takes_for_another() {
    let read = |value| ToolFilterParameters::read(value, "p");
    let expected = read(json!({"filter_tools": ["echo"]})).unwrap();
    for name in ["filter_tool\u{17f}", "FILTER_TOOL\u{17f}"] {
        assert_eq!(read(json!({name: ["echo"]})).unwrap(), expected, "{name}");
        for other in ["filter_tools", "Filter_Tools"] {
            let error = read(json!({name: ["echo"], other: ["hidden"]})).unwrap_err().to_string();
            assert!(error.contains("is the same member"), "{error}");
        }
    }
    let two = json!({"webhoo\u{212a}s": [], "webhooks": []});
    let error = mcp_runconfig::webhook::WebhookParameters::read(two, "p").unwrap_err().to_string();
    assert!(error.contains("is the same member"), "{error}");
    let config = RunConfig::parse(r#"{"name":"x","tran\u017fport":"stdio","port":9,"container_name":"c"}"#.as_bytes());
    assert_eq!(config.unwrap().transport, Transport::Stdio);
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
fn durations_are_nanoseconds_or_a_go_duration_and_written_as_the_latter() {
    for (ttl, seconds, written) in [
        ("7200000000000", Some(7200), json!("2h0m0s")),
        ("\"2h\"", Some(7200), json!("2h0m0s")),
        ("\"90s\"", Some(90), json!("1m30s")),
        ("0", None, Value::Null),
        ("\"0s\"", None, Value::Null),
        ("\"\"", None, Value::Null),
        ("null", None, Value::Null),
    ] {
        let document = format!(r#"{{"name":"x","transport":"stdio","session_ttl":{ttl},"proxy_read_timeout":{ttl}}}"#);
        let config = RunConfig::parse(document.as_bytes()).unwrap();
        let document: Value = serde_json::from_str(&config.to_json()).unwrap();
        for (member, value) in [("session_ttl", config.session_ttl), ("proxy_read_timeout", config.proxy_read_timeout)]
        {
            assert_eq!(value.map(|value| value.as_secs()), seconds, "{member} {ttl}");
            assert_eq!(document[member], written, "{member} {ttl}");
        }
    }
}

#[test]
fn the_members_of_v0_63_have_upstreams_order_and_casing() {
    let headers = HeaderForward {
        add_plaintext_headers: [("X-Tenant".into(), "acme".into())].into(),
        add_headers_from_secret: [("X-Api-Key".into(), "HEADER_FORWARD_X_API_KEY_X".into())].into(),
    };
    let mut config = RunConfig {
        schema_version: mcp_runconfig::SCHEMA_VERSION.into(),
        remote_url: "https://far.example".into(),
        name: "x".into(),
        session_ttl: Some(Duration::from_hours(1)),
        max_request_body_size: 1 << 20,
        proxy_read_timeout: Some(Duration::from_mins(1)),
        tools_filter: vec!["say".into(), "add".into()],
        tools_override: [("echo".into(), ToolOverride { name: "say".into(), ..ToolOverride::default() })].into(),
        header_forward: Some(headers),
        scaling_config: Some(ScalingConfig {
            session_redis: Some(SessionRedis {
                address: "redis:6379".into(),
                key_prefix: "x:".into(),
                tls: Some(SessionRedisTls { ca_cert_file: "/ca.crt".into(), ..SessionRedisTls::default() }),
                ..SessionRedis::default()
            }),
            ..ScalingConfig::default()
        }),
        portcullis: Additions {
            allow_private_endpoint: true,
            mcp_paths: vec!["/api/mcp".into()],
            open_paths: vec!["/docs/*".into()],
            trusted_proxies: vec!["10.0.0.0/8".parse().unwrap()],
            rate_limits_fail_closed: true,
            actor_token_file: "/actor/token".into(),
            shadow_policies: None,
        },
        ..RunConfig::default()
    };
    let added = [TOOL_FILTER, TOOL_CALL_FILTER, chain::HEADER_FORWARD];
    config.middleware_configs = chain::of(&config).into_iter().filter(|entry| added.contains(&&*entry.kind)).collect();
    let entry = |kind: &str| {
        format!(
            r#"{{"type":"{kind}","parameters":{{"filter_tools":["say","add"],"tools_override":{{"echo":{{"name":"say","description":""}}}}}}}}"#
        )
    };
    let document = [
        r#"{"schema_version":"v0.1.0","image":"","remote_url":"https://far.example","#,
        r#""name":"x","transport":"stdio","host":"","port":0,"permission_profile":null,"#,
        r#""session_ttl":"1h0m0s","max_request_body_size":1048576,"proxy_read_timeout":"1m0s","proxy_mode":"streamable-http","#,
        r#""tools_filter":["say","add"],"tools_override":{"echo":{"name":"say"}},"#,
        &format!(r#""middleware_configs":[{},{},"#, entry("tool-filter"), entry("tool-call-filter")),
        r#"{"type":"header-forward","parameters":{"add_headers":{"X-Tenant":"acme"}}}],"#,
        r#""header_forward":{"add_plaintext_headers":{"X-Tenant":"acme"},"#,
        r#""add_headers_from_secret":{"X-Api-Key":"HEADER_FORWARD_X_API_KEY_X"}},"#,
        r#""scaling_config":{"session_redis":{"address":"redis:6379","key_prefix":"x:","tls":{"caCertFile":"/ca.crt"}}},"#,
        r#""portcullis":{"allow_private_endpoint":true,"mcp_paths":["/api/mcp"],"open_paths":["/docs/*"],"trusted_proxies":["10.0.0.0/8"],"rate_limits_fail_closed":true,"actor_token_file":"/actor/token"}}"#,
    ]
    .concat();
    assert_eq!(config.to_json().replace([' ', '\n'], ""), document);
    let read = RunConfig::parse(document.as_bytes()).unwrap();
    assert_eq!(read, config);
}

#[test]
fn every_form_of_tool_filter_parameters_is_read_and_written_in_upstreams() {
    let none = ToolFilterParameters::default();
    let only = |name: &str, description: &str| ToolFilterParameters {
        tools_override: [("echo".into(), ToolOverride { name: name.into(), description: description.into() })].into(),
        ..ToolFilterParameters::default()
    };
    let filter = ToolFilterParameters { filter_tools: vec!["a".into()], ..ToolFilterParameters::default() };
    let full = r#"{"filter_tools":null,"tools_override":{"echo":{"name":"say","description":""}}}"#;
    let says = r#"{"filter_tools":null,"tools_override":{"echo":{"name":"","description":"Says."}}}"#;
    let filters = r#"{"filter_tools":["a"],"tools_override":{}}"#;
    let nothing = r#"{"filter_tools":null,"tools_override":{}}"#;
    for (parameters, typed, form) in [
        (full, only("say", ""), full),
        (r#"{"filter_tools":[],"tools_override":{"echo":{"name":"say"}}}"#, only("say", ""), full),
        (says, only("", "Says."), says),
        (filters, filter.clone(), filters),
        (r#"{"filter_tools":["a"],"tools_override":null}"#, filter.clone(), filters),
        (r#"{"filter_tools":["a"]}"#, filter, filters),
        (r#"{"filter_tools":[]}"#, none.clone(), nothing),
        ("{}", none, nothing),
    ] {
        let read = ToolFilterParameters::read(serde_json::from_str(parameters).unwrap(), "p").unwrap();
        assert_eq!(read, typed, "{parameters}");
        for kind in [TOOL_FILTER, TOOL_CALL_FILTER] {
            let chain = |form: &str| format!(r#""middleware_configs":[{{"type":"{kind}","parameters":{form}}}]"#);
            let document = format!(r#"{{"name":"x","transport":"stdio",{}}}"#, chain(parameters));
            let written = RunConfig::parse(document.as_bytes()).unwrap().to_json().replace([' ', '\n'], "");
            assert!(written.contains(&chain(form)), "{written}\n  lacks {form}");
        }
    }
    for (parameters, message) in [
        (r#"{"filter_tools":"a"}"#, "p.filter_tools: is a string; write a list"),
        (r#"{"filter_tools":[1]}"#, "p.filter_tools[0]: is a number; write a string"),
        (r#"{"tools_override":["a"]}"#, "p.tools_override: is a list; write an object"),
        (r#"{"tools_override":{"a":"b"}}"#, "p.tools_override.a: is a string; write an object"),
        (r#"{"tools_override":{"a":{"name":1}}}"#, "p.tools_override.a.name: is a number; write a string"),
    ] {
        let error = ToolFilterParameters::read(serde_json::from_str(parameters).unwrap(), "p").unwrap_err();
        assert_eq!(error.to_string(), message);
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
    let cases: [(&str, &str); 30] = [
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
            r#"{"name":"x","transport":"stdio","proxy_read_timeout":"-5s"}"#,
            "proxy_read_timeout: is negative; write a positive duration such as \"30s\"",
        ),
        (
            r#"{"name":"x","transport":"stdio","proxy_read_timeout":"soon"}"#,
            "proxy_read_timeout: \"soon\" is not a duration",
        ),
        (r#"{"name":"x","transport":"stdio","max_request_body_size":-1}"#, "max_request_body_size: -1 is out of range"),
        (
            r#"{"name":"x","transport":"stdio","tools_override":{"a":["b"]}}"#,
            "tools_override.a: is a list; write an object",
        ),
        (
            r#"{"name":"x","transport":"stdio","scaling_config":{"session_redis":{"db":"1"}}}"#,
            "scaling_config.session_redis.db: is a string; write an integer",
        ),
        (
            r#"{"name":"x","transport":"stdio","scaling_config":{"session_redis":{"tls":{"insecureSkipVerify":"no"}}}}"#,
            "scaling_config.session_redis.tls.insecureSkipVerify: is a string; write true or false",
        ),
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
            "permission_profile.network.outbound.allow_port[1]: is a string; write an integer without quotes",
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

#[test]
fn audit_is_written_as_upstream_writes_it() {
    let parse = |audit: &str| RunConfig {
        schema_version: mcp_runconfig::SCHEMA_VERSION.into(),
        name: "x".into(),
        transport: Transport::StreamableHttp,
        audit_config: Some(AuditConfig::read(serde_json::from_str(audit).unwrap(), "audit_config").unwrap()),
        ..RunConfig::default()
    };
    let asked = |config: &RunConfig| AuditParameters::of(config.audit_config.as_ref(), "", config.transport.as_str());
    let operators = r#"{"detectApplicationErrors":true,"maxDataSize":1024}"#;
    let every = [
        r#"{"enabled":true,"component":"c","eventTypes":["mcp_ping"],"excludeEventTypes":["mcp_tool_call"],"includeRequestData":true,"#,
        r#""includeResponseData":true,"detectApplicationErrors":false,"maxDataSize":7,"maxDelegationDepth":2,"logFile":"/audit.log"}"#,
    ]
    .concat();
    for audit in [operators, &every] {
        let mut config = parse(audit);
        let parameters = serde_json::to_value(asked(&config)).unwrap();
        config.middleware_configs = vec![MiddlewareConfig::new(chain::AUDIT, parameters)];
        let written = config.to_json().replace([' ', '\n'], "");
        let entry = format!(
            r#"[{{"type":"audit","parameters":{{"config_data":{audit},"transport_type":"streamable-http"}}}}]"#
        );
        for part in [format!(r#""audit_config":{audit},"proxy_mode""#), format!(r#""middleware_configs":{entry}"#)] {
            assert!(written.contains(&part), "{written}\n  lacks {part}");
        }
        assert_eq!(RunConfig::parse(written.as_bytes()).unwrap(), config);
    }
    assert_eq!(serde_json::to_string(&AuditConfig::default()).unwrap(), operators);
    for (audit, is_on) in [("{}", true), (r#"{"enabled":true}"#, true), (r#"{"enabled":false}"#, false)] {
        assert_eq!(asked(&parse(audit)).is_some(), is_on, "{audit}");
    }
    let error = AuditParameters::read(json!({"config_path": "/etc/audit.json"}), "p").unwrap_err();
    assert_eq!(
        error.to_string(),
        "p.config_path: \"/etc/audit.json\" is not read; write what is in it into the document"
    );
}
