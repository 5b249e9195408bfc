//! Members of a document that are not known: they have no effect, and are listed for the log.

use mcp_runconfig::RunConfig;
use serde_json::{Value, json};

fn unknown(members: Value) -> Vec<String> {
    let mut document = json!({"name": "demo", "transport": "streamable-http"});
    document.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    RunConfig::parse(document.to_string().as_bytes()).unwrap().unknown_members
}

#[test]
fn unknown_members_are_listed_with_what_was_meant() {
    let hook = json!({"name": "w", "url": "https://w", "failure_policy": "fail", "match": {"tools": ["a"]}});
    let parameters = json!({"webhooks": [hook], "servername": "demo", "servers": 1});
    for (members, expected) in [
        (json!({"validating_webhook": []}), "validating_webhook (did you mean validating_webhooks?)"),
        (json!({"Tool_Filter": []}), "Tool_Filter (did you mean tools_filter?)"),
        (json!({"x_own": {"deep": {"er": 1}}}), "x_own"),
        (json!({"mcp_paths": ["/a"]}), "mcp_paths (did you mean portcullis.mcp_paths?)"),
        (json!({"match": {}}), "match"),
        (json!({"validating_webhooks": [hook]}), "validating_webhooks[0].match (did you mean portcullis.match?)"),
        (json!({"tools_override": {"a.b": {"nam": "c"}}}), "tools_override.a.b.nam (did you mean name?)"),
        (
            json!({"oidc_config": {"Issuer": "https://i", "Audiences": ["a"]}}),
            "oidc_config.Audiences (did you mean Audience?)",
        ),
        (json!({"a\u{1b}[2J\u{202e}": 1}), r"a\u{1b}[2J\u{202e}"),
        (json!({"scaling_config": {"x".repeat(200): 1}}), &format!("scaling_config.{}", "x".repeat(85))),
    ] {
        assert_eq!(unknown(members), [expected]);
    }
    let chain = json!([{"type": "mcp-parser"}, {"type": "validating-webhook", "parameters": parameters}]);
    let expected = [
        "middleware_configs[1].parameters.servers",
        "middleware_configs[1].parameters.webhooks[0].match (did you mean portcullis.match?)",
    ];
    assert_eq!(unknown(json!({"middleware_configs": chain})), expected);
}

#[test]
fn a_list_of_unknown_members_has_an_end() {
    let members: serde_json::Map<_, _> = (0..100).map(|number| (format!("x-{number:02}"), json!(1))).collect();
    let listed = unknown(Value::Object(members));
    assert_eq!((listed.len(), &*listed[15], &*listed[16]), (17, "x-15", "84 more"));
}

#[test]
fn members_that_only_toolhive_reads_are_known() {
    let remote = json!({"bearer_token": "t", "headers": {}, "env_vars": [], "cached_reg_client_uri": "u"});
    let members = json!({
        "registry_url": "u", "secrets": ["a,target=A"], "isolate_network": true, "group": "default", "x": null,
        "remote_auth_config": remote,
    });
    assert_eq!(unknown(members), [""; 0]);
}

#[test]
fn each_member_that_is_led_below_portcullis_is_known_there() {
    for name in [
        "actor_token_file",
        "allow_private_endpoint",
        "mcp_paths",
        "open_paths",
        "rate_limits_fail_closed",
        "shadow_policies",
        "trusted_proxies",
    ] {
        assert_eq!(unknown(json!({name: 1})), [format!("{name} (did you mean portcullis.{name}?)")]);
        assert_eq!(unknown(json!({"portcullis": {name: null}})), [""; 0], "{name}");
    }
}
