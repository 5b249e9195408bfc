//! Rate limits: two proxies, one real Redis, and calls of real users (toolhive-runner §2.13).

use std::pin::pin;
use std::time::Duration;

use futures::future::join_all;
use portcullis_services::{Fault, RedisOptions, RedisServer, Toxic};
use serde_json::{Value, json};

use crate::support::{Answer, Issuer, Recorder, Runner, SdkClient, Server, Signer, TlsFront, eventually, go, within};

/// So many calls at once, and as many again over an hour.
fn hourly(tokens: u32) -> Value {
    json!({"maxTokens": tokens, "refillPeriod": "1h0m0s"})
}

/// The members of a document with these limits, counted in the Redis at `address`.
fn limited(limits: &Value, address: &str) -> Value {
    json!({
        "middleware_configs": [], "rate_limit_config": limits, "rate_limit_namespace": "ns",
        "scaling_config": {"session_redis": {"address": address}},
    })
}

fn with(mut document: Value, members: Value) -> Value {
    document.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    document
}

fn call(tool: &str) -> String {
    json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": tool}}).to_string()
}

const DONE: &str = r#"{"jsonrpc":"2.0","id":2,"result":{}}"#;

/// Proxies with a login in front of one server, with limits in one Redis.
struct World {
    runners: Vec<Runner>,
    backend: Recorder,
    issuer: Issuer,
    signer: Signer,
}

impl World {
    async fn start(proxies: usize, members: &Value) -> Self {
        let (signer, backend) = (Signer::rsa("k"), Recorder::start().await);
        let issuer = Issuer::start(vec![signer.clone()]).await;
        let members = with(members.clone(), json!({"oidc_config": issuer.login(&json!({}))}));
        let flags = ["--backend", &backend.url(), "--allow-endpoint-cidr", "127.0.0.0/8"].map(Into::into);
        let mut runners = Vec::new();
        for _ in 0..proxies {
            runners.push(Runner::start("streamable-http", &members, &flags, &[]).await);
        }
        Self { runners, backend, issuer, signer }
    }

    fn token(&self, user: &str) -> String {
        format!("Bearer {}", self.signer.sign("RS256", &self.issuer.claims(user)))
    }

    /// Posts messages all at once, each to the proxy of this number. Returns the answers, and the tools that the server was asked for.
    async fn post(&mut self, user: &str, messages: &[(usize, String)]) -> (Vec<Answer>, Vec<String>) {
        let token = self.token(user);
        let headers = [("authorization", &*token)];
        let posted = messages.iter().map(|(proxy, message)| self.runners[*proxy].post(&headers, message));
        let (mut posted, mut tools) = (pin!(join_all(posted)), Vec::new());
        loop {
            tokio::select! {
                answers = &mut posted => return (answers, tools),
                request = self.backend.next() => {
                    let message: Value = serde_json::from_slice(&request.body).unwrap();
                    tools.push(message["params"]["name"].as_str().unwrap_or_default().to_owned());
                    request.json("200 OK", "", DONE).await;
                }
            }
        }
    }

    async fn call(&mut self, user: &str, tool: &str) -> (Answer, bool) {
        let (mut answers, tools) = self.post(user, &[(0, call(tool))]).await;
        (answers.remove(0), !tools.is_empty())
    }

