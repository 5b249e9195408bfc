//! The exchange of callers' tokens: what fails, what callers are told then, and what asks the provider for nothing.

use std::fs::write;
use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::support::{Answer, Echo, Issuer, Recorder, Runner, Signer, encode, eventually, exchanged};

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

struct Exchanging {
    issuer: Issuer,
    server: Echo,
    runner: Runner,
    signer: Signer,
    token: String,
}

impl Exchanging {
    /// A runner whose callers log in at a provider that exchanges tokens, with `members` over its document.
    async fn start(members: &Value, environment: &[(&str, &str)]) -> Self {
        let signer = Signer::ec("ec");
        let (issuer, server) = (Issuer::start(vec![signer.clone()]).await, Echo::start().await);
        let exchange =
            json!({"token_url": format!("http://{}/token", issuer.address), "client_id": "c", "audience": "backend"});
        let mut document = json!({
            "oidc_config": issuer.login(&json!({})), "token_exchange_config": exchange, "middleware_configs": [],
        });
        document.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        let flags = ["--backend", &server.url(), "--allow-endpoint-cidr", "127.0.0.0/8"].map(Into::into);
        let runner = Runner::start("streamable-http", &document, &flags, environment).await;
        let token = signer.sign("ES256", &issuer.claims("alice"));
        Self { issuer, server, runner, signer, token }
    }

    async fn call(&self, body: &str) -> Answer {
        self.runner.post(&[("authorization", &format!("Bearer {}", self.token))], body).await
    }

    fn forms(&self) -> Vec<String> {
        let state = self.issuer.state();
        state.asked.iter().filter(|asked| asked.path == "/token").map(|asked| asked.form.clone()).collect()
    }
}

