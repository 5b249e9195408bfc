//! The token that the proxy gets for itself at the provider of a remote server.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::future::join_all;
use portcullis_identity::Provider;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Answer, Echo, Issuer, Runner, encode, eventually, exchanged};

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

/// A runner before the remote `server` whose document has these members of `remote_auth_config`.
async fn remote(server: &Echo, members: &Value) -> Runner {
    let document = json!({
        "remote_url": format!("{}/mcp", server.url()), "remote_auth_config": members, "middleware_configs": [],
    });
    Runner::start("streamable-http", &document, &["--allow-endpoint-cidr", "127.0.0.0/8"].map(Into::into), &[]).await
}

/// A client at `issuer`, with `members` over it.
fn client(issuer: &Issuer, members: &Value) -> Value {
    let token_url = format!("http://{}/token", issuer.address);
    let mut client = json!({"client_id": "me", "client_secret": "s3cr3t", "token_url": token_url});
    client.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    client
}

async fn ping(runner: &Runner) -> Answer {
    runner.post(&[("authorization", "Bearer of-the-caller")], PING).await
}

/// The credentials and the form of the last question.
fn last(issuer: &Issuer) -> (Option<String>, String) {
    let state = issuer.state();
    let asked = state.asked.last().unwrap();
    let credentials = asked.headers.get("authorization").map(|value| value.to_str().unwrap().to_owned());
    (credentials, asked.form.clone())
}

#[tokio::test]
async fn all_callers_share_one_token_of_the_proxys_client() {
    let (issuer, server) = (Issuer::start(Vec::new()).await, Echo::start().await);
    let members = json!({
        "scopes": ["read", "write"], "resource": "https://mcp.example/mcp", "oauth_params": {"audience": "backend"},
    });
    let runner = remote(&server, &client(&issuer, &members)).await;
    for answer in join_all((0..50).map(|_| ping(&runner))).await {
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    assert_eq!(issuer.asked("/token"), 1);
    let form =
        "grant_type=client_credentials&scope=read+write&resource=https%3A%2F%2Fmcp.example%2Fmcp&audience=backend";
    assert_eq!(last(&issuer), (Some("Basic bWU6czNjcjN0".to_owned()), form.to_owned()));
    let got = server.got("authorization");
    assert!(got.len() == 50 && got.iter().all(|value| value.as_deref() == Some("Bearer for-the-server")), "{got:?}");
}

#[tokio::test]
async fn a_client_at_a_real_provider_gets_a_token() {
    let (provider, server) = (Provider::oidc_provider().await.unwrap(), Echo::start().await);
    let endpoint = provider.discovery().await.unwrap()["token_endpoint"].clone();
    let resource = "http://backend.example/mcp";
    let of = |secret: &str| json!({"client_id": "caller", "client_secret": secret, "token_url": endpoint, "resource": resource});
    let runner = remote(&server, &of("caller-secret")).await;
    assert_eq!(ping(&runner).await.status, 200, "{}", runner.log());
    let token = server.got("authorization").pop().flatten().unwrap();
    assert!(token.starts_with("Bearer ey"), "it is a JWT");
    let runner = remote(&server, &of("wrong")).await;
    assert_eq!(ping(&runner).await.status, 502);
    runner.logged("invalid_client").await;
}

#[tokio::test]
async fn a_failure_for_the_proxys_own_token_blames_no_caller() {
    let (mut issuer, server) = (Issuer::start(Vec::new()).await, Echo::start().await);
    let runner = remote(&server, &client(&issuer, &json!({"oauth_params": {"audience": "backend"}}))).await;
    let error = |status: u16, error: &str| (status, json!({"error": error, "error_description": "s3cr3t"}));
    let others = format!("e30.{}.c2ln", encode(br#"{"aud":"other"}"#));
    for (case, answer, expected) in [
        ("the wrong secret", error(401, "invalid_client"), 502),
        ("no such grant", error(400, "unauthorized_client"), 502),
        ("refused", error(400, "invalid_grant"), 502),
        ("denied", error(403, "access_denied"), 502),
        ("a scope", error(400, "invalid_scope"), 502),
        ("a token for another audience", (200, exchanged(&json!({"access_token": others}))), 502),
        ("a token that has expired", (200, exchanged(&json!({"expires_in": 0}))), 502),
        ("no token", (200, json!({})), 502),
        ("too many questions", error(429, "slow_down"), 503),
        ("an outage", error(500, ""), 503),
    ] {
        issuer.state().exchange = Some(answer);
        let answer = ping(&runner).await;
        assert_eq!((answer.status, answer.header("www-authenticate")), (expected, None), "{case}: {answer:?}");
        assert_eq!(answer.header("retry-after"), (expected == 503).then_some("1"), "{case}");
    }
    issuer.down().await;
    assert_eq!(ping(&runner).await.status, 503, "reset");
    assert!(server.got("authorization").is_empty(), "no request reached the server");
    issuer.up().await;
    // RFC 6749 has no type of an issued token.
    issuer.state().exchange = Some((200, json!({"access_token": "t", "token_type": "bearer", "expires_in": 60})));
    assert_eq!(ping(&runner).await.status, 200);
    assert_eq!(server.got("authorization"), [Some("Bearer t".to_owned())]);
    let log = runner.log();
    assert!(!log.contains("s3cr3t") && !log.contains("Bearer t"), "{log}");
}

#[tokio::test]
async fn a_rotated_secret_of_the_proxys_client_is_used() {
    let (issuer, server, folder) = (Issuer::start(Vec::new()).await, Echo::start().await, TempDir::new().unwrap());
    let file = folder.path().join("secret");
    std::fs::write(&file, "before\n").unwrap();
    let members = json!({"client_secret": "", "client_secret_file": file});
    // Each call needs another token.
    issuer.state().exchange = Some((200, exchanged(&json!({"expires_in": 0.001}))));
    let runner = remote(&server, &client(&issuer, &members)).await;
    let credentials = |secret: &str| Some(format!("Basic {}", STANDARD.encode(format!("me:{secret}"))));
    assert_eq!(ping(&runner).await.status, 200, "{}", runner.log());
    assert_eq!(last(&issuer).0, credentials("before"));
    std::fs::write(&file, "after\n").unwrap();
    eventually("the new secret", || async {
        assert_eq!(ping(&runner).await.status, 200);
        (last(&issuer).0 == credentials("after")).then_some(())
    })
    .await;
    std::fs::remove_file(&file).unwrap();
    eventually("the loss of the secret", || async { (ping(&runner).await.status == 502).then_some(()) }).await;
}
