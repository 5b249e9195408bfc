//! Roles of AWS: what fails, what callers are told then, and what asks STS for nothing.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Answer, Echo, Issuer, Runner, SESSION, Said, Signer, Sts, eventually};

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
const ROLE: &str = "arn:aws:iam::123456789012:role/readers";

struct Signing {
    sts: Sts,
    server: Echo,
    runner: Runner,
    signer: Signer,
    issuer: Issuer,
}

impl Signing {
    /// A runner that signs with sessions of an STS, with `members` over its document.
    async fn start(members: &Value, environment: &[(&str, &str)]) -> Self {
        let (signer, sts, server) = (Signer::ec("ec"), Sts::start().await, Echo::start().await);
        let issuer = Issuer::start(vec![signer.clone()]).await;
        let mut document = json!({
            "oidc_config": issuer.login(&json!({})), "remote_url": format!("{}/mcp", server.url()), "middleware_configs": [],
            "aws_sts_config": {"region": "eu-central-1", "role_mappings": [{"claim": "readers", "role_arn": ROLE}]},
        });
        document.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        let flags = ["--allow-endpoint-cidr", "127.0.0.0/8"].map(Into::into);
        let environment = [environment, &[("AWS_ENDPOINT_URL_STS", &*sts.url)]].concat();
        let runner = Runner::start("streamable-http", &document, &flags, &environment).await;
        Self { sts, server, runner, signer, issuer }
    }

    fn token(&self, subject: &str, groups: &[&str]) -> String {
        let mut claims = self.issuer.claims(subject);
        claims["groups"] = json!(groups);
        self.signer.sign("ES256", &claims)
    }

    async fn call(&self, token: &str, body: &str) -> Answer {
        self.runner.post(&[("authorization", &format!("Bearer {token}"))], body).await
    }

    /// The questions to STS, and the requests at the server.
    fn counts(&self) -> (usize, usize) {
        (self.sts.forms().len(), self.server.got("host").len())
    }
}

#[tokio::test]
async fn each_answer_of_sts_has_its_status() {
    let it = Signing::start(&json!({}), &[]).await;
    let token = it.token("alice", &["readers"]);
    let (failed, unavailable) = ("AWS credential exchange failed", "AWS credential exchange temporarily unavailable");
    for (said, status) in [
        (Said::Error(400, "ExpiredTokenException"), 401),
        (Said::Error(400, "InvalidIdentityToken"), 401),
        (Said::Error(403, "IDPRejectedClaim"), 401),
        (Said::Error(403, "AccessDenied"), 403),
        (Said::Error(400, "ValidationError"), 502),
        (Said::Error(403, "RegionDisabledException"), 502),
        (Said::Error(400, "Throttling"), 503),
        (Said::Error(429, "TooManyRequestsException"), 503),
        (Said::Error(503, "ServiceUnavailable"), 503),
        (Said::Nothing, 503),
        (Said::Session(Duration::ZERO), 502),
    ] {
        *it.sts.says.lock().unwrap() = said.clone();
        let answer = it.call(&token, PING).await;
        let expected = if status == 503 { unavailable } else { failed };
        assert_eq!((answer.status, &*answer.body), (status, expected), "{answer:?}");
        assert_eq!(answer.header("www-authenticate").is_some(), status == 401, "{answer:?}");
        assert_eq!(answer.header("retry-after"), (status == 503).then_some("1"), "{answer:?}");
    }
    assert_eq!(it.counts().1, 0, "no request reached the server");
    *it.sts.says.lock().unwrap() = Said::Session(Duration::from_hours(1));
    assert_eq!(it.call(&token, PING).await.status, 200);
    let form = it.sts.forms().pop().unwrap();
    for part in [
        "Action=AssumeRoleWithWebIdentity",
        "Version=2011-06-15",
        "RoleArn=arn%3Aaws%3Aiam%3A%3A123456789012%3Arole%2Freaders",
        "RoleSessionName=alice",
        &format!("WebIdentityToken={token}"),
        "DurationSeconds=3600",
    ] {
        assert!(form.split('&').any(|pair| pair == part), "{part} is not in {form}");
    }
}

#[tokio::test]
async fn a_refused_call_asks_sts_for_nothing() {
    let policies = json!(["permit(principal, action == Action::\"call_tool\", resource == Tool::\"good\");"]);
    let it = Signing::start(
        &json!({
            "tools_filter": ["good", "bad"], "max_request_body_size": 16 << 20,
            "authz_config": {"version": "1.0", "type": "cedarv1", "cedar": {"policies": policies, "entities_json": "[]"}},
        }),
        &[],
    )
    .await;
    let call = |tool: &str, more: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}","arguments":{{"a":"{more}"}}}}}}"#
        )
    };
    let token = it.token("alice", &["readers"]);
    for (case, token, body, status) in [
        ("filtered", &token, call("other", ""), None),
        ("forbidden", &token, call("bad", ""), Some(403)),
        ("no message", &token, "{".to_owned(), Some(400)),
        ("who is not known", &"a.b.c".to_owned(), call("good", ""), Some(401)),
        ("without a role", &it.token("bob", &["others"]), call("good", ""), Some(403)),
        ("without a name for AWS", &it.token("auth0|bob", &["readers"]), call("good", ""), Some(403)),
        ("too much to sign", &token, call("good", &"a".repeat(10 << 20)), Some(413)),
    ] {
        let answer = it.call(token, &body).await;
        assert!(status.map_or(answer.body.contains("error"), |status| answer.status == status), "{case}: {answer:?}");
        assert_eq!(it.counts(), (0, 0), "{case}");
    }
    assert_eq!(it.call(&token, &call("good", &"a".repeat(9 << 20))).await.status, 200);
    assert_eq!(it.counts(), (1, 1));
}

#[tokio::test]
async fn a_session_that_is_over_is_opened_anew() {
    let it = Signing::start(&json!({}), &[]).await;
    let (alice, bob) = (it.token("alice", &["readers"]), it.token("bob", &["readers"]));
    *it.sts.says.lock().unwrap() = Said::Session(Duration::from_secs(2));
    assert_eq!(it.call(&alice, PING).await.status, 200);
    *it.sts.says.lock().unwrap() = Said::Session(Duration::from_hours(1));
    assert_eq!(it.call(&bob, PING).await.status, 200);
    eventually("another session", || async {
        assert_eq!((it.call(&alice, PING).await.status, it.call(&bob, PING).await.status), (200, 200));
        (it.counts().0 == 3).then_some(())
    })
    .await;
    assert_eq!((it.call(&alice, PING).await.status, it.counts().0), (200, 3));
}

#[tokio::test]
async fn no_secret_of_a_session_is_in_a_log_or_an_event() {
    let audit = json!({"audit_config": {"includeRequestData": true, "includeResponseData": true}});
    let it = Signing::start(&audit, &[("RUST_LOG", "trace")]).await;
    let token = it.token("alice", &["readers"]);
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"say"}}"#;
    *it.sts.says.lock().unwrap() = Said::Error(400, "InvalidIdentityToken");
    assert_eq!(it.call(&token, call).await.status, 401);
    *it.sts.says.lock().unwrap() = Said::Session(Duration::from_hours(1));
    assert_eq!(it.call(&token, call).await.status, 200);
    eventually("both events", || async { (it.runner.output().lines().count() == 2).then_some(()) }).await;
    let text = [it.runner.output(), it.runner.log()].concat();
    assert!(text.contains("STS answers 400 Bad Request: InvalidIdentityToken"), "{text}");
    for secret in SESSION.into_iter().chain([&*token]) {
        assert!(!text.contains(secret), "{secret} is in {text}");
    }
}
