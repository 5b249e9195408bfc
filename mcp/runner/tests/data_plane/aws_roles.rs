//! Requests that are signed with roles of AWS, with moto for AWS: its STS opens the sessions, and its services check the signatures.

use std::collections::BTreeSet;

use futures::future::join_all;
use serde_json::{Value, json};

use crate::support::{Answer, Echo, Issuer, Moto, Runner, Signer};

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
const ROLE: &str = "arn:aws:iam::123456789012:role";

/// Callers, and a runner that signs for the remote server at `url`, with sessions of moto's.
struct Signing {
    signer: Signer,
    issuer: Issuer,
    runner: Runner,
}

impl Signing {
    async fn start(moto: &Moto, url: &str, service: &str) -> Self {
        let signer = Signer::ec("ec");
        let issuer = Issuer::start(vec![signer.clone()]).await;
        let aws = json!({
            "region": "us-east-1", "service": service, "fallback_role_arn": format!("{ROLE}/readers"), "session_duration": 900,
            "role_mappings": [{"matcher": r#"claims["groups"].exists(group, group == "ops")"#, "role_arn": format!("{ROLE}/ops")}],
        });
        let members = json!({
            "oidc_config": issuer.login(&json!({})), "aws_sts_config": aws, "remote_url": url, "middleware_configs": [],
        });
        let flags = ["--allow-endpoint-cidr", "127.0.0.0/8"].map(Into::into);
        let runner = Runner::start("streamable-http", &members, &flags, &[("AWS_ENDPOINT_URL_STS", &moto.url)]).await;
        Self { signer, issuer, runner }
    }

    fn token(&self, subject: &str, groups: &Value) -> String {
        let mut claims = self.issuer.claims(subject);
        claims["groups"] = groups.clone();
        self.signer.sign("ES256", &claims)
    }

    async fn call(&self, token: &str, body: &str) -> Answer {
        let mine = [
            ("authorization", &*format!("Bearer {token}")),
            ("x-amz-date", "20000101T000000Z"),
            ("x-amz-security-token", "mine"),
            ("x_amz_security_token", "mine"),
        ];
        let mut all = vec![("content-type", "application/json"), ("accept", "application/json, text/event-stream")];
        all.extend(mine);
        self.runner.request(http::Method::POST, "/mcp?X-Amz-Signature=mine&b=%20%2F&a=1", &all, body).await
    }
}

#[tokio::test]
async fn aws_takes_the_signature_of_what_is_sent() {
    let moto = Moto::start().await;
    // A service of AWS at a path of its own, with a query.
    let signing = Signing::start(&moto, &format!("{}/groups-list?maxResults=5", moto.url), "resource-groups").await;
    let token = signing.token("alice", &json!(["users"]));
    let answer = signing.call(&token, PING).await;
    assert_eq!(answer.status, 200, "{answer:?} {}", signing.runner.log());
    moto.check_signatures().await;
    let scope = "Credential=ASIAX/20260101/us-east-1/resource-groups/aws4_request, SignedHeaders=host;x-amz-date";
    let forged = format!("AWS4-HMAC-SHA256 {scope}, Signature=00");
    let headers =
        [("authorization", &*forged), ("x-amz-date", "20260101T000000Z"), ("content-type", "application/json")];
    let answer = moto.send("POST", "/groups-list?maxResults=5", &headers, PING).await;
    assert_eq!(answer.status, 403, "moto checks: {answer:?}");
    let long = PING.replace("ping", &"p".repeat(300 << 10));
    for body in [PING, &long] {
        let answer = signing.call(&token, body).await;
        assert!(answer.status == 200 && answer.body.contains("GroupIdentifiers"), "{answer:?}");
    }
    assert_eq!(moto.asked().await, 1);
}

#[tokio::test]
async fn many_identities_at_once_open_one_session_each() {
    const IDENTITIES: usize = 200;
    let (moto, server) = (Moto::start().await, Echo::start().await);
    let signing = Signing::start(&moto, &format!("{}/mcp", server.url()), "aws-mcp").await;
    let tokens: Vec<_> =
        (0..IDENTITIES).map(|number| signing.token(&format!("user-{number}"), &json!(["ops"]))).collect();
    for _ in 0..2 {
        for answer in join_all(tokens.iter().map(|token| signing.call(token, PING))).await {
            assert_eq!(answer.status, 200, "{answer:?}");
        }
    }
    assert_eq!(moto.asked().await, IDENTITIES);
    let got = server.got("x-amz-security-token");
    assert_eq!((got.len(), got.into_iter().flatten().collect::<BTreeSet<_>>().len()), (2 * IDENTITIES, IDENTITIES));
    for value in server.got("authorization") {
        let value = value.unwrap();
        assert!(
            value.starts_with("AWS4-HMAC-SHA256 Credential=") && value.contains("/us-east-1/aws-mcp/aws4_request"),
            "{value}"
        );
    }
    assert!(server.got("x_amz_security_token").iter().all(Option::is_none), "what callers sign with goes on");
    let metrics = signing.runner.get("/metrics").await.body;
    assert!(metrics.contains("role_sessions_total{result=\"opened\"} 200"), "{metrics}");
}
