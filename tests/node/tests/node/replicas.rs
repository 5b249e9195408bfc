//! Two replicas of a proxy that share sessions in a Redis, each addressed as a pod: the Service would keep a client
//! with one of them.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{EvictParams, ListParams, Patch, PatchParams};
use portcullis_node::greeter::{self, NAME};
use portcullis_node::{DEADLINE, EVERYTHING_IMAGE, Namespace, Node, Redis, install_operator, kubectl_in};
use portcullis_testing::wait_until;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const AUDIENCE: &str = "greeter";
/// The revision of clients with sessions.
const REVISION: &str = "2025-11-25";
/// The time that one request may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// An answer of a proxy.
#[derive(Clone, Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    fn greets(&self) -> bool {
        self.status == 200 && self.body.contains("Hi Ada")
    }
}

/// One caller of the proxies: its token, and its session.
#[derive(Clone, Debug)]
struct Session {
    token: String,
    id: String,
}

impl Session {
    /// Opens one at the proxy in the pod with this address.
    async fn open(pod: &str, token: &str) -> Self {
        let client = json!({ "name": "test", "version": "1" });
        let params = json!({ "protocolVersion": REVISION, "capabilities": {}, "clientInfo": client });
        let opened = Self { token: token.to_owned(), id: String::new() };
        let answer = opened
            .send(pod, "POST", &json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }))
            .await;
        let answer = answer.unwrap_or_else(|error| panic!("no session: {error}"));
        let id = answer.header("mcp-session-id").unwrap_or_else(|| panic!("no session: {answer:?}")).to_owned();
        let session = Self { id, ..opened };
        let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        let answer = session.send(pod, "POST", &initialized).await;
        assert!(answer.as_ref().is_ok_and(|answer| answer.status == 202), "{answer:?}");
        session
    }

    async fn call(&self, pod: &str) -> Result<Answer, String> {
        let params = json!({ "name": "greet", "arguments": { "name": "Ada" } });
        self.send(pod, "POST", &json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params })).await
    }

    async fn delete(&self, pod: &str) -> Result<Answer, String> {
        self.send(pod, "DELETE", &Value::Null).await
    }

    async fn send(&self, pod: &str, method: &str, message: &Value) -> Result<Answer, String> {
        let body = if message.is_null() { String::new() } else { message.to_string() };
        let session = if self.id.is_empty() { String::new() } else { format!("mcp-session-id: {}\r\n", self.id) };
        let request = format!(
            "{method} /mcp HTTP/1.1\r\nhost: {pod}:8080\r\nconnection: close\r\nauthorization: Bearer {}\r\n\
             accept: application/json, text/event-stream\r\ncontent-type: application/json\r\nmcp-protocol-version: {REVISION}\r\n\
             {session}content-length: {}\r\n\r\n{body}",
            self.token,
            body.len()
        );
        exchange(pod, &request).await
    }
}

/// Sends a request on a connection of its own, which the proxy closes.
async fn exchange(pod: &str, request: &str) -> Result<Answer, String> {
    let exchange = async {
        let mut stream = TcpStream::connect((pod, 8080)).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        std::io::Result::Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    let answer = tokio::time::timeout(PATIENCE, exchange).await.map_err(|_| "no answer in time".to_owned())?;
    let answer = answer.map_err(|error| error.to_string())?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| format!("no answer: {answer:?}"))?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| format!("no answer: {head:?}"))?;
    Ok(Answer { status, head: head.to_owned(), body: body.to_owned() })
}

/// The members of a server that keeps sessions in memory, behind two proxies that share theirs.
fn members(redis: &Redis<'_>, beside: Value) -> Value {
    let mut members = json!({
        "image": EVERYTHING_IMAGE, "args": ["-http", ":3001"], "replicas": 2,
        "sessionStorage": { "provider": "redis", "address": redis.address() },
    });
    if let (Some(members), Value::Object(beside)) = (members.as_object_mut(), beside) {
        members.extend(beside);
    }
    members
}

/// Two such proxies, behind the login of the cluster's ServiceAccounts.
struct Replicas<'a> {
    namespace: &'a Namespace,
    pods: Vec<Pod>,
}

