//! Credentials against an API server of one account, in which time goes as fast as nothing is done.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{Request, Response};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use kube::{Api, Client};
use portcullis_metrics::Metrics;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use super::{Account, Credentials};

/// What the API server gives and takes.
#[derive(Default)]
struct Server {
    /// How many tokens it gave.
    given: u32,
    /// When it was asked for them.
    asked: Vec<Instant>,
    /// With which code it refuses to give one.
    refuses: Option<u16>,
    /// The only token that counts.
    counts: String,
    /// What came beside requests for tokens: who from, and the answer.
    seen: Vec<(String, u16)>,
}

fn status(code: u16, message: &str) -> (u16, Value) {
    (code, json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}))
}

impl Server {
    fn answer(&mut self, request: &Request<Body>) -> (u16, Value) {
        let from = request.headers().get(AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned());
        if request.uri().path().ends_with("/api/v1/namespaces/here/serviceaccounts/op-one/token") {
            assert_eq!(from, None, "the process's own client asks");
            self.asked.push(Instant::now());
            if let Some(code) = self.refuses {
                return status(code, "no");
            }
            self.given += 1;
            self.counts = format!("Bearer t{}", self.given);
            let spec = json!({"audiences": [], "expirationSeconds": 600});
            let token = json!({"token": format!("t{}", self.given), "expirationTimestamp": "2020-01-01T00:00:00Z"});
            return (201, json!({"metadata": {}, "spec": spec, "status": token}));
        }
        let from = from.unwrap_or_default();
        let answer = if from == self.counts { (200, json!({"metadata": {"name": "m"}})) } else { status(401, "who?") };
        self.seen.push((from, answer.0));
        answer
    }
}

fn credentials(server: &Arc<Mutex<Server>>, metrics: &Metrics) -> Credentials {
    let server = server.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (code, answer) = server.lock().unwrap().answer(&request);
        let answer = Body::from(answer.to_string().into_bytes());
        async move { Ok::<_, Infallible>(Response::builder().status(code).body(answer).unwrap()) }
    });
    let client = Client::new(service, "default");
    let [controller, namespace, name] = ["one", "here", "op-one"].map(str::to_owned);
    Credentials::new(Account { controller, namespace, name }, &client, &client, metrics)
}

async fn read(credentials: &Credentials) -> Result<(), String> {
    let maps: Api<ConfigMap> = Api::namespaced(credentials.client(), "team");
    maps.get("m").await.map(drop).map_err(|error| error.to_string())
}

/// The credentials, renewed in the background.
fn renewed(server: &Arc<Mutex<Server>>, metrics: &Metrics) -> Credentials {
    let credentials = credentials(server, metrics);
    let renewing = credentials.clone();
    tokio::spawn(async move { renewing.renew().await });
    credentials
}

#[tokio::test(start_paused = true)]
async fn a_token_is_renewed_before_it_ends_and_requests_carry_the_newest() {
    let (server, metrics) = (Arc::default(), Metrics::new());
    let (credentials, begun) = (renewed(&server, &metrics), Instant::now());
    for minute in 0..60 {
        read(&credentials).await.unwrap_or_else(|error| panic!("minute {minute}: {error}"));
        sleep(Duration::from_mins(1)).await;
    }
    let server = server.lock().unwrap();
    assert!(server.seen.iter().all(|(_, code)| *code == 200), "{:?}", server.seen);
    // An hour of tokens of ten minutes, each for seven or eight of them.
    assert!((8..=9).contains(&server.asked.len()), "{:?}", server.asked);
    assert!(server.asked[0].duration_since(begun) < Duration::from_secs(1));
    assert!(metrics.encode().contains(r#"portcullis_token_held{controller="one"} 1"#), "{}", metrics.encode());
}

#[tokio::test(start_paused = true)]
async fn a_token_that_the_api_server_refuses_is_renewed_at_once_and_the_request_sent_once_more() {
    let (server, metrics) = (Arc::<Mutex<Server>>::default(), Metrics::new());
    let credentials = renewed(&server, &metrics);
    read(&credentials).await.unwrap();
    server.lock().unwrap().counts = "another account of that name".to_owned();
    let begun = Instant::now();
    read(&credentials).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    let seen: Vec<_> = server.lock().unwrap().seen.iter().map(|(from, code)| format!("{from} {code}")).collect();
    assert_eq!(seen, ["Bearer t1 200", "Bearer t1 401", "Bearer t2 200"]);
}

#[tokio::test(start_paused = true)]
async fn what_every_token_is_refused_for_is_no_reason_to_ask_for_tokens_without_a_pause() {
    let (server, metrics) = (Arc::<Mutex<Server>>::default(), Metrics::new());
    let credentials = renewed(&server, &metrics);
    read(&credentials).await.unwrap();
    let end = Instant::now() + Duration::from_mins(10);
    while Instant::now() < end {
        server.lock().unwrap().counts = "nobody".to_owned();
        let _ = timeout(Duration::from_secs(1), read(&credentials)).await;
        sleep(Duration::from_millis(100)).await;
    }
    let asked = server.lock().unwrap().asked.len();
    assert!(asked < 40, "{asked} requests in ten minutes");
}

#[tokio::test(start_paused = true)]
async fn without_a_token_a_request_is_not_sent_and_says_why_until_one_can_be_had() {
    let (server, metrics) = (Arc::<Mutex<Server>>::default(), Metrics::new());
    for (code, fix) in [(403, "--use-service-account-credentials=false"), (404, "ServiceAccounts that 'generate rbac'")]
    {
        server.lock().unwrap().refuses = Some(code);
        let credentials = renewed(&server, &metrics);
        let said = read(&credentials).await.unwrap_err();
        assert!(said.contains("no token for ServiceAccount here/op-one: no; ") && said.contains(fix), "{said}");
        assert_eq!(server.lock().unwrap().seen, []);
        assert!(metrics.encode().contains(r#"portcullis_token_held{controller="one"} 0"#), "{}", metrics.encode());
        server.lock().unwrap().refuses = None;
        timeout(Duration::from_mins(1), credentials.ready()).await.expect("it recovers");
        read(&credentials).await.unwrap();
        server.lock().unwrap().seen.clear();
    }
}

#[tokio::test(start_paused = true)]
async fn while_none_can_be_had_the_token_before_serves_until_its_end() {
    let (server, metrics) = (Arc::<Mutex<Server>>::default(), Metrics::new());
    let credentials = renewed(&server, &metrics);
    read(&credentials).await.unwrap();
    server.lock().unwrap().refuses = Some(500);
    sleep(Duration::from_mins(9)).await;
    read(&credentials).await.unwrap();
    sleep(Duration::from_mins(2)).await;
    assert!(read(&credentials).await.is_err(), "it has ended");
    assert_eq!(server.lock().unwrap().seen.len(), 2);
}
