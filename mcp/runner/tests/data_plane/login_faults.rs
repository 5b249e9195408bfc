//! The provider is not there, changes its keys, or is where nobody may call.

use std::time::Instant;

use serde_json::json;
use tempfile::TempDir;

use crate::support::{DEADLINE, INITIALIZE, Issuer, Runner, Server, Signer, eventually};

async fn with(runner: &Runner, token: &str) -> u16 {
    runner.post(&[("authorization", &format!("Bearer {token}"))], INITIALIZE).await.status
}

#[tokio::test]
async fn a_provider_that_is_down_at_the_start_makes_callers_come_again_and_is_found_when_it_is_up() {
    let signer = Signer::ec("a");
    let mut issuer = Issuer::stopped(vec![signer.clone()]);
    let server = Server::go().await;
    let runner = Runner::login(&server.url(), &issuer.login(&json!({}))).await;
    let token = signer.sign("ES256", &issuer.claims("alice"));
    let begun = Instant::now();
    let answer = runner.post(&[("authorization", &format!("Bearer {token}"))], INITIALIZE).await;
    assert_eq!(
        (answer.status, answer.body.as_str(), answer.header("www-authenticate")),
        (503, "authentication service temporarily unavailable", None)
    );
    let seconds: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=10).contains(&seconds) && begun.elapsed() < DEADLINE / 2, "{seconds}");
    assert_eq!(runner.post(&[], INITIALIZE).await.status, 401, "who has no token is told so");
    assert_eq!(runner.get("/readyz").await.status, 200);
    issuer.up().await;
    eventually("the provider to be found", || async { (with(&runner, &token).await == 200).then_some(()) }).await;
}