    async fn decisions(&self, outcome: &str) -> u64 {
        let metrics = self.runners[0].get("/metrics").await.body;
        let series = format!(r#"mcp_runner_guard_decisions_total{{guard="ratelimit",outcome="{outcome}"}} "#);
        let line = metrics.lines().find_map(|line| line.strip_prefix(&series));
        line.unwrap_or_else(|| panic!("{series}: {metrics}")).parse().unwrap()
    }
}

async fn redis() -> RedisServer {
    RedisServer::start(RedisOptions::default()).await.unwrap()
}

/// The tokens that are left in a bucket; `None` where nobody has taken any.
async fn tokens(redis: &RedisServer, bucket: &str) -> Option<f64> {
    let tokens = redis.cli(&["HGET", &format!("thv:rl:{{ns:demo}}:{bucket}"), "tokens"]).await.unwrap();
    // It refills while the test runs, by less than one.
    (!tokens.is_empty()).then(|| tokens.parse::<f64>().unwrap().floor())
}

#[tokio::test]
async fn ten_tokens_over_two_proxies_are_ten_of_a_hundred_calls() {
    let redis = redis().await;
    let limits = json!({"shared": hourly(10), "perUser": hourly(50)});
    let mut world = World::start(2, &limited(&limits, &redis.address())).await;
    let calls: Vec<_> = (0..100).map(|n| (n % 2, call("echo"))).collect();
    let (answers, tools) = world.post("alice", &calls).await;
    let allowed = answers.iter().filter(|answer| answer.status == 200).count();
    let refused = answers.iter().filter(|answer| answer.status == 429).count();
    assert_eq!((allowed, refused, tools.len()), (10, 90, 10));
    assert_eq!(
        tokens(&redis, "user:alice").await,
        Some(40.0),
        "calls that one bucket refuses take no token of another"
    );
}

#[tokio::test]
async fn a_refusal_is_toolhives_to_the_byte() {
    let redis = redis().await;
    let limits = json!({"tools": [{"name": "echo", "perUser": hourly(2)}]});
    let mut world = World::start(1, &limited(&limits, &redis.address())).await;
    for _ in 0..2 {
        assert_eq!(world.call("alice", "echo").await.0.status, 200);
    }
    for id in ["2", r#""abc""#] {
        let message = call("echo").replace("2,", &format!("{id},"));
        let (answers, tools) = world.post("alice", &[(0, message)]).await;
        let answer = &answers[0];
        let expected = format!(
            r#"{{"error":{{"code":429,"data":{{"retryAfterSeconds":1800}},"message":"Rate limit exceeded"}},"id":{id},"jsonrpc":"2.0"}}"#
        );
        assert_eq!((answer.status, &*answer.body, tools.len()), (429, &*expected, 0));
        assert_eq!(answer.header("retry-after"), Some("1800"));
        assert_eq!(answer.header("content-type"), Some("application/json"));
    }
    for (user, tool) in [("bob|x:y", "echo"), ("alice", "fail"), ("alice", "Echo")] {
        assert_eq!(world.call(user, tool).await.0.status, 200, "{user} {tool}");
    }
    // Nothing but calls of tools is limited, whatever it names.
    let list = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"name":"echo"}}"#;
    assert_eq!(world.post("alice", &[(0, list.to_owned())]).await.0[0].status, 200);
    assert_eq!(tokens(&redis, "user-tool:echo:bob|x:y").await, Some(1.0));
    let keys = redis.cli(&["--raw", "KEYS", "thv:rl:*"]).await.unwrap();
    assert_eq!(keys.lines().count(), 2, "{keys}");
}

#[tokio::test]
async fn a_real_client_of_a_stdio_server_is_told_that_it_called_too_often() {
    let redis = redis().await;
    let limits = limited(&json!({"perUser": hourly(1)}), &redis.address());
    let runner = Runner::stdio(&[go().into()], &limits).await;
    let mut client = SdkClient::connect(&runner.url()).await;
    assert_eq!(client.call("greet", json!({"name": "Ada"})).await, "Hi Ada");
    let failed = client.fails(json!({"do": "call", "name": "greet", "args": {"name": "Ada"}})).await;
    assert!(failed["failed"].as_str().unwrap().contains("Rate limit exceeded"), "{failed}");
    client.ask(json!({"do": "list"})).await;
}

/// A webhook that `reviewer` answers.
fn webhook(front: &TlsFront) -> Value {
    json!([{
        "name": "review", "url": format!("https://{}/review", front.address), "timeout": 20_000_000_000_i64,
        "failure_policy": "fail", "tls_config": {"ca_bundle_path": front.ca()},
    }])
}

/// ToolHive's proxies charge the tool that the client names (its issue 6134).
#[tokio::test]
async fn a_call_is_charged_once_on_the_tool_that_a_webhook_names() {
    let (redis, mut reviewer) = (redis().await, Recorder::start().await);
    let front = TlsFront::before(reviewer.address).await;
    let limits = json!({"shared": hourly(9), "tools": [
        {"name": "echo", "shared": hourly(1)}, {"name": "say", "shared": hourly(2)},
    ]});
    let document = with(limited(&limits, &redis.address()), json!({"mutating_webhooks": webhook(&front)}));
    let mut world = World::start(1, &document).await;
    let patch = json!([{"op": "replace", "path": "/mcp_request/params/name", "value": "say"}]);
    let review = json!({"version": "v0.1.0", "uid": "u", "allowed": true, "patch_type": "json_patch", "patch": patch});
    for (status, tool) in [(200, Some("say")), (200, Some("say")), (429, None)] {
        let webhook = async { reviewer.next().await.json("200 OK", "", &review.to_string()).await };
        let echo = [(0, call("echo"))];
        let ((answers, tools), ()) = tokio::join!(world.post("alice", &echo), webhook);
        assert_eq!((answers[0].status, tools.first().map(|tool| &**tool)), (status, tool), "{answers:?}");
    }
    let left = [tokens(&redis, "shared").await, tokens(&redis, "shared:tool:say").await];
    assert_eq!((left, tokens(&redis, "shared:tool:echo").await), ([Some(7.0), Some(0.0)], None));
}

