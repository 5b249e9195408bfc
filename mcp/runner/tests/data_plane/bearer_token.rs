//! The proxy's own token at a remote server.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Echo, Issuer, Runner, Signer, eventually};

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

async fn remote(server: &Echo, members: &Value, environment: &[(&str, &str)]) -> Runner {
    let mut members = members.clone();
    members["remote_url"] = json!(format!("{}/mcp", server.url()));
    Runner::start("streamable-http", &members, &["--allow-endpoint-cidr", "127.0.0.0/8"].map(Into::into), environment)
        .await
}

#[tokio::test]
async fn a_remote_server_gets_the_proxys_token_and_not_the_callers() {
    let signer = Signer::ec("ec");
    let (issuer, server) = (Issuer::start(vec![signer.clone()]).await, Echo::start().await);
    let members = json!({
        "oidc_config": issuer.login(&json!({})), "remote_auth_config": {"bearer_token": "upstream-token,target=bearer_token"},
    });
    let environment = [("TOOLHIVE_SECRETS_PROVIDER", "environment"), ("TOOLHIVE_SECRET_upstream-token", "s3cr3t\n")];
    let runner = remote(&server, &members, &environment).await;
    let bearer = format!("Bearer {}", signer.sign("ES256", &issuer.claims("alice")));
    let answer = runner.post(&[("authorization", &bearer)], PING).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(runner.post(&[], PING).await.status, 401, "who does not log in");
    assert_eq!(server.got("authorization"), [Some("Bearer s3cr3t".to_owned())]);
    assert!(!runner.log().contains("s3cr3t"), "the token is in the log");
}

#[tokio::test]
async fn a_token_in_a_file_is_used_as_it_is_now() {
    let (server, folder) = (Echo::start().await, TempDir::new().unwrap());
    let file = folder.path().join("token");
    std::fs::write(&file, "one\n").unwrap();
    let runner = remote(&server, &json!({"remote_auth_config": {"bearer_token_file": file}}), &[]).await;
    let shown = async || {
        let answer = runner.post(&[], PING).await;
        (answer.status == 200).then(|| server.got("authorization").pop().flatten().unwrap())
    };
    assert_eq!(shown().await.as_deref(), Some("Bearer one"));
    std::fs::write(&file, "two\n").unwrap();
    eventually("the new token", || async { shown().await.filter(|token| token == "Bearer two") }).await;
    std::fs::remove_file(&file).unwrap();
    eventually("the loss of the file", || async { shown().await.is_none().then_some(()) }).await;
    let answer = runner.post(&[], PING).await;
    let expected = (502, "The proxy's login at the server failed");
    assert_eq!((answer.status, &*answer.body), expected, "no request goes on without it");
}
