//! M6: webhooks and policies in shadow, from the document to the metrics and the audit.

use http::Method;
use serde_json::{Value, json};

use crate::support::{EventStream, Recorder, Runner, eventually};

const JSON: [(&str, &str); 2] =
    [("content-type", "application/json"), ("accept", "application/json, text/event-stream")];

/// A document with audit and this webhook, which judges calls of `deploy`, in this mode.
fn reviewed(hook: &Recorder, mode: &str) -> Value {
    let webhook = json!({
        "name": "trial", "url": hook.url(), "timeout": "30s", "failure_policy": "fail",
        "tls_config": {"insecure_skip_verify": true},
        "portcullis": {"match": {"tools": ["deploy"]}, "mode": mode},
    });
    json!({"middleware_configs": [], "audit_config": {}, "validating_webhooks": [webhook]})
}

fn call(tool: &str) -> String {
    json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": tool}}).to_string()
}

/// The recorded calls, each with the verdict of the recorded webhook, where it is asked.
const RECORDED: [(&str, Option<bool>); 5] =
    [("deploy", Some(false)), ("echo", None), ("deploy", Some(true)), ("deploy", Some(false)), ("read", None)];

/// The audit events of calls, once there are as many as were recorded.
async fn events(runner: &Runner) -> Vec<Value> {
    eventually("an event for each call", || async {
        let lines: Vec<Value> = runner.output().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        (lines.len() == RECORDED.len()).then_some(lines)
    })
    .await
}

fn verdict(allowed: bool) -> String {
    json!({"version": "v0.1.0", "uid": "u", "allowed": allowed}).to_string()
}

async fn start(backend: &Recorder, document: &Value) -> Runner {
    let flags = ["--backend", &backend.url(), "--allow-endpoint-cidr", "127.0.0.0/8"].map(Into::into);
    Runner::start("streamable-http", document, &flags, &[]).await
}

/// The calls are answered before the webhook says anything, and each event tells what it said.
#[tokio::test]
async fn a_shadow_counts_what_enforcement_then_refuses() {
    let result = r#"{"jsonrpc":"2.0","id":2,"result":{}}"#;
    let (mut backend, mut hook) = (Recorder::start().await, Recorder::start().await);
    let runner = start(&backend, &reviewed(&hook, "shadow")).await;
    for (tool, said) in RECORDED {
        let (body, served) = (call(tool), async { backend.next().await.json("200 OK", "", result).await });
        let (answer, ()) = tokio::join!(runner.request(Method::POST, "/mcp", &JSON, &body), served);
        assert_eq!(answer.status, 200, "{tool}");
        if let Some(allowed) = said {
            hook.next().await.json("200 OK", "", &verdict(allowed)).await;
        }
    }
    let mut told: Vec<_> =
        events(&runner).await.into_iter().map(|event| event["metadata"]["extra"]["would_refuse"].clone()).collect();
    told.retain(|refusal| !refusal.is_null());
    let refusal = json!([{"guard": "validating-webhook", "webhook": "trial", "outcome": "denied"}]);
    assert_eq!(told, [refusal.clone(), refusal]);
    let report = runner.get("/metrics").await.body;
    for line in [
        r#"mcp_runner_would_refuse_total{guard="validating-webhook",webhook="trial",subject="call"} 2"#,
        r#"mcp_runner_shadow_decisions_total{guard="validating-webhook",webhook="trial",outcome="allowed"} 1"#,
    ] {
        assert!(report.lines().any(|found| found == line), "{line} is not in {report}");
    }

    let runner = start(&backend, &reviewed(&hook, "enforce")).await;
    let mut refused = 0;
    for (tool, said) in RECORDED {
        let body = call(tool);
        let served = async {
            if let Some(allowed) = said {
                hook.next().await.json("200 OK", "", &verdict(allowed)).await;
            }
            if said != Some(false) {
                backend.next().await.json("200 OK", "", result).await;
            }
        };
        let (answer, ()) = tokio::join!(runner.request(Method::POST, "/mcp", &JSON, &body), served);
        refused += u32::from(answer.status == 403);
    }
    assert_eq!(refused, 2);
}

/// The proxy ends with the event of each call, also where a shadow that is asked about it says nothing.
#[tokio::test]
async fn a_shadow_that_is_silent_costs_no_event_of_audit() {
    let (mut backend, mut hook) = (Recorder::start().await, Recorder::start().await);
    let mut runner = start(&backend, &reviewed(&hook, "shadow")).await;
    let (body, served) = (call("deploy"), async { backend.next().await.json("200 OK", "", "{}").await });
    let (answer, ()) = tokio::join!(runner.request(Method::POST, "/mcp", &JSON, &body), served);
    assert_eq!(answer.status, 200);
    let _silent = hook.next().await;
    assert_eq!(runner.output(), "", "it is asked still");
    // The next answer on the connection comes behind the end of the call.
    assert_eq!(runner.get("/health").await.status, 200);
    let answered = jiff::Timestamp::now();
    runner.terminate();
    assert!(runner.ended().await.success());
    let event = eventually("the event", || async { serde_json::from_str::<Value>(&runner.output()).ok() }).await;
    assert_eq!((&event["type"], &event["metadata"]["extra"]["would_refuse"]), (&json!("mcp_tool_call"), &Value::Null));
    let logged: jiff::Timestamp = event["logged_at"].as_str().unwrap().parse().unwrap();
    assert!(logged < answered, "it has the time of the call: {event}");
}

