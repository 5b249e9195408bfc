//! Policies that read what a server says of its tools (toolhive-auth §4.5).

use serde_json::{Value, json};

use super::authorization::authorized;
use super::stdio_modern::META;
use crate::support::{Answer, Recorder, Runner, SdkClient, Server, go};

const READERS: &str = r#"permit(principal, action == Action::"call_tool", resource)
    when { resource has readOnlyHint && resource.readOnlyHint };"#;
const HARMLESS: &str = r#"permit(principal, action == Action::"call_tool", resource)
    unless { resource has destructiveHint && resource.destructiveHint };"#;

fn message(method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).to_string()
}

fn call(tool: &str) -> String {
    message("tools/call", &json!({"name": tool}))
}

fn tool(name: &str, hints: Value) -> Value {
    json!({"name": name, "annotations": hints})
}

/// Answers requests in their order until the client has its answer: each has a method, and a result that is given to it. Returns the answer and what
/// came.
async fn served(
    runner: &Runner,
    backend: &mut Recorder,
    message: &str,
    results: &[Value],
) -> (Answer, Vec<(Value, Option<String>)>) {
    let headers = [("authorization", "Bearer t"), ("mcp-name", "read")];
    let headers = if message.contains("\"read\"") { &headers[..] } else { &headers[..1] };
    let post = runner.post(headers, message);
    tokio::pin!(post);
    let (mut results, mut came) = (results.iter(), Vec::new());
    loop {
        tokio::select! {
            request = backend.next() => {
                let got: Value = serde_json::from_slice(&request.body).unwrap();
                assert_eq!(request.header("authorization"), Some("Bearer t"));
                came.push((got.clone(), request.header("mcp-name").map(str::to_owned)));
                let result = results.next().unwrap_or(&Value::Null);
                request.json("200 OK", "", &json!({"jsonrpc": "2.0", "id": got["id"], "result": result}).to_string()).await;
            }
            answer = &mut post => return (answer, came),
        }
    }
}

#[tokio::test]
async fn the_tools_are_listed_once_for_the_first_call_that_needs_their_hints_all_pages_of_them() {
    let mut backend = Recorder::start().await;
    let runner = Runner::http(&backend.url(), &authorized(&[READERS], json!({}))).await;
    let pages = [
        json!({"tools": [tool("write", json!({"readOnlyHint": false}))], "nextCursor": "two"}),
        json!({"tools": [tool("read", json!({"readOnlyHint": true})), json!({"name": "plain"})]}),
        json!({"content": []}),
    ];
    let (answer, came) = served(&runner, &mut backend, &call("read"), &pages).await;
    assert_eq!((answer.status, answer.message()["result"].clone()), (200, pages[2].clone()));
    let asked: Vec<_> =
        came.iter().map(|(message, name)| (&message["method"], &message["params"], name.as_deref())).collect();
    assert_eq!(asked[0], (&json!("tools/list"), &json!({}), None));
    assert_eq!(asked[1], (&json!("tools/list"), &json!({"cursor": "two"}), None));
    assert_eq!(asked[2], (&json!("tools/call"), &json!({"name": "read"}), Some("read")));
    assert!(came[0].0["id"].as_str().unwrap().starts_with("portcullis-") && came.len() == 3);
    for (tool, passes) in [("read", true), ("write", false), ("plain", false)] {
        let (answer, came) = served(&runner, &mut backend, &call(tool), &[]).await;
        assert_eq!((answer.status, came.len()), (if passes { 200 } else { 403 }, usize::from(passes)), "{tool}");
    }
    // A tool that no list has is asked for again, and refused.
    let (answer, came) = served(&runner, &mut backend, &call("absent"), &[json!({"tools": []})]).await;
    assert_eq!((answer.status, came.len()), (403, 1), "{answer:?}");
    // So is one of a server that gives no list.
    let (answer, came) = served(&runner, &mut backend, &call("absent"), &[json!({"tools": "none"})]).await;
    assert_eq!((answer.status, came.len()), (403, 1), "{answer:?}");
}

