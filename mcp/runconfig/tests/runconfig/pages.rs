//! The documents that the pages show are read, and no member of them is unknown.

use mcp_runconfig::{OidcConfig, RunConfig};
use serde_json::{Value, json};

const LOGIN: &str = include_str!("../../../../docs/src/reference/login.md");
const WEBHOOKS: &str = include_str!("../../../../docs/src/reference/request-webhooks.md");

/// The blocks of a page in JSON that have this member.
fn shown(page: &str, member: &str) -> Vec<Value> {
    let blocks = page.split("\n```json\n").skip(1).map(|rest| rest.split("\n```").next().unwrap());
    let blocks =
        blocks.map(|block| serde_json::from_str::<Value>(block).unwrap_or_else(|error| panic!("{error}: {block}")));
    blocks.filter(|block| block.get(member).is_some()).collect()
}

fn read(mut document: Value) -> RunConfig {
    for (member, value) in [("name", "demo"), ("transport", "streamable-http")] {
        document[member] = value.into();
    }
    let config = RunConfig::parse(document.to_string().as_bytes()).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(config.unknown_members, [""; 0]);
    config
}

#[test]
fn the_page_of_logins_shows_every_member() {
    let [document] = shown(LOGIN, "oidc_config").try_into().unwrap();
    let names = |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
    assert_eq!(names(&document["oidc_config"]), names(&json!(OidcConfig::default())));
    let oidc = read(document).oidc_config.unwrap();
    let example = "https://mcp.example.com/mcp";
    assert_eq!((&*oidc.audience, &*oidc.resource_url, oidc.scopes.len()), (example, example, 1));
}

#[test]
fn the_members_of_a_login_may_be_in_snake_case() {
    let oidc = json!({
        "issuer": "https://i", "audience": "a", "jwks_url": "https://i/keys", "client_id": "c", "ca_cert_path": "/ca",
        "auth_token_file": "/token", "allow_private_ip": true, "insecure_allow_http": true,
        "introspection_url": "https://i/ask", "resource_url": "https://r", "scopes": ["s"],
    });
    let read = read(json!({"oidc_config": oidc})).oidc_config.unwrap();
    let expected = OidcConfig {
        issuer: "https://i".into(),
        audience: "a".into(),
        jwks_url: "https://i/keys".into(),
        client_id: "c".into(),
        client_secret: String::new(),
        ca_cert_path: "/ca".into(),
        auth_token_file: "/token".into(),
        allow_private_ip: true,
        insecure_allow_http: true,
        introspection_url: "https://i/ask".into(),
        resource_url: "https://r".into(),
        scopes: vec!["s".into()],
    };
    assert_eq!(read, expected);
    let twice = json!({"name": "d", "transport": "sse", "oidc_config": {"JWKSURL": "a", "jwks_url": "b"}}).to_string();
    let error = RunConfig::parse(twice.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("is the same member"), "{error}");
}

#[test]
fn the_page_of_webhooks_shows_tls_and_where_selectors_stand() {
    let [local, secure] = shown(WEBHOOKS, "validating_webhooks").try_into().unwrap();
    assert!(read(local).validating_webhooks[0].tls_config.as_ref().unwrap().insecure_skip_verify);
    let config = read(secure);
    let webhook = &config.validating_webhooks[0];
    assert_eq!(webhook.tls_config.as_ref().unwrap().ca_bundle_path, "/certs/ca.crt");
    assert!(webhook.portcullis.r#match.tools.is_some() && webhook.problems().is_empty());
}
