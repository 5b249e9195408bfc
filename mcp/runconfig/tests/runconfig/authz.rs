//! The members for authorization, as ToolHive's operator writes them (golden 08, 10 and 11).

use mcp_runconfig::{
    AuthorizationParameters, AuthzConfig, AuthzKind, CedarConfig, ClaimMapping, Parameters as _, PdpConfig,
};
use serde_json::{Value, json};

/// Members from a workload's own spec, in the order of ToolHive's types.
const INLINE: [&str; 2] = [
    r#"{"version":"1.0","type":"cedarv1","cedar":{"policies":["permit(principal, action == Action::\"call_tool\", resource == Tool::\"say\");"],"entities_json":"[]"}}"#,
    r#"{"version":"1.0","type":"cedarv1","cedar":{"policies":["permit(principal in Team::\"ops\", action, resource);"],"entities_json":"[{\"uid\":{\"type\":\"Team\",\"id\":\"ops\"},\"attrs\":{},\"parents\":[]}]","group_claim_name":"groups","role_claim_name":"roles","group_entity_type":"Team"}}"#,
];
/// Members from a ConfigMap or a MCPAuthzConfig, in the order of names.
const SORTED: [&str; 3] = [
    r#"{"cedar":{"entities_json":"[{\"uid\":{\"type\":\"THVGroup\",\"id\":\"admins\"},\"attrs\":{},\"parents\":[]}]","group_claim_name":"groups","policies":["permit(principal, action == Action::\"call_tool\", resource == Tool::\"say\");","permit(principal in THVGroup::\"admins\", action, resource);"]},"type":"cedarv1","version":"1.0"}"#,
    r#"{"cedar":{"entities_json":"[]","policies":["permit(principal, action == Action::\"call_tool\", resource == Tool::\"echo\");","forbid(principal, action, resource == Tool::\"rm\");"]},"type":"cedarv1","version":"1.0"}"#,
    r#"{"pdp":{"claim_mapping":"standard","context":{"include_args":true,"include_operation":true},"http":{"timeout":10,"url":"https://pdp.golden.svc:9000/decide"}},"type":"httpv1","version":"1.0"}"#,
];

#[test]
fn upstreams_members_are_read_and_written_back_to_the_byte() {
    for (texts, sorted) in [(&INLINE[..], false), (&SORTED, true)] {
        for text in texts {
            let parameters = json!({"config_data": serde_json::from_str::<Value>(text).unwrap()});
            let parameters = AuthorizationParameters::read(parameters, "").unwrap();
            let config = AuthzConfig { sorted, ..parameters.config_data.unwrap() };
            assert_eq!(config.check(), Ok(()), "{text}");
            assert_eq!(serde_json::to_string(&config).unwrap(), *text);
        }
    }
    let built = AuthzConfig::of_policies(CedarConfig {
        policies: vec![r#"permit(principal, action == Action::"call_tool", resource == Tool::"say");"#.to_owned()],
        entities_json: "[]".to_owned(),
        ..CedarConfig::default()
    });
    assert_eq!(serde_json::to_string(&built).unwrap(), INLINE[0]);
    let pdp: AuthzConfig = serde_json::from_str(SORTED[2]).unwrap();
    let PdpConfig { claim_mapping, http, .. } = pdp.pdp.unwrap();
    assert_eq!((pdp.kind, claim_mapping, http.unwrap().timeout), (AuthzKind::Http, Some(ClaimMapping::Standard), 10));
}

#[test]
fn what_a_type_needs_is_not_left_out() {
    for (document, field) in [
        (json!({"type": "cedarv1"}), "cedar"),
        (json!({"type": "cedarv1", "pdp": {}}), "cedar"),
        (json!({"type": "cedarv1", "cedar": {}}), "cedar.policies"),
        (json!({"type": "cedarv1", "cedar": {"policies": []}}), "cedar.policies"),
        (json!({"type": "httpv1", "cedar": {"policies": ["x"]}}), "pdp"),
        (json!({"type": "httpv1", "pdp": {}}), "pdp.http.url"),
        (json!({"type": "httpv1", "pdp": {"http": {"url": ""}}}), "pdp.http.url"),
        (json!({"type": "httpv1", "pdp": {"http": {"url": "http://x"}}}), "pdp.claim_mapping"),
    ] {
        let config = AuthzConfig::read(document.clone(), "").unwrap();
        assert_eq!(config.check().unwrap_err().field, field, "{document}");
    }
}

#[test]
fn words_that_are_not_known_are_refused_with_their_member() {
    for (document, field) in [
        (json!({"config_data": {"type": "opa"}}), "config_data.type"),
        (json!({"config_data": {"type": "cedarv1", "cedar": {"policies": "permit"}}}), "config_data.cedar.policies"),
        (
            json!({"config_data": {"type": "httpv1", "pdp": {"claim_mapping": "other"}}}),
            "config_data.pdp.claim_mapping",
        ),
        (json!({"config_data": {"type": "httpv1", "pdp": {"http": {"timeout": -1}}}}), "config_data.pdp.http.timeout"),
        (json!({"config_path": "/etc/toolhive/authz.json"}), "config_path"),
    ] {
        let problem = AuthorizationParameters::read(document.clone(), "").unwrap_err();
        assert_eq!(problem.field, field, "{document}: {problem}");
    }
}