impl<'a> Replicas<'a> {
    async fn start(namespace: &'a Namespace, redis: &Redis<'_>) -> Self {
        let cluster = json!({ "issuer": "https://kubernetes.default.svc.cluster.local" });
        namespace
            .apply([
                json!({
                    "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPOIDCConfig", "metadata": { "name": "cluster" },
                    "spec": { "type": "kubernetesServiceAccount", "kubernetesServiceAccount": cluster },
                }),
                json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "stranger" } }),
            ])
            .await;
        let login = json!({ "name": "cluster", "audience": AUDIENCE });
        greeter::start(namespace, members(redis, json!({ "oidcConfigRef": login }))).await;
        let mut pods = Vec::new();
        for name in namespace.pods(NAME).await {
            pods.push(namespace.pod(&name).await);
        }
        assert_eq!(pods.len(), 2);
        Self { namespace, pods }
    }

    /// The address of a pod.
    fn address(&self, nth: usize) -> &str {
        let status = self.pods[nth].status.as_ref();
        status.and_then(|status| status.pod_ip.as_deref()).unwrap_or_else(|| panic!("pod {nth} has no address"))
    }

    fn token(&self, account: &str) -> String {
        kubectl_in(&self.namespace.name, &["create", "token", account, "--audience", AUDIENCE]).trim().to_owned()
    }

    /// Calls the two in turn, and returns what is no greeting.
    async fn alternate(&self, session: &Session, calls: usize) -> Vec<Result<Answer, String>> {
        let mut failed = Vec::new();
        for nth in 0..calls {
            let answer = session.call(self.address(nth % 2)).await;
            if !answer.as_ref().is_ok_and(Answer::greets) {
                failed.push(answer);
            }
        }
        failed
    }

    /// Returns when a replica greets again, and what its answers were until then.
    async fn greets_again(&self, session: &Session, nth: usize) -> Vec<Result<Answer, String>> {
        let failed = Mutex::new(Vec::new());
        wait_until(&format!("replica {nth} to greet again"), DEADLINE, || async {
            let answer = session.call(self.address(nth)).await;
            let greets = answer.as_ref().is_ok_and(Answer::greets);
            if !greets {
                failed.lock().unwrap().push(answer);
            }
            greets.then_some(())
        })
        .await;
        failed.into_inner().unwrap()
    }
}

/// Whether the proxy asked its client to retry.
fn tells_to_come_again(answer: &Result<Answer, String>) -> bool {
    answer.as_ref().is_ok_and(|answer| answer.status == 503 && answer.header("retry-after").is_some())
}

// P2
#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_of_all_replicas_and_outlives_a_kill_of_either() {
    let node = Node::running().await;
    install_operator().await;
    let namespace = node.namespace("replicas").await;
    let redis = namespace.redis().await;
    let replicas = Replicas::start(&namespace, &redis).await;
    let session = Session::open(replicas.address(0), &replicas.token("default")).await;
    let failed = replicas.alternate(&session, 100).await;
    assert!(failed.is_empty(), "{failed:?}");

    let stranger = Session { token: replicas.token("stranger"), ..session.clone() };
    for nth in [0, 1] {
        let answer = stranger.call(replicas.address(nth)).await.unwrap();
        assert_eq!(answer.status, 404, "{answer:?}");
        let answer = stranger.delete(replicas.address(nth)).await.unwrap();
        assert_eq!(answer.status, 404, "{answer:?}");
    }

    // No call is on its way to the one that is killed.
    for (killed, other) in [(0, 1), (1, 0)] {
        node.kill(&replicas.pods[killed]);
        for _ in 0..50 {
            let answer = session.call(replicas.address(other)).await;
            assert!(answer.as_ref().is_ok_and(Answer::greets), "{answer:?}");
        }
        // Its container starts again, at the same address.
        let failed = replicas.greets_again(&session, killed).await;
        assert!(!failed.iter().any(|answer| matches!(answer, Ok(Answer { status: 404, .. }))), "{failed:?}");
    }

    let ended = session.delete(replicas.address(0)).await.unwrap();
    assert!([200, 204].contains(&ended.status), "{ended:?}");
    for nth in [1, 0] {
        let answer = session.call(replicas.address(nth)).await.unwrap();
        assert_eq!(answer.status, 404, "{answer:?}");
    }
}

