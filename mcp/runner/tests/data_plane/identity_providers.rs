//! The `auth` middleware in front of real servers, with tokens of real identity providers.

use portcullis_identity::{INTROSPECTION_CLIENT, Provider};
use serde_json::{Value, json};

use crate::support::{Answer, INITIALIZE, Runner, SdkClient, Server, eventually};

/// What the server is called by those who give tokens for it, and by those who ask for them.
const RESOURCE: &str = "http://weather.example/mcp";

/// The login that a document asks for, with `members` over it.
pub(crate) fn login(provider: &Provider, members: &Value) -> Value {
    let mut config = json!({
        "Issuer": provider.issuer(), "Audience": RESOURCE, "JWKSURL": "", "ClientID": "", "ClientSecret": "",
        "CACertPath": "", "AuthTokenFile": "", "AllowPrivateIP": false, "InsecureAllowHTTP": true,
        "IntrospectionURL": "", "ResourceURL": RESOURCE, "Scopes": ["weather:read"],
    });
    for (name, value) in members.as_object().unwrap() {
        config[name] = value.clone();
    }
    json!({
        "oidc_config": config,
        "middleware_configs": [
            {"type": "bodylimit", "parameters": {"max_bytes": 8_388_608}},
            {"type": "auth", "parameters": {"oidc_config": config}},
            {"type": "mcp-parser", "parameters": {}},
            {"type": "recovery", "parameters": null},
        ],
    })
}

/// A runner in front of `server`, for callers whom `provider` knows.
async fn guarded(server: &Server, provider: &Provider, members: &Value, environment: &[(&str, &str)]) -> Runner {
    let flags = ["--backend".into(), server.url().into(), "--allow-endpoint-cidr".into(), "127.0.0.0/8".into()];
    Runner::start("streamable-http", &login(provider, members), &flags, environment).await
}

async fn initialize(runner: &Runner, token: Option<&str>) -> Answer {
    let bearer = token.map(|token| format!("Bearer {token}"));
    let headers: Vec<_> = bearer.iter().map(|bearer| ("authorization", bearer.as_str())).collect();
    runner.post(&headers, INITIALIZE).await
}

async fn refused(runner: &Runner, token: Option<&str>, error: &str) -> Answer {
    let answer = initialize(runner, token).await;
    assert_eq!(answer.status, 401, "{token:?}: {answer:?}");
    assert_eq!(answer.message()["error"], error, "{token:?}: {answer:?}");
    let challenge = answer.header("www-authenticate").unwrap();
    assert!(challenge.contains(&format!("error=\"{error}\"")), "{challenge}");
    answer
}

/// The value of a parameter of a challenge (RFC 9110, section 11.6.1).
fn parameter<'a>(challenge: &'a str, name: &str) -> &'a str {
    let (_, rest) = challenge.split_once(&format!("{name}=\"")).unwrap_or_else(|| panic!("{challenge}"));
    rest.split('"').next().unwrap()
}

/// What a client without a token does (RFC 9728, section 5): it reads where the server's metadata are, and there, who gives tokens.
async fn finds_the_issuer(runner: &Runner, provider: &Provider) {
    let answer = refused(runner, None, "invalid_request").await;
    let challenge = answer.header("www-authenticate").unwrap();
    assert_eq!(parameter(challenge, "realm"), provider.issuer());
    let metadata = parameter(challenge, "resource_metadata");
    assert_eq!(metadata, "http://weather.example/.well-known/oauth-protected-resource/mcp");
    let found = runner.get(metadata.strip_prefix("http://weather.example").unwrap()).await;
    assert_eq!(found.status, 200, "{found:?}");
    let document = found.message();
    assert_eq!(document["resource"], RESOURCE);
    assert_eq!(document["authorization_servers"], json!([provider.issuer()]));
    assert_eq!(document["scopes_supported"], json!(["weather:read"]));
}

async fn opens_for_its_own_audience_alone(provider: &Provider) {
    let server = Server::go().await;
    let runner = guarded(&server, provider, &json!({}), &[]).await;
    finds_the_issuer(&runner, provider).await;
    refused(&runner, Some(&provider.token("http://another.example/mcp").await.unwrap()), "invalid_token").await;

    let token = provider.token(RESOURCE).await.unwrap();
    let mut client = SdkClient::connect_as(&runner.url(), &token).await;
    assert_eq!(client.call("greet", json!({"name": "Ada"})).await, "Hi Ada");
    assert!(!runner.log().contains(&token), "the log holds a token");
}

#[tokio::test]
async fn a_token_of_zitadels_provider_opens_the_server_that_it_is_for() {
    opens_for_its_own_audience_alone(&Provider::zitadel().await.unwrap()).await;
}

#[tokio::test]
async fn a_token_of_oidc_provider_opens_the_server_that_it_is_for() {
    opens_for_its_own_audience_alone(&Provider::oidc_provider().await.unwrap()).await;
}

#[tokio::test]
async fn an_opaque_token_is_introspected_where_the_document_says_how() {
    let (server, provider) = (Server::go().await, Provider::oidc_provider().await.unwrap());
    let token = provider.opaque_token(RESOURCE).await.unwrap();
    let without = guarded(&server, &provider, &json!({}), &[]).await;
    refused(&without, Some(&token), "invalid_token").await;

    let endpoint = provider.discovery().await.unwrap()["introspection_endpoint"].clone();
    let introspection = json!({"IntrospectionURL": endpoint, "ClientID": INTROSPECTION_CLIENT.id});
    let secret = [("TOOLHIVE_OIDC_CLIENT_SECRET", INTROSPECTION_CLIENT.secret)];
    let runner = guarded(&server, &provider, &introspection, &secret).await;
    let mut client = SdkClient::connect_as(&runner.url(), &token).await;
    assert_eq!(client.call("greet", json!({"name": "Ada"})).await, "Hi Ada");
    refused(&runner, Some("not-a-token-of-anyone"), "invalid_token").await;
    let another = provider.opaque_token("http://another.example/mcp").await.unwrap();
    refused(&runner, Some(&another), "invalid_token").await;
    assert!(!runner.log().contains(INTROSPECTION_CLIENT.secret), "the log holds the client's secret");
}

#[tokio::test]
async fn a_provider_that_comes_back_with_other_keys_is_believed_and_its_former_key_no_more() {
    let (server, mut provider) = (Server::go().await, Provider::zitadel().await.unwrap());
    let runner = guarded(&server, &provider, &json!({}), &[]).await;
    let before = provider.token(RESOURCE).await.unwrap();
    assert_eq!(initialize(&runner, Some(&before)).await.status, 200);
    provider.rotate_keys().await.unwrap();
    let after = provider.token(RESOURCE).await.unwrap();
    eventually("a token signed with the new key to pass", || async {
        (initialize(&runner, Some(&after)).await.status == 200).then_some(())
    })
    .await;
    refused(&runner, Some(&before), "invalid_token").await;
}