#[tokio::test]
async fn a_key_set_that_is_none_opens_nothing_and_is_replaced_when_it_is_mended() {
    let signer = Signer::ec("a");
    let server = Server::go().await;
    let jwk = signer.jwk();
    for (case, key_set) in [
        ("a page", "<html>".to_owned()),
        ("two lists", format!(r#"{{"keys":[],"keys":[{jwk}]}}"#)),
        ("ten thousand keys", json!({"keys": vec![&jwk; 10_000]}).to_string()),
        ("two mebibytes", format!(r#"{{"keys":[{jwk}],"x":"{}"}}"#, "x".repeat(2 << 20))),
    ] {
        let issuer = Issuer::start(vec![signer.clone()]).await;
        issuer.state().key_set = Some(key_set);
        let runner = Runner::login(&server.url(), &issuer.login(&json!({}))).await;
        let token = signer.sign("ES256", &issuer.claims("alice"));
        assert_eq!(with(&runner, &token).await, 503, "{case}: {}", runner.log());
        issuer.state().key_set = None;
        eventually(case, || async { (with(&runner, &token).await == 200).then_some(()) }).await;
        issuer.state().key_set = Some("<html>".to_owned());
        assert_eq!(with(&runner, &Signer::ec("b").sign("ES256", &issuer.claims("alice"))).await, 401);
        assert_eq!(with(&runner, &token).await, 200, "{case}: the former keys stay in use");
    }
}

#[tokio::test]
async fn a_provider_that_goes_down_later_is_not_missed() {
    let signer = Signer::rsa("a");
    let mut issuer = Issuer::start(vec![signer.clone()]).await;
    let server = Server::go().await;
    let runner = Runner::login(&server.url(), &issuer.login(&json!({}))).await;
    let token = |subject| signer.sign("RS256", &issuer.claims(subject));
    let (alice, bob) = (token("alice"), token("bob"));
    assert_eq!(with(&runner, &alice).await, 200);
    let unknown = Signer::rsa("b").sign("RS256", &issuer.claims("alice"));
    issuer.down().await;
    for (token, status) in [(&alice, 200), (&bob, 200), (&unknown, 401), (&bob, 200), (&alice, 200)] {
        assert_eq!(with(&runner, token).await, status);
    }
    runner.logged("cannot fetch the keys of the OIDC provider").await;
}

#[tokio::test]
async fn keys_that_are_rotated_are_found_at_once_and_withdrawn_ones_open_nothing() {
    let (old, new) = (Signer::ec("old"), Signer::ed("new"));
    let issuer = Issuer::start(vec![old.clone()]).await;
    let server = Server::go().await;
    let runner = Runner::login(&server.url(), &issuer.login(&json!({}))).await;
    let before = old.sign("ES256", &issuer.claims("alice"));
    let after = new.sign("EdDSA", &issuer.claims("alice"));
    assert_eq!(with(&runner, &before).await, 200);
    let fetched = issuer.asked("/keys");
    assert_eq!(fetched, 1, "one fetch serves all");
    issuer.state().keys = vec![new];
    assert_eq!(with(&runner, &after).await, 200, "an unknown kid has the keys fetched again");
    assert_eq!(with(&runner, &before).await, 401, "also a token that was taken before");
    let begun = Instant::now();
    let invented = (0..20).map(|number| Signer::ec(&format!("x{number}")).sign("ES256", &issuer.claims("mallory")));
    for token in invented {
        assert_eq!(with(&runner, &token).await, 401);
    }
    let more = issuer.asked("/keys") - fetched - 1;
    let allowed = usize::try_from(begun.elapsed().as_secs() / 10 + 1).unwrap();
    assert!(more <= allowed, "{more} fetches for invented kids");
}

#[tokio::test]
async fn tokens_of_both_keys_pass_while_the_provider_publishes_both() {
    let (old, new) = (Signer::ec("old"), Signer::ed("new"));
    let issuer = Issuer::start(vec![old.clone()]).await;
    let server = Server::go().await;
    let runner = Runner::login(&server.url(), &issuer.login(&json!({}))).await;
    let before = old.sign("ES256", &issuer.claims("alice"));
    assert_eq!(with(&runner, &before).await, 200);
    issuer.state().keys.push(new.clone());
    assert_eq!(with(&runner, &new.sign("EdDSA", &issuer.claims("alice"))).await, 200);
    assert_eq!(with(&runner, &before).await, 200);
    assert_eq!(with(&runner, &old.sign("ES256", &issuer.claims("bob"))).await, 200, "a token that was not seen before");
}

#[tokio::test]
async fn the_proxys_own_token_is_read_again_when_kubelet_replaces_it() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, "first\n").unwrap();
    let signer = Signer::ec("a");
    let issuer = Issuer::start(vec![signer.clone()]).await;
    let server = Server::go().await;
    let login = issuer.login(&json!({"AuthTokenFile": file}));
    let runner = Runner::login(&server.url(), &login).await;
    assert_eq!(with(&runner, &signer.sign("ES256", &issuer.claims("alice"))).await, 200);
    std::fs::write(&file, "second").unwrap();
    issuer.state().keys.push(Signer::ec("b"));
    assert_eq!(with(&runner, &Signer::ec("c").sign("ES256", &issuer.claims("alice"))).await, 401);
    let shown: Vec<_> = {
        let state = issuer.state();
        state.asked.iter().map(|asked| (asked.path.clone(), asked.headers["authorization"].clone())).collect()
    };
    let metadata = "/realm/.well-known/openid-configuration";
    let expected = [(metadata, "first"), ("/keys", "first"), (metadata, "second"), ("/keys", "second")];
    assert_eq!(shown.len(), expected.len(), "{shown:?}");
    for ((path, value), (expected_path, token)) in shown.iter().zip(expected) {
        assert_eq!((path.as_str(), value.to_str().unwrap()), (expected_path, format!("Bearer {token}").as_str()));
    }
    assert!(!runner.log().contains("second"), "no secret is in the log");
}

#[tokio::test]
async fn an_edit_of_the_authority_reaches_a_running_proxy() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("ca.crt");
    let signer = Signer::ec("a");
    let mut issuer = Issuer::stopped(vec![signer.clone()]);
    std::fs::write(&file, issuer.secure()).unwrap();
    issuer.up().await;
    let server = Server::go().await;
    let runner = Runner::login(&server.url(), &issuer.login(&json!({"CACertPath": file}))).await;
    assert_eq!(with(&runner, &signer.sign("ES256", &issuer.claims("alice"))).await, 200);
    issuer.down().await;
    let other = issuer.secure();
    issuer.up().await;
    let next = Signer::ec("b");
    issuer.state().keys.push(next.clone());
    let token = next.sign("ES256", &issuer.claims("alice"));
    assert_eq!(with(&runner, &token).await, 401, "it is not trusted");
    std::fs::write(&file, other).unwrap();
    eventually("the new authority to be trusted", || async { (with(&runner, &token).await == 200).then_some(()) })
        .await;
}

#[tokio::test]
async fn a_provider_where_nobody_may_call_is_not_called() {
    let signer = Signer::ec("a");
    let issuer = Issuer::start(vec![signer.clone()]).await;
    let server = Server::go().await;
    let login = issuer.login(&json!({"AllowPrivateIP": true}));
    let runner = Runner::http(&server.url(), &json!({"oidc_config": login})).await;
    assert_eq!(with(&runner, &signer.sign("ES256", &issuer.claims("alice"))).await, 503);
    runner.logged("may not be called").await;
    assert!(issuer.state().asked.is_empty());
}