#[tokio::test]
async fn a_call_that_another_guard_refuses_costs_nothing() {
    let (redis, mut reviewer) = (redis().await, Recorder::start().await);
    let front = TlsFront::before(reviewer.address).await;
    let policy = r#"permit(principal, action, resource == Tool::"echo");"#;
    let members = json!({
        "tools_filter": ["echo", "secret"],
        "authz_config": {"version": "1.0", "type": "cedarv1", "cedar": {"policies": [policy], "entities_json": "[]"}},
        "validating_webhooks": webhook(&front),
    });
    let limits = json!({"shared": hourly(5), "perUser": hourly(5)});
    let mut world = World::start(1, &with(limited(&limits, &redis.address()), members)).await;
    let (allow, deny) = (r#"{"version":"v0.1.0","uid":"u","allowed":true}"#, r#"{"allowed":false}"#);
    for (tool, review, status, charged) in [
        ("hidden", None, 200, None),
        ("echo", Some(deny), 403, None),
        ("secret", Some(allow), 403, None),
        ("echo", Some(allow), 200, Some(4.0)),
    ] {
        let webhook = async {
            if let Some(review) = review {
                reviewer.next().await.json("200 OK", "", review).await;
            }
        };
        let message = [(0, call(tool))];
        let ((answers, _), ()) = tokio::join!(world.post("alice", &message), webhook);
        assert_eq!(answers[0].status, status, "{tool}: {answers:?}");
        assert_eq!([tokens(&redis, "shared").await, tokens(&redis, "user:alice").await], [charged; 2], "{tool}");
    }
}

/// The chain is that of ToolHive's operator: its rate limit stands before what may refuse.
#[tokio::test]
async fn a_call_is_one_command_for_its_session_and_one_for_its_limits() {
    let (redis, server) = (redis().await, Server::go().await);
    let limits =
        json!({"shared": hourly(1000), "perUser": hourly(1000), "tools": [{"name": "greet", "shared": hourly(1000)}]});
    let parameters = json!({"namespace": "ns", "server_name": "demo", "config": limits, "redis_addr": redis.address()});
    let policies =
        json!({"version": "1.0", "type": "cedarv1", "cedar": {"policies": ["permit(principal, action, resource);"]}});
    let members = json!({
        "rate_limit_config": limits, "rate_limit_namespace": "ns",
        "scaling_config": {"session_redis": {"address": redis.address()}},
        "middleware_configs": [
            {"type": "bodylimit", "parameters": {}},
            {"type": "auth", "parameters": {}},
            {"type": "mcp-parser", "parameters": {}},
            {"type": "ratelimit", "parameters": parameters},
            {"type": "authorization", "parameters": {"config_data": policies}},
            {"type": "recovery", "parameters": null},
        ],
    });
    let runner = Runner::http_with(&server.url(), &members, &[("USER", "carol")]).await;
    let session = runner.session().await;
    let greet =
        r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"greet","arguments":{"name":"Ada"}}}"#;
    let headers = [("mcp-session-id", &*session)];
    let call = || runner.post(&headers, greet);
    assert_eq!(call().await.status, 200);
    let mut monitor = redis.monitor().await.unwrap();
    for _ in 0..10 {
        let answer = call().await;
        assert!(answer.status == 200 && answer.body.contains("Hi Ada"), "{answer:?}");
    }
    let commands = monitor.commands().await.unwrap();
    let (limits, sessions): (Vec<_>, Vec<_>) = commands.iter().partition(|command| command.contains("thv:rl:"));
    assert_eq!((limits.len(), sessions.len()), (10, 10), "{commands:#?}");
    assert!(sessions.iter().all(|command| command.contains("thv:proxy:session:")), "{commands:#?}");
    assert_eq!(tokens(&redis, "user:carol").await, Some(989.0), "who does not log in is the local user");
}