#[tokio::test]
async fn hints_are_learnt_from_the_lists_of_clients_also_of_tools_that_are_hidden() {
    let mut backend = Recorder::start().await;
    let filter = json!({"tools_filter": ["look"], "tools_override": {"read": {"name": "look"}}});
    let policies = [READERS, r#"forbid(principal, action, resource == Tool::"write");"#];
    let runner = Runner::http(&backend.url(), &authorized(&policies, filter)).await;
    for (tools, shown) in [
        (
            json!([tool("read", json!({"readOnlyHint": true})), tool("write", json!({"readOnlyHint": true}))]),
            json!(["look"]),
        ),
        (json!([tool("write", json!({"readOnlyHint": true}))]), json!([])),
    ] {
        let (answer, came) =
            served(&runner, &mut backend, &message("tools/list", &json!({})), &[json!({"tools": tools})]).await;
        let names: Value =
            answer.message()["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect();
        assert_eq!((names, came.len()), (shown, 1));
    }
    let (answer, came) = served(&runner, &mut backend, &call("look"), &[json!({})]).await;
    assert_eq!((answer.status, came.len(), &came[0].0["params"]["name"]), (200, 1, &json!("read")));
    // The last word of the server counts.
    let changed = json!({"tools": [tool("read", json!({"readOnlyHint": false}))]});
    served(&runner, &mut backend, &message("tools/list", &json!({})), &[changed]).await;
    let (answer, came) = served(&runner, &mut backend, &call("look"), &[]).await;
    assert_eq!((answer.status, came.len()), (403, 0));
}

#[tokio::test]
async fn a_first_call_of_a_real_client_needs_no_list_of_its_own_in_both_eras() {
    let server = Server::go().await;
    let members = authorized(&[HARMLESS], json!({}));
    let (http, stdio) = (Runner::http(&server.url(), &members).await, Runner::stdio(&[go().into()], &members).await);
    for runner in [&http, &stdio] {
        let mut client = SdkClient::connect(&runner.url()).await;
        assert_eq!(client.call("greet", json!({"name": "Ada"})).await, "Hi Ada");
    }
    let stateless = Runner::stdio(&[go().into()], &members).await;
    let meta: Value = serde_json::from_str(META).unwrap();
    let call = message("tools/call", &json!({"name": "greet", "arguments": {"name": "Ada"}, "_meta": meta}));
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "greet")];
    let answer = stateless.post(&headers, &call).await;
    assert_eq!(answer.message()["result"]["content"][0]["text"], "Hi Ada", "{answer:?}");
}

#[tokio::test]
async fn over_sse_lists_are_filtered_on_the_stream_and_hints_are_known_from_the_clients_own_list() {
    let server = Server::node_sse().await;
    let echo = r#"permit(principal, action == Action::"call_tool", resource == Tool::"echo")
        unless { resource has destructiveHint && resource.destructiveHint };"#;
    let flags = ["--backend".into(), server.url().into()];
    let runner = Runner::start("sse", &authorized(&[echo], json!({})), &flags, &[]).await;
    let mut client = SdkClient::connect(&format!("http://{}/sse", runner.address)).await;
    let echo = json!({"do": "call", "name": "echo", "args": {"message": "x"}});
    let early = client.fails(echo).await;
    assert!(early["failed"].as_str().unwrap().contains("Unauthorized"), "{early}");
    let listed = client.ask(json!({"do": "list"})).await;
    let names: Vec<_> = listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["echo"], "{listed}");
    assert_eq!(client.call("echo", json!({"message": "x"})).await, "Echo: x");
    let hidden = client.fails(json!({"do": "call", "name": "get-sum", "args": {"a": 1, "b": 2}})).await;
    assert!(hidden["failed"].as_str().unwrap().contains("Unauthorized"), "{hidden}");
}
