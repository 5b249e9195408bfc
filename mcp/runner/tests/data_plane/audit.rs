//! A line for each request: who asked for what, what became of it, and what each guard decided (M6; toolhive-runner §2.6).

use std::fs::File;
use std::path::Path;
use std::process::Command;

use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Issuer, Recorder, Runner, Signer, TlsFront, eventually};

const JSON: [(&str, &str); 2] =
    [("content-type", "application/json"), ("accept", "application/json, text/event-stream")];

/// A document with audit, and these entries of the chain behind it.
fn audited(config: &Value, entries: &[Value]) -> Value {
    let mut chain = vec![
        json!({"type": "bodylimit", "parameters": {"max_bytes": 4096}}),
        json!({"type": "audit", "parameters": {"config_data": config, "transport_type": "streamable-http"}}),
    ];
    chain.extend_from_slice(entries);
    json!({"middleware_configs": chain})
}

fn plain(config: &Value) -> Value {
    audited(config, &[json!({"type": "auth"}), json!({"type": "mcp-parser"}), json!({"type": "recovery"})])
}

fn call(tool: &str) -> String {
    json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": tool, "arguments": {"text": "hi"}}})
        .to_string()
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

/// The lines on standard output, once there are so many.
async fn written(runner: &Runner, count: usize) -> Vec<Value> {
    eventually(&format!("{count} lines of audit"), || async {
        let lines = lines(&runner.output());
        (lines.len() >= count).then_some(lines)
    })
    .await
}

/// A request, what the server answers if it gets it, and the members of the event.
type Row<'a> = (&'a str, Method, &'a str, Vec<(&'a str, &'a str)>, String, Option<(&'a str, &'a str)>, Value);

// M6
#[tokio::test]
async fn each_outcome_is_told_with_its_caller_its_target_and_the_decisions_of_guards() {
    let signer = Signer::rsa("k");
    let issuer = Issuer::start(vec![signer.clone()]).await;
    let mut claims = issuer.claims("alice");
    claims["name"] = "Alice".into();
    claims["act"] = json!({"iss": "https://agents", "sub": "agent-1"});
    let token = format!("Bearer {}", signer.sign("RS256", &claims));
    let (mut backend, mut reviewer) = (Recorder::start().await, Recorder::start().await);
    let front = TlsFront::before(reviewer.address).await;
    let tools = json!({"filter_tools": ["say", "fail"], "tools_override": {"echo": {"name": "say"}}});
    let webhook = json!({
        "name": "policy", "url": format!("https://{}/review", front.address), "timeout": 20_000_000_000_i64,
        "failure_policy": "fail", "tls_config": {"ca_bundle_path": front.ca()},
    });
    let document = audited(
        &json!({"component": "gateway", "maxDataSize": 200}),
        &[
            json!({"type": "auth", "parameters": {"oidc_config": issuer.login(&json!({}))}}),
            json!({"type": "tool-filter", "parameters": tools}),
            json!({"type": "tool-call-filter", "parameters": tools}),
            json!({"type": "mcp-parser"}),
            json!({"type": "validating-webhook", "parameters": {"webhooks": [webhook]}}),
            json!({"type": "recovery"}),
        ],
    );
    let flags = ["--backend", &backend.url(), "--allow-endpoint-cidr", "127.0.0.0/8"].map(Into::into);
    let runner = Runner::start("streamable-http", &document, &flags, &[]).await;
    let alice = [
        &JSON[..],
        &[
            ("authorization", &*token),
            ("user-agent", "recorder/1.0"),
            ("x-request-id", "r-1"),
            ("cookie", "sid=c00k1e"),
            ("x-api-key", "ap1-k3y"),
            ("referer", "http://u:p4ss@h/"),
        ],
    ]
    .concat();
    let long = format!("{}{}", call("say"), " ".repeat(5000));
    let result = Some(("200 OK", r#"{"jsonrpc":"2.0","id":2,"result":{}}"#));
    let (allow, deny) =
        (r#"{"version":"v0.1.0","uid":"u","allowed":true}"#, r#"{"version":"v0.1.0","uid":"u","allowed":false}"#);
    let by_policy = json!({"user": "Alice", "user_id": "alice"});
    let rows: Vec<Row<'_>> = vec![
        (
            allow,
            Method::POST,
            "/mcp?key=s3cret",
            alice.clone(),
            call("say"),
            result,
            json!({
                "type": "mcp_tool_call", "outcome": "success", "component": "gateway", "subjects": by_policy,
                "target": {"endpoint": "/mcp", "method": "tools/call", "name": "echo", "type": "tool"},
                "delegation": {"chain": [{"iss": "https://agents", "sub": "agent-1"}], "truncated": false, "omitted": 0, "malformed": false},
                "source": {"type": "network", "value": "127.0.0.1", "extra": {"request_id": "r-1", "user_agent": "recorder/1.0"}},
                "/extra/requested_name": "say", "/extra/transport": "http",
                "/guards": [["endpoints", "allowed"], ["origin", "allowed"], ["auth", "allowed"], ["tool-call-filter", "changed"], ["policy", "allowed"]],
            }),
        ),
        (
            allow,
            Method::POST,
            "/mcp",
            alice.clone(),
            call("fail"),
            Some(("200 OK", r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32000,"message":"broke"}}"#)),
            json!({
                "outcome": "application_error", "/extra/jsonrpc_error_code": -32000, "/extra/jsonrpc_error_message": "broke",
            }),
        ),
        (
            allow,
            Method::POST,
            "/mcp",
            alice.clone(),
            call("fail"),
            Some(("500 Oops", r#"{"error":"boom"}"#)),
            json!({"outcome": "error"}),
        ),
        (
            allow,
            Method::POST,
            "/mcp",
            alice.clone(),
            call("fail"),
            Some(("404 Not Found", "{}")),
            json!({"outcome": "failure"}),
        ),
        (
            deny,
            Method::POST,
            "/mcp",
            alice.clone(),
            call("say"),
            None,
            json!({
                "type": "mcp_tool_call", "outcome": "denied", "/extra/denied_by": "policy",
                "target": {"endpoint": "/mcp", "method": "tools/call", "name": "echo", "type": "tool"},
                "/guards": [["endpoints", "allowed"], ["origin", "allowed"], ["auth", "allowed"], ["tool-call-filter", "changed"], ["policy", "denied"]],
            }),
        ),
        (
            "?",
            Method::POST,
            "/mcp",
            alice.clone(),
            call("say"),
            None,
            json!({
                "type": "mcp_tool_call", "outcome": "denied", "/extra/denied_by": "policy",
                "/guards": [["endpoints", "allowed"], ["origin", "allowed"], ["auth", "allowed"], ["tool-call-filter", "changed"], ["policy", "failed"]],
            }),
        ),
        (
            "",
            Method::POST,
            "/mcp",
            alice.clone(),
            call("rm"),
            None,
            json!({
                "type": "mcp_tool_call", "outcome": "denied", "/extra/denied_by": "tool-call-filter",
                "target": {"endpoint": "/mcp", "method": "tools/call", "name": "rm", "type": "tool"},
            }),
        ),
        (
            "",
            Method::POST,
            "/mcp",
            JSON.to_vec(),
            call("say"),
            None,
            json!({
                "type": "http_request", "outcome": "denied", "subjects": {"user": "anonymous"}, "/extra/denied_by": "auth",
                "target": {"endpoint": "/mcp", "method": "POST", "type": "endpoint"},
            }),
        ),
        (
            "",
            Method::POST,
            "/mcp",
            [&alice[..], &[("origin", "http://127.0.0.1:1"), ("host", "evil")]].concat(),
            call("say"),
            None,
            json!({
                "outcome": "denied", "/extra/denied_by": "origin", "/guards": [["endpoints", "allowed"], ["origin", "denied"]],
            }),
        ),
        (
            "",
            Method::GET,
            "/api/secrets",
            vec![("user-agent", "recorder/1.0")],
            String::new(),
            None,
            json!({
                "type": "http_request", "outcome": "denied", "/extra/denied_by": "endpoints",
                "target": {"endpoint": "/api/secrets", "method": "GET", "type": "endpoint"}, "subjects": {"user": "anonymous"},
            }),
        ),
        ("", Method::POST, "/mcp", alice.clone(), long, None, json!({"type": "http_request", "outcome": "failure"})),
        (
            "",
            Method::POST,
            "/mcp",
            alice.clone(),
            "{}{".into(),
            None,
            json!({"type": "http_request", "outcome": "failure", "subjects": by_policy}),
        ),
        (
            "",
            Method::PUT,
            "/mcp",
            alice.clone(),
            "{}".into(),
            None,
            json!({"type": "http_request", "outcome": "denied"}),
        ),
    ];
    let count = rows.len();
    for (at, (verdict, method, path, headers, body, answer, expected)) in rows.into_iter().enumerate() {
        let (response, ()) = tokio::join!(runner.request(method.clone(), path, &headers, &body), async {
            if !verdict.is_empty() {
                reviewer.next().await.json("200 OK", "", verdict).await;
            }
            if let Some((status, body)) = answer {
                backend.next().await.json(status, "", body).await;
            }
        });
        let event = written(&runner, at + 1).await.swap_remove(at);
        let case = format!("{method} {path} {body:.80}: {response:?} {event}");
        for (name, value) in expected.as_object().unwrap() {
            let found = match name.split_at(1) {
                ("/", "guards") => {
                    let guards = event["metadata"]["extra"]["guards"].as_array().cloned().unwrap_or_default();
                    let name = |guard: &Value| guard.get("webhook").unwrap_or(&guard["guard"]).clone();
                    guards.iter().map(|guard| json!([name(guard), guard["outcome"]])).collect()
                }
                ("/", path) => event["metadata"].pointer(&format!("/{path}")).cloned().unwrap_or_default(),
                _ => event[name].clone(),
            };
            assert_eq!(&found, value, "{name} in {case}");
        }
        assert_eq!((&event["level"], &event["msg"]), (&json!("AUDIT"), &json!("audit_event")), "{case}");
        assert!(event["metadata"]["extra"]["duration_ms"].is_u64(), "{case}");
        assert!(event.get("data").is_none(), "{case}");
    }
    // No secret of a request is in any of them, nor what follows a path.
    let text = runner.output();
    for secret in [
        token.trim_start_matches("Bearer "),
        "s3cret",
        "hi\"",
        "c00k1e",
        "ap1-k3y",
        "p4ss",
        &format!("{}.", &token[7..20]),
    ] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    assert_eq!(lines(&text).len(), count);
    let metrics = runner.get("/metrics").await.body;
    for line in [
        r#"mcp_runner_webhook_calls_total{webhook="policy",type="validating-webhook",outcome="allowed"} 4"#,
        r#"mcp_runner_webhook_calls_total{webhook="policy",type="validating-webhook",outcome="denied"} 1"#,
        r#"mcp_runner_webhook_calls_total{webhook="policy",type="validating-webhook",outcome="failed"} 1"#,
        r#"mcp_runner_guard_decisions_total{guard="tool-call-filter",outcome="denied"} 1"#,
        r#"mcp_runner_guard_decisions_total{guard="auth",outcome="denied"} 1"#,
        r#"mcp_runner_guard_decisions_total{guard="origin",outcome="denied"} 1"#,
        r#"mcp_runner_guard_decisions_total{guard="endpoints",outcome="denied"} 2"#,
        r#"mcp_runner_webhook_call_seconds_count{webhook="policy",type="validating-webhook",outcome="allowed"} 4"#,
        &format!(r#"mcp_runner_audit_events_total{{result="written"}} {count}"#),
        r#"mcp_runner_audit_events_total{result="lost"} 0"#,
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} is not in {metrics}");
    }
}

#[tokio::test]
async fn a_client_that_leaves_is_told_and_a_stream_when_it_begins() {
    let mut backend = Recorder::start().await;
    let runner = Runner::http(&backend.url(), &plain(&json!({}))).await;
    let body = call("slow");
    let (waiting, request) = (runner.build(Method::POST, "/mcp", &JSON, &body), backend.next());
    let leaving = tokio::select! {
        _ = runner.send(waiting) => panic!("nobody answers"),
        request = request => request,
    };
    let event = written(&runner, 1).await.swap_remove(0);
    assert_eq!(
        (&event["outcome"], &event["metadata"]["extra"]["cancelled"]),
        (&json!("failure"), &json!(true)),
        "{event}"
    );
    drop(leaving);
    let get = runner.build(Method::GET, "/mcp", &[("accept", "text/event-stream")], "");
    let (stream, _server) = tokio::join!(runner.send(get), async {
        let mut request = backend.next().await;
        request.part("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n").await;
        request
    });
    let event = written(&runner, 2).await.swap_remove(1);
    assert_eq!((&event["type"], &event["outcome"]), (&json!("sse_connection"), &json!("success")), "{event}");
    assert_eq!(event["target"], json!({"endpoint": "/mcp", "method": "GET", "type": "sse_endpoint"}));
    assert!(event["metadata"]["extra"].get("duration_ms").is_none(), "{event}");
    drop(stream);
}

#[tokio::test]
async fn data_is_whole_or_absent_and_an_event_is_one_line() {
    let mut backend = Recorder::start().await;
    let config = json!({"includeRequestData": true, "includeResponseData": true, "maxDataSize": 120, "excludeEventTypes": ["mcp_ping"]});
    let runner = Runner::http(&backend.url(), &plain(&config)).await;
    let short = "{\"jsonrpc\":\"2.0\",\n \"id\":2, \"method\":\"tools/list\"}";
    let long =
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {"cursor": "x".repeat(200)}}).to_string();
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#.to_owned();
    for body in [ping, short.to_owned(), long] {
        let ((), _) = tokio::join!(
            async { backend.next().await.json("200 OK", "", "{\"jsonrpc\":\"2.0\",\n\"id\":2,\"result\":{}}").await },
            runner.post(&[], &body)
        );
    }
    let events = written(&runner, 2).await;
    let answer = json!({"jsonrpc": "2.0", "id": 2, "result": {}});
    assert_eq!(
        events[0]["data"],
        json!({"request": serde_json::from_str::<Value>(short).unwrap(), "response": answer})
    );
    assert_eq!(events[1]["data"], json!({"response": answer}));
    assert_eq!(events[1]["metadata"]["extra"]["response_size_bytes"], 37);
}

fn lost(metrics: &str) -> u64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(r#"mcp_runner_audit_events_total{result="lost"} "#));
    line.unwrap().parse().unwrap()
}

async fn serves(runner: &Runner, backend: &mut Recorder, calls: usize) {
    // Each event is as long as its user agent lets it be.
    let (agent, body) = ("a".repeat(256), call("say"));
    let headers = [("user-agent", &*agent)];
    for _ in 0..calls {
        let (answer, ()) = tokio::join!(runner.post(&headers, &body), async {
            backend.next().await.json("200 OK", "", "{}").await;
        });
        assert_eq!(answer.status, 200);
    }
}

#[tokio::test]
async fn a_full_disk_costs_events_and_no_call() {
    let mut backend = Recorder::start().await;
    let runner = Runner::http(&backend.url(), &plain(&json!({"logFile": "/dev/full"}))).await;
    serves(&runner, &mut backend, 3).await;
    eventually("the events to be counted as lost", || async {
        (lost(&runner.get("/metrics").await.body) == 3).then_some(())
    })
    .await;
    runner.logged("audit events are lost").await;
}

#[tokio::test]
async fn a_blocked_pipe_costs_events_and_no_call_and_the_last_are_counted() {
    let (directory, mut backend) = (TempDir::new().unwrap(), Recorder::start().await);
    let pipe = directory.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let nobody_reads = open(&pipe);
    let config = json!({"logFile": pipe, "includeRequestData": true, "maxDataSize": 4000});
    let mut runner = Runner::http(&backend.url(), &plain(&config)).await;
    let mut body = call("say");
    body = body.replace("hi", &"x".repeat(3500));
    let mut calls = 0;
    // A share of the queue is 2 MiB, and the pipe takes 64 KiB.
    while lost(&runner.get("/metrics").await.body) == 0 {
        for _ in 0..100 {
            let (answer, ()) = tokio::join!(runner.post(&[], &body), async {
                backend.next().await.json("200 OK", "", "{}").await;
            });
            assert_eq!(answer.status, 200);
            calls += 1;
        }
        assert!(calls < 5000, "nothing is lost");
    }
    runner.terminate();
    assert!(runner.ended().await.success());
    // The pipe has 64 KiB of the first events; each of all others is lost.
    runner.logged("the output took none of them until the end").await;
    let log = runner.log();
    let told = log.lines().rfind(|line| line.contains("audit events are lost")).unwrap();
    let told = told.split("lost=").nth(1).unwrap().split(' ').next().unwrap();
    let left: usize = told.parse().unwrap();
    assert!((calls - 20..calls).contains(&left), "{left} of {calls} events are told as lost");
    drop(nobody_reads);
}

/// Opens a pipe. For reading and writing at once, it opens without anybody at its other end.
fn open(pipe: &Path) -> File {
    File::options().read(true).write(true).open(pipe).unwrap()
}

#[tokio::test]
async fn the_last_events_are_written_before_the_proxy_ends_and_off_is_off() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("audit.log");
    let mut backend = Recorder::start().await;
    let mut runner = Runner::http(&backend.url(), &plain(&json!({"logFile": file}))).await;
    serves(&runner, &mut backend, 20).await;
    runner.terminate();
    assert!(runner.ended().await.success());
    assert_eq!(lines(&std::fs::read_to_string(&file).unwrap()).len(), 20);
    assert_eq!(runner.output(), "");
    let runner = Runner::http(&backend.url(), &plain(&json!({"enabled": false}))).await;
    serves(&runner, &mut backend, 1).await;
    assert!(!runner.get("/metrics").await.body.contains("audit_events"));
    assert_eq!(runner.output(), "");
}

/// The names of a proxy's metrics in a text, without the suffixes of counters and histograms.
fn metrics_in(text: &str) -> std::collections::BTreeSet<&str> {
    let starts = text.match_indices("mcp_runner_").map(|(at, _)| &text[at..]);
    let names = starts.map(|rest| rest.split(|c: char| !c.is_ascii_lowercase() && c != '_').next().unwrap());
    let suffixes = ["_total", "_bucket", "_sum", "_count"];
    names.map(|name| suffixes.iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name)).collect()
}

// M6
#[tokio::test]
async fn the_dashboard_and_the_pages_name_no_metric_that_there_is_not() {
    let backend = Recorder::start().await;
    let webhook = json!({"name": "w", "url": "https://127.0.0.1:1", "timeout": 0, "failure_policy": "ignore"});
    let mut tried = webhook.clone();
    tried["portcullis"] = json!({"mode": "shadow"});
    let telemetry =
        json!({"endpoint": "127.0.0.1:1", "insecure": true, "tracingEnabled": true, "metricsEnabled": true});
    let limits = json!({"shared": {"maxTokens": 1, "refillPeriod": "1s"}});
    let exchange = json!({"token_url": "http://127.0.0.1:1/token", "client_id": "c", "audience": "a"});
    let entries = [
        json!({"type": "auth"}),
        json!({"type": "tokenexchange", "parameters": {"token_exchange_config": exchange}}),
        json!({"type": "telemetry", "parameters": {"config": telemetry}}),
        json!({"type": "mcp-parser"}),
        json!({"type": "validating-webhook", "parameters": {"webhooks": [webhook, tried]}}),
        json!({"type": "ratelimit", "parameters": {"config": limits, "redis_addr": "127.0.0.1:1"}}),
    ];
    let runner = Runner::http(&backend.url(), &audited(&json!({}), &entries)).await;
    assert_eq!(runner.get("/no/endpoint").await.status, 404);
    let issuer = Issuer::start(Vec::new()).await;
    let roles = json!({"region": "us-east-1", "fallback_role_arn": "arn:aws:iam::123456789012:role/readers"});
    let members = json!({"oidc_config": issuer.login(&json!({})), "aws_sts_config": roles, "remote_url": backend.url(), "middleware_configs": []});
    let flags = ["--allow-endpoint-cidr", "127.0.0.0/8"].map(Into::into);
    let signing = Runner::start("streamable-http", &members, &flags, &[]).await;
    let report = runner.get("/metrics").await.body + &signing.get("/metrics").await.body;
    let known = metrics_in(&report);
    for (page, text) in [
        ("dashboard", include_str!("../../../../docs/src/reference/gate-dashboard.json")),
        ("reference", include_str!("../../../../docs/src/reference/requests.md")),
        ("telemetry", include_str!("../../../../docs/src/reference/telemetry.md")),
        ("how-to", include_str!("../../../../docs/src/how-to/audit.md")),
    ] {
        let named = metrics_in(text);
        assert!(named.len() > 1, "{page}");
        assert_eq!(named.difference(&known).collect::<Vec<_>>(), Vec::<&&str>::new(), "{page}");
    }
    let dashboard: Value =
        serde_json::from_str(include_str!("../../../../docs/src/reference/gate-dashboard.json")).unwrap();
    let targets = dashboard["panels"].as_array().unwrap().iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    for target in targets {
        assert_eq!(metrics_in(target["expr"].as_str().unwrap()).len(), 1, "{target}");
    }
}