#[tokio::test]
async fn calls_that_redis_does_not_count_pass_and_are_counted_or_are_refused() {
    for fail_closed in [false, true] {
        let mut redis = redis().await;
        let toxic = Toxic::before(&redis.address()).await.unwrap();
        let members = json!({"portcullis": {"rate_limits_fail_closed": fail_closed}, "audit_config": {}});
        let limits = limited(&json!({"perUser": hourly(1)}), &toxic.address());
        let mut world = World::start(1, &with(limits, members)).await;
        assert_eq!(world.call("alice", "echo").await.0.status, 200);
        assert_eq!(world.call("alice", "echo").await.0.status, 429);

        redis.kill().await.unwrap();
        for _ in 0..5 {
            let (answer, served) = world.call("alice", "echo").await;
            if fail_closed {
                let message = json!({"code": -32603, "message": "Rate limits cannot be checked"});
                assert_eq!((answer.status, &answer.message()["error"]), (503, &message), "{answer:?}");
                assert_eq!((answer.header("retry-after"), served), (Some("1"), false));
            } else {
                assert_eq!((answer.status, served), (200, true), "{answer:?}");
            }
        }
        let outcome = if fail_closed { "failed" } else { "ignored" };
        assert_eq!(world.decisions(outcome).await, 5);
        let said = |log: &str| log.matches("Redis does not count them for their rate limits").count();
        assert_eq!(said(&world.runners[0].log()), 1, "{}", world.runners[0].log());
        assert_eq!(world.runners[0].get("/readyz").await.status, 200, "no other pod would have Redis");

        redis.start_again().await.unwrap();
        let counts_again = async {
            while world.call("alice", "echo").await.0.status != 429 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        within("the proxy to count again", counts_again).await;
        // Redis has kept nothing, so that the user has had another token.
        let (allowed, denied) = (world.decisions("allowed").await, world.decisions("denied").await);
        assert_eq!((allowed, denied), (2, 2));
        let metrics = world.runners[0].get("/metrics").await.body;
        let series = r#"mcp_runner_rate_limit_refusals_total{scope="per_user",operation="server"} 2"#;
        assert!(metrics.lines().any(|line| line == series), "{metrics}");
        let errors = metrics.lines().filter(|line| line.starts_with("mcp_runner_rate_limit_errors_total{error="));
        let errors: u64 = errors.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
        assert!(errors >= 5, "{metrics}");
        let output = world.runners[0].output();
        assert!(output.contains(r#""denied_by":"ratelimit""#), "{output}");
    }
}

#[tokio::test]
async fn a_redis_that_says_nothing_or_nonsense_costs_no_call() {
    let redis = redis().await;
    let toxic = Toxic::before(&redis.address()).await.unwrap();
    let mut world = World::start(1, &limited(&json!({"perUser": hourly(1)}), &toxic.address())).await;
    assert_eq!(world.call("alice", "echo").await.0.status, 200);
    for fault in [Fault::Silent, Fault::Garbage, Fault::Closed] {
        toxic.set(fault);
        assert_eq!(world.call("alice", "echo").await.0.status, 200, "{fault:?}");
    }
    assert_eq!(world.decisions("ignored").await, 3);
}

#[tokio::test]
async fn a_proxy_with_limits_is_ready_once_redis_has_answered() {
    let (mut redis, server) = (redis().await, Server::go().await);
    redis.kill().await.unwrap();
    let parameters = json!({"namespace": "ns", "server_name": "demo", "config": {"shared": hourly(1)}, "redis_addr": redis.address()});
    let members = json!({"middleware_configs": [
        {"type": "auth", "parameters": {}}, {"type": "mcp-parser", "parameters": {}}, {"type": "ratelimit", "parameters": parameters},
    ]});
    let runner = Runner::http(&server.url(), &members).await;
    eventually("the proxy to wait for Redis alone", || async {
        let ready = runner.get("/readyz").await;
        assert_eq!(ready.status, 503);
        ready.body.contains("Redis").then_some(())
    })
    .await;
    assert_eq!(runner.get("/health").await.status, 200);
    redis.start_again().await.unwrap();
    runner.ready().await;
    redis.kill().await.unwrap();
    assert_eq!(runner.get("/readyz").await.status, 200);
}