// P2
#[tokio::test(flavor = "multi_thread")]
async fn sessions_outlive_a_restart_and_a_replacement_of_redis() {
    let node = Node::running().await;
    install_operator().await;
    let namespace = node.namespace("redis").await;
    let redis = namespace.redis().await;
    let replicas = Replicas::start(&namespace, &redis).await;
    let session = Session::open(replicas.address(0), &replicas.token("default")).await;
    // The server above is of the era with sessions alone.
    let stateless = members(&redis, greeter::STREAMABLE.spec(json!({})));
    namespace.apply([greeter::manifest("stateless", stateless)]).await;
    let url = greeter::ready(&namespace, "stateless").await;
    let stateless = namespace.caller("stateless", 10, &url, "Ada").await;
    stateless.next("an answer", |outcome| outcome.answers("Hi Ada")).await;
    let begun = stateless.outcomes().len();

    for step in ["a restart", "a replacement"] {
        let since = Instant::now();
        let mut failed = Vec::new();
        if step == "a restart" {
            node.kill(&redis.pod().await);
        } else {
            redis.stop().await;
            failed.push(session.call(replicas.address(0)).await);
            failed.push(session.call(replicas.address(1)).await);
            assert!(failed.iter().all(tells_to_come_again), "{failed:?}");
            redis.start().await;
        }
        for nth in [0, 1] {
            failed.extend(replicas.greets_again(&session, nth).await);
        }
        let away = since.elapsed();
        println!("{step} of Redis: {} calls failed in {away:?}", failed.len());
        assert!(failed.iter().all(tells_to_come_again), "{step}: {failed:?}");
        let failed = replicas.alternate(&session, 20).await;
        assert!(failed.is_empty(), "after {step}: {failed:?}");
    }

    let outcomes = stateless.finish().await;
    let failed: Vec<_> = outcomes[begun..].iter().filter(|outcome| !outcome.answers("Hi Ada")).collect();
    assert!(failed.is_empty(), "{} of {} stateless calls failed: {failed:?}", failed.len(), outcomes.len() - begun);
}

/// Beside the same with sessions in the proxies, where each rollout costs a session a 404.
#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_and_a_drain_lose_no_call_of_a_session_in_redis() {
    let node = Node::running().await;
    install_operator().await;
    let namespace = node.namespace("shared-rollout").await;
    let redis = namespace.redis().await;
    let url = greeter::start(&namespace, members(&redis, json!({}))).await;
    let caller = namespace.caller("legacy", 50, &url, "Ada").await;
    caller.next("an answer", |outcome| outcome.answers("Hi Ada")).await;
    let begun = caller.outcomes().len();
    let annotations = json!({ "kubectl.kubernetes.io/restartedAt": "first" });
    let template = json!({ "spec": { "template": { "metadata": { "annotations": annotations } } } });
    let before = namespace.pods(NAME).await;
    let deployments = namespace.api::<Deployment>();
    deployments.patch(NAME, &PatchParams::default(), &Patch::Strategic(template)).await.unwrap();
    for pod in namespace.replaced(NAME, &before).await {
        namespace.api::<Pod>().evict(&pod, &EvictParams::default()).await.unwrap();
        namespace.replaced(NAME, &[pod]).await;
    }
    caller.steady(20, "Hi Ada").await;
    let outcomes = caller.finish().await;
    let failed: Vec<_> = outcomes[begun..].iter().filter(|outcome| !outcome.answers("Hi Ada")).collect();
    assert!(failed.is_empty(), "{} of {} calls failed: {failed:?}", failed.len(), outcomes.len() - begun);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_waits_for_redis_is_not_ready_until_it_answers() {
    let node = Node::running().await;
    install_operator().await;
    let namespace = node.namespace("awaited-redis").await;
    let redis = namespace.redis().await;
    redis.stop().await;
    let spec = greeter::STREAMABLE.spec(members(&redis, json!({ "replicas": 1 })));
    namespace.apply([greeter::manifest(NAME, spec)]).await;
    let request = "GET /readyz HTTP/1.1\r\nhost: proxy:8080\r\nconnection: close\r\n\r\n";
    wait_until("the proxy to wait for Redis", DEADLINE, || async {
        let pods = namespace.api::<Pod>().list(&ListParams::default().labels("app=mcpserver")).await.ok()?;
        let address = pods.items.first()?.status.as_ref()?.pod_ip.clone()?;
        let answer = exchange(&address, request).await.ok()?;
        (answer.status == 503 && answer.body.contains("Redis")).then_some(())
    })
    .await;
    redis.start().await;
    let url = greeter::ready(&namespace, NAME).await;
    let caller = namespace.caller("legacy", 5, &url, "Ada").await;
    caller.steady(5, "Hi Ada").await;
    caller.finish().await;
}