/// A shadow's webhook that nobody runs costs a count.
#[tokio::test]
async fn a_shadow_that_is_down_refuses_no_call() {
    let mut backend = Recorder::start().await;
    let mut document = reviewed(&backend, "shadow");
    document["validating_webhooks"][0]["url"] = "https://127.0.0.1:1/".into();
    let runner = start(&backend, &document).await;
    let (body, served) = (call("deploy"), async { backend.next().await.json("200 OK", "", "{}").await });
    let (answer, ()) = tokio::join!(runner.request(Method::POST, "/mcp", &JSON, &body), served);
    assert_eq!(answer.status, 200);
    let line = r#"mcp_runner_shadow_decisions_total{guard="validating-webhook",webhook="trial",outcome="failed"} 1"#;
    eventually("the failure to be counted", || async {
        runner.get("/metrics").await.body.lines().any(|found| found == line).then_some(())
    })
    .await;
}

/// A list that policies in shadow need holds one call up for a moment, and the next ones not at all.
#[tokio::test]
async fn a_list_of_tools_that_hangs_holds_no_call_up_for_a_shadow() {
    let mut backend = Recorder::start().await;
    let policies = ["permit(principal, action, resource) when { resource.readOnlyHint };"];
    let policies = json!({"version": "1.0", "type": "cedarv1", "cedar": {"policies": policies}});
    let document = json!({"middleware_configs": [], "portcullis": {"shadow_policies": policies}});
    let runner = start(&backend, &document).await;
    let mut silent = Vec::new();
    for asked in [["tools/list", "tools/call"].as_slice(), &["tools/call"]] {
        let served = async {
            for method in asked {
                let request = backend.next().await;
                let message: Value = serde_json::from_slice(&request.body).unwrap();
                assert_eq!(message["method"], *method);
                match *method {
                    "tools/list" => silent.push(request),
                    _ => request.json("200 OK", "", "{}").await,
                }
            }
        };
        let body = call("deploy");
        let (answer, ()) = tokio::join!(runner.request(Method::POST, "/mcp", &JSON, &body), served);
        assert_eq!(answer.status, 200);
    }
    let report = runner.get("/metrics").await.body;
    let line = r#"mcp_runner_shadow_decisions_total{guard="shadow-authorization",webhook="",outcome="dropped"} 2"#;
    assert!(report.lines().any(|found| found == line), "{report}");
}

/// The lists come on the client's own stream.
#[tokio::test]
async fn over_sse_a_shadow_counts_what_enforcement_hides() {
    let echo = r#"permit(principal, action == Action::"call_tool", resource == Tool::"echo");"#;
    let policies = json!({"version": "1.0", "type": "cedarv1", "cedar": {"policies": [echo], "entities_json": "[]"}});
    let tools = json!([{"name": "echo"}, {"name": "read"}, {"name": "write"}]);
    let list = json!({"jsonrpc": "2.0", "id": 2, "result": {"tools": tools}});
    for (document, left) in [
        (json!({"middleware_configs": [], "portcullis": {"shadow_policies": policies}}), 3),
        (json!({"middleware_configs": [], "authz_config": policies}), 1),
    ] {
        let mut backend = Recorder::start().await;
        let flags = ["--backend", &backend.url(), "--allow-endpoint-cidr", "127.0.0.0/8"].map(Into::into);
        let runner = Runner::start("sse", &document, &flags, &[]).await;
        let accept = [("accept", "text/event-stream")];
        let (mut stream, mut server) = tokio::join!(EventStream::open(&runner, &accept), async {
            let mut server = backend.next().await;
            server.part("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n").await;
            server.part("event: endpoint\ndata: /messages?sessionId=x\n\n").await;
            server
        });
        server.part(&format!("event: message\ndata: {list}\n\n")).await;
        assert_eq!(stream.message().await["result"]["tools"].as_array().unwrap().len(), left);
        if left == 3 {
            let line = r#"mcp_runner_would_refuse_total{guard="shadow-authorization",webhook="",subject="entry"} 2"#;
            eventually("two entries to be counted", || async {
                runner.get("/metrics").await.body.lines().any(|found| found == line).then_some(())
            })
            .await;
        }
    }
}