#[tokio::test]
async fn each_answer_of_the_provider_has_its_status() {
    let mut it = Exchanging::start(&json!({}), &[("TOOLHIVE_TOKEN_EXCHANGE_CLIENT_SECRET", "s3cr3t")]).await;
    let error = |status: u16, error: &str| (status, json!({"error": error, "error_description": "s3cr3t"}));
    let others = format!("e30.{}.c2ln", encode(br#"{"aud":"other"}"#));
    let (refused, unusable) = ((401, "Token exchange failed"), (502, "Token exchange failed"));
    let unavailable = (503, "Token exchange temporarily unavailable");
    for (case, answer, expected) in [
        ("expired or revoked", error(400, "invalid_request"), refused),
        ("refused", error(400, "invalid_grant"), refused),
        ("denied", error(403, "access_denied"), (403, "Token exchange failed")),
        ("the wrong client", error(401, "invalid_client"), unusable),
        ("an audience that nobody may ask for", error(400, "invalid_target"), unusable),
        ("a token for another audience", (200, exchanged(&json!({"access_token": others}))), unusable),
        ("a token that has expired", (200, exchanged(&json!({"expires_in": 0}))), unusable),
        ("no token", (200, json!({})), unusable),
        ("too many exchanges", error(429, "slow_down"), unavailable),
        ("an outage", error(500, ""), unavailable),
    ] {
        it.issuer.state().exchange = Some(answer);
        let answer = it.call(PING).await;
        assert_eq!((answer.status, &*answer.body), expected, "{case}: {answer:?}");
        let challenge = answer.header("www-authenticate");
        assert_eq!(
            challenge.is_some_and(|it| it.contains("invalid_token")),
            answer.status == 401,
            "{case}: {challenge:?}"
        );
        let challenged = challenge.is_none_or(|it| it.contains("resource_metadata="));
        assert!(challenged, "{case}: a client learns where tokens come from");
        assert_eq!(answer.header("retry-after"), (answer.status == 503).then_some("1"), "{case}");
    }
    it.runner.logged("client_secret=true").await;
    it.issuer.down().await;
    let answer = it.call(PING).await;
    assert_eq!((answer.status, &*answer.body), unavailable, "reset: {answer:?}");
    assert!(it.server.got("authorization").is_empty(), "no request reached the server");
    it.issuer.up().await;
    it.issuer.state().exchange = None;
    assert_eq!(it.call(PING).await.status, 200);
    assert_eq!(it.server.got("authorization"), [Some("Bearer for-the-server".to_owned())]);
    let log = it.runner.log();
    assert!(!log.contains("s3cr3t") && !log.contains(&it.token) && !log.contains("for-the-server"), "{log}");
}

#[tokio::test]
async fn a_refused_call_asks_the_provider_for_nothing() {
    let policies = json!(["permit(principal, action == Action::\"call_tool\", resource == Tool::\"good\");"]);
    let members = json!({
        "tools_filter": ["good", "bad"],
        "authz_config": {"version": "1.0", "type": "cedarv1", "cedar": {"policies": policies, "entities_json": "[]"}},
    });
    let it = Exchanging::start(&members, &[]).await;
    it.runner.logged("client_secret=false").await;
    let call = |tool: &str| format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}"}}}}"#);
    for (case, body) in [("filtered", call("other")), ("forbidden", call("bad")), ("no message", "{".to_owned())] {
        let answer = it.call(&body).await;
        assert!(answer.status >= 400 || answer.body.contains("error"), "{case}: {answer:?}");
        assert_eq!((it.issuer.asked("/token"), it.server.got("host").len()), (0, 0), "{case}");
    }
    let answer = it.runner.post(&[("authorization", "Bearer a.b.c")], &call("good")).await;
    assert_eq!((answer.status, it.issuer.asked("/token")), (401, 0), "who is not known");
    assert_eq!(it.call(&call("good")).await.status, 200);
    assert_eq!((it.issuer.asked("/token"), it.server.got("host").len()), (1, 1));
}

#[tokio::test]
async fn one_principals_exchanges_leave_the_provider_to_others() {
    const SHARE: usize = 8;
    let mut provider = Recorder::start().await;
    let exchange = json!({"token_url": provider.url(), "client_id": "c"});
    let it = Arc::new(Exchanging::start(&json!({"token_exchange_config": exchange}), &[]).await);
    let call = |token: String| {
        let it = Arc::clone(&it);
        async move { it.runner.post(&[("authorization", &format!("Bearer {token}"))], PING).await }
    };
    let mut calls = JoinSet::new();
    for number in 0..2 * SHARE {
        let mut claims = it.issuer.claims("mallory");
        claims["jti"] = json!(number);
        calls.spawn(call(it.signer.sign("ES256", &claims)));
    }
    let mut asked = Vec::new();
    while asked.len() < SHARE {
        asked.push(provider.next().await);
    }
    calls.spawn(call(it.token.clone()));
    let of_alice = provider.next().await;
    assert!(String::from_utf8_lossy(&of_alice.body).contains(&it.token), "it is not one more of Mallory's");
    of_alice.json("200 OK", "", &exchanged(&json!({})).to_string()).await;
    assert_eq!(calls.join_next().await.unwrap().unwrap().status, 200);
    assert!(provider.is_quiet());
    let metrics = it.runner.get("/metrics").await.body;
    assert!(metrics.contains("bound_used_ratio{bound=\"token_exchanges\"} 0.125"), "{metrics}");
}

#[tokio::test]
async fn a_request_without_a_token_does_not_go_on() {
    let it = Exchanging::start(&json!({"oidc_config": null}), &[]).await;
    let answer = it.runner.post(&[], PING).await;
    assert_eq!((answer.status, &*answer.body), (401, "Bearer token required"));
    assert_eq!((it.issuer.asked("/token"), it.server.got("host").len()), (0, 0));
    assert_eq!(it.runner.post(&[("authorization", "Bearer anything")], PING).await.status, 200);
}

#[tokio::test]
async fn no_secret_is_in_a_log_or_an_event_of_audit() {
    let folder = TempDir::new().unwrap();
    let actor = folder.path().join("actor");
    write(&actor, "of-the-actor").unwrap();
    let members = json!({
        "audit_config": {"includeRequestData": true, "includeResponseData": true},
        "portcullis": {"actor_token_file": actor},
    });
    let it = Exchanging::start(&members, &[("TOOLHIVE_TOKEN_EXCHANGE_CLIENT_SECRET", "s3cr3t")]).await;
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"say"}}"#;
    it.issuer.state().exchange = Some((400, json!({"error": "invalid_grant", "error_description": &it.token})));
    assert_eq!(it.call(call).await.status, 401);
    it.issuer.state().exchange = None;
    assert_eq!(it.call(call).await.status, 200);
    eventually("both events", || async { (it.runner.output().lines().count() == 2).then_some(()) }).await;
    let text = [it.runner.output(), it.runner.log()].concat();
    assert!(text.contains("the token endpoint answers 400 Bad Request: invalid_grant"), "{text}");
    for secret in ["s3cr3t", "for-the-server", "of-the-actor", &it.token] {
        assert!(!text.contains(secret), "{secret} is in {text}");
    }
}

#[tokio::test]
async fn the_provider_is_told_of_the_client_and_the_actor() {
    let folder = TempDir::new().unwrap();
    let actor = folder.path().join("actor");
    write(&actor, "actor-1\n").unwrap();
    let members = json!({"portcullis": {"actor_token_file": actor}});
    let it = Exchanging::start(&members, &[]).await;
    assert_eq!(it.call(PING).await.status, 200, "{}", it.runner.log());
    let form = it.forms().pop().unwrap();
    for part in [
        "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Atoken-exchange".to_owned(),
        format!("subject_token={}", it.token),
        "subject_token_type=urn%3Aietf%3Aparams%3Aoauth%3Atoken-type%3Aaccess_token".to_owned(),
        "actor_token=actor-1".to_owned(),
        "actor_token_type=urn%3Aietf%3Aparams%3Aoauth%3Atoken-type%3Ajwt".to_owned(),
        "audience=backend".to_owned(),
        "client_id=c".to_owned(),
    ] {
        assert!(form.split('&').any(|pair| pair == part), "{part} is not in {form}");
    }
    assert!(!it.runner.log().contains("actor-1"), "the actor's token is in the log");
}
