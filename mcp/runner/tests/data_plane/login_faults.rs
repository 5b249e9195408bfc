//! The provider is not there, changes its keys, or is where nobody may call.

use std::time::Instant;

use serde_json::json;
use tempfile::TempDir;

use crate::support::{Answer, INITIALIZE, Issuer, Runner, Server, Signer, eventually, unavailable};

async fn with(runner: &Runner, token: &str) -> Answer {
    runner.post(&[("authorization", &format!("Bearer {token}"))], INITIALIZE).await
}

async fn passes(runner: &Runner, token: &str) -> bool {
    with(runner, token).await.status == 200
}

#[tokio::test]
async fn a_provider_that_is_down_at_the_start_makes_callers_come_again_and_is_found_when_it_is_up() {
    let signer = Signer::ec("a");
    let mut issuer = Issuer::stopped(vec![signer.clone()]);
    let server = Server::go().await;
    let runner = Runner::login(&server.url(), &issuer.login(&json!({}))).await;
    let token = signer.sign("ES256", &issuer.claims("alice"));
    unavailable("down at the start", &with(&runner, &token).await);
    let answer = runner.post(&[], INITIALIZE).await;
    issuer.refused("no header", &answer, "invalid_request", "authorization header required");
    runner.ready().await;
    issuer.up().await;
    eventually("the provider to be found", || async { passes(&runner, &token).await.then_some(()) }).await;
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
        unavailable(case, &with(&runner, &token).await);
        issuer.state().key_set = None;
        eventually(case, || async { passes(&runner, &token).await.then_some(()) }).await;
        issuer.state().key_set = Some("<html>".to_owned());
        let unknown = Signer::ec("b").sign("ES256", &issuer.claims("alice"));
        issuer.invalid(case, &with(&runner, &unknown).await);
        assert!(passes(&runner, &token).await, "{case}: the former keys stay in use");
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
    assert!(passes(&runner, &alice).await);
    let unknown = Signer::rsa("b").sign("RS256", &issuer.claims("alice"));
    issuer.down().await;
    for token in [&alice, &bob] {
        assert!(passes(&runner, token).await);
    }
    issuer.invalid("unknown kid", &with(&runner, &unknown).await);
    for token in [&bob, &alice] {
        assert!(passes(&runner, token).await);
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
    assert!(passes(&runner, &before).await);
    let fetched = issuer.asked("/keys");
    assert_eq!(fetched, 1, "one fetch serves all");
    issuer.state().keys = vec![new];
    assert!(passes(&runner, &after).await, "an unknown kid has the keys fetched again");
    issuer.invalid("a token that was taken before", &with(&runner, &before).await);
    let nameless = issuer.state().keys[0].sign_with("EdDSA", &json!({"alg": "EdDSA"}), &issuer.claims("bob"));
    assert!(passes(&runner, &nameless).await, "a token without kid is verified with the only key that fits");
    let begun = Instant::now();
    let invented = (0..20).map(|number| Signer::ec(&format!("x{number}")).sign("ES256", &issuer.claims("mallory")));
    for token in invented {
        issuer.invalid("an invented kid", &with(&runner, &token).await);
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
    assert!(passes(&runner, &before).await);
    issuer.state().keys.push(new.clone());
    assert!(passes(&runner, &new.sign("EdDSA", &issuer.claims("alice"))).await);
    assert!(passes(&runner, &before).await);
    assert!(passes(&runner, &old.sign("ES256", &issuer.claims("bob"))).await, "a token that was not seen before");
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
    assert!(passes(&runner, &signer.sign("ES256", &issuer.claims("alice"))).await);
    std::fs::write(&file, "second").unwrap();
    issuer.state().keys.push(Signer::ec("b"));
    let unknown = Signer::ec("c").sign("ES256", &issuer.claims("alice"));
    issuer.invalid("unknown kid", &with(&runner, &unknown).await);
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
    assert!(passes(&runner, &signer.sign("ES256", &issuer.claims("alice"))).await);
    issuer.down().await;
    let other = issuer.secure();
    issuer.up().await;
    let next = Signer::ec("b");
    issuer.state().keys.push(next.clone());
    let token = next.sign("ES256", &issuer.claims("alice"));
    issuer.invalid("it is not trusted", &with(&runner, &token).await);
    std::fs::write(&file, other).unwrap();
    eventually("the new authority to be trusted", || async { passes(&runner, &token).await.then_some(()) }).await;
}

#[tokio::test]
async fn a_provider_where_nobody_may_call_is_not_called() {
    let signer = Signer::ec("a");
    let issuer = Issuer::start(vec![signer.clone()]).await;
    let server = Server::go().await;
    let login = issuer.login(&json!({"AllowPrivateIP": true}));
    let runner = Runner::http(&server.url(), &json!({"oidc_config": login})).await;
    unavailable("not called", &with(&runner, &signer.sign("ES256", &issuer.claims("alice"))).await);
    runner.logged("may not be called").await;
    assert!(issuer.state().asked.is_empty());
}
