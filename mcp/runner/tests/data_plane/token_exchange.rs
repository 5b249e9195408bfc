//! The exchange of callers' tokens, at a real provider.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures::future::join_all;
use portcullis_identity::{EXCHANGE_CLIENT, Provider};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Answer, Echo, Runner, eventually};

const RESOURCE: &str = "http://weather.example/mcp";
const BACKEND: &str = "http://backend.example/mcp";
const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
const SECRET: [(&str, &str); 1] = [("TOOLHIVE_TOKEN_EXCHANGE_CLIENT_SECRET", EXCHANGE_CLIENT.secret)];
/// The time for which the provider's tokens are used that are valid for five seconds.
const LIFETIME: Duration = Duration::from_millis(4500);

/// A runner before `server` whose callers log in at `provider`, which exchanges their tokens as `exchange` says over the usual.
async fn exchanging(provider: &Provider, server: &Echo, exchange: &Value, environment: &[(&str, &str)]) -> Runner {
    let endpoint = provider.discovery().await.unwrap()["token_endpoint"].clone();
    let mut config = json!({"token_url": endpoint, "client_id": EXCHANGE_CLIENT.id, "audience": BACKEND});
    config.as_object_mut().unwrap().extend(exchange.as_object().unwrap().clone());
    let login = json!({"Issuer": provider.issuer(), "Audience": RESOURCE, "InsecureAllowHTTP": true});
    let members = json!({"oidc_config": login, "token_exchange_config": config, "middleware_configs": []});
    let flags = ["--backend", &server.url(), "--allow-endpoint-cidr", "127.0.0.0/8"].map(Into::into);
    Runner::start("streamable-http", &members, &flags, environment).await
}

async fn ping(runner: &Runner, token: &str) -> Answer {
    runner.post(&[("authorization", &format!("Bearer {token}"))], PING).await
}

/// It takes nine seconds: that is how long two tokens of the provider are used.
#[tokio::test]
async fn calls_over_two_token_lifetimes_make_two_exchanges() {
    let (provider, server) = (Provider::zitadel().await.unwrap(), Echo::start().await);
    let runner = exchanging(&provider, &server, &json!({"scopes": ["lifetime:5.1s"]}), &SECRET).await;
    let token = provider.token(RESOURCE).await.unwrap();
    let started = Instant::now();
    join_all((0..50).map(|_| async {
        for number in 0..10 {
            if number > 0 {
                tokio::time::sleep(2 * LIFETIME / 11).await;
            }
            let answer = ping(&runner, &token).await;
            assert_eq!(answer.status, 200, "{answer:?}");
        }
    }))
    .await;
    // On a busy machine the calls may go on into a third lifetime.
    let lifetimes = started.elapsed().as_millis().div_ceil(LIFETIME.as_millis());
    let got = server.got("authorization");
    let tokens: BTreeSet<_> = got.iter().flatten().collect();
    assert_eq!((got.len(), tokens.len()), (500, provider.exchanges().unwrap()));
    assert!(tokens.len() >= 2 && tokens.len() as u128 <= lifetimes.max(2), "{} in {lifetimes} lifetimes", tokens.len());
    let log = runner.log();
    let mut secrets = tokens.iter().map(|token| token.strip_prefix("Bearer ").unwrap()).chain([&*token]);
    assert!(
        secrets.all(|secret| !log.contains(secret)) && !log.contains(EXCHANGE_CLIENT.secret),
        "a secret is in the log"
    );
}

#[tokio::test]
async fn many_identities_at_once_make_one_exchange_each() {
    const IDENTITIES: usize = 200;
    let (provider, server) = (Provider::zitadel().await.unwrap(), Echo::start().await);
    let runner = exchanging(&provider, &server, &json!({}), &SECRET).await;
    let mut tokens = Vec::new();
    for number in 0..IDENTITIES {
        tokens.push(provider.token_of(RESOURCE, &format!("user-{number}")).await.unwrap());
    }
    for _ in 0..2 {
        for answer in join_all(tokens.iter().map(|token| ping(&runner, token))).await {
            assert_eq!(answer.status, 200, "{answer:?}");
        }
    }
    let got = server.got("authorization");
    assert_eq!((got.len(), provider.exchanges().unwrap()), (2 * IDENTITIES, IDENTITIES));
    assert_eq!(got.into_iter().flatten().collect::<BTreeSet<_>>().len(), IDENTITIES);
    let metrics = runner.get("/metrics").await.body;
    assert!(metrics.contains("token_exchanges_total{result=\"exchanged\"} 200"), "{metrics}");
}

#[tokio::test]
async fn a_rotated_client_secret_is_used_without_a_restart() {
    let (provider, server) = (Provider::zitadel().await.unwrap(), Echo::start().await);
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("secret");
    std::fs::write(&file, "before-rotation\n").unwrap();
    let environment = [("PORTCULLIS_TOKEN_EXCHANGE_CLIENT_SECRET_FILE", file.to_str().unwrap()), SECRET[0]];
    let runner = exchanging(&provider, &server, &json!({}), &environment).await;
    let token = provider.token(RESOURCE).await.unwrap();
    let answer = ping(&runner, &token).await;
    assert_eq!((answer.status, &*answer.body), (502, "Token exchange failed"), "{}", runner.log());
    runner.logged("invalid_client").await;
    std::fs::write(&file, format!("{}\n", EXCHANGE_CLIENT.secret)).unwrap();
    eventually("the new secret to be used", || async { (ping(&runner, &token).await.status == 200).then_some(()) })
        .await;
    let log = runner.log();
    assert!(!log.contains("before-rotation") && !log.contains(EXCHANGE_CLIENT.secret), "a secret is in the log");
}

#[tokio::test]
async fn the_server_gets_the_exchanged_token_and_never_the_callers() {
    let (provider, server) = (Provider::zitadel().await.unwrap(), Echo::start().await);
    let token = provider.token(RESOURCE).await.unwrap();
    let bearer = format!("Bearer {token}");
    for (members, header) in [
        (json!({}), "authorization"),
        (json!({"header_strategy": "replace", "subject_token_type": "access_token"}), "authorization"),
        (json!({"header_strategy": "custom", "external_token_header_name": "X-Upstream-Token"}), "x-upstream-token"),
    ] {
        let runner = exchanging(&provider, &server, &members, &SECRET).await;
        let mine = [("authorization", &*bearer), ("x-upstream-token", "mine"), ("x_upstream_token", "mine")];
        let answer = runner.post(&mine, PING).await;
        assert_eq!(answer.status, 200, "{members}: {answer:?}");
        let got = |name: &str| server.got(name).pop().unwrap();
        let exchanged = got(header).unwrap_or_else(|| panic!("{members}"));
        assert!(exchanged.starts_with("Bearer ") && exchanged != bearer, "{members}");
        for name in ["authorization", "x-upstream-token", "x_upstream_token"] {
            let expected = (name == header).then(|| exchanged.clone());
            let others_own = name != "authorization" && header == "authorization";
            assert!(got(name) == expected || others_own, "{members} {name}: {:?}", got(name));
        }
    }
}
