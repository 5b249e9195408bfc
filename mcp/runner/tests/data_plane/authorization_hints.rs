//! Policies that read what a server says of its tools (toolhive-auth §4.5).

use futures::future::join_all;
use serde_json::{Value, json};

use super::authorization::authorized;
use super::stdio_modern::META;
use crate::support::{Answer, Recorder, Runner, SdkClient, Server, eventually, go};

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
    // The list of a moment ago has answered for a tool that is not there.
    let (answer, came) = served(&runner, &mut backend, &call("absent"), &[]).await;
    assert_eq!((answer.status, came.len()), (403, 0), "{answer:?}");
    runner.logged("listed the MCP server's tools as their caller").await;
}

#[tokio::test]
async fn a_tool_that_no_list_has_is_refused_and_the_log_says_why_there_was_none() {
    let mut backend = Recorder::start().await;
    let runner = Runner::http(&backend.url(), &authorized(&[READERS], json!({}))).await;
    // A server that gives no list is asked again, and one whose list has no end is asked fifty times.
    for (result, pages) in
        [(json!({"tools": "none"}), 1), (json!({"tools": "none"}), 1), (json!({"tools": [], "nextCursor": "more"}), 50)]
    {
        let results = vec![result.clone(); pages + 1];
        let (answer, came) = served(&runner, &mut backend, &call("absent"), &results).await;
        assert_eq!((answer.status, came.len()), (403, pages), "{result}: {answer:?}");
    }
    assert!(runner.log().contains("authorization: its list is malformed"), "{}", runner.log());
}

#[tokio::test]
async fn calls_that_need_a_list_wait_for_one_and_few_of_a_client_do() {
    let mut backend = Recorder::start().await;
    let runner = Runner::http(&backend.url(), &authorized(&[READERS], json!({}))).await;
    let calls: Vec<_> = (0..7).map(|at| call(&format!("absent{at}"))).chain([call("read")]).collect();
    let mut waiting = join_all(calls.iter().map(|call| Box::pin(runner.post(&[], call))));
    let list = tokio::select! {
        _ = &mut waiting => panic!("they wait"),
        list = backend.next() => list,
    };
    tokio::select! {
        _ = &mut waiting => panic!("they wait"),
        () = eventually("eight calls to wait", || async {
            let metrics = runner.get("/metrics").await.body;
            metrics.contains("mcp_runner_bound_used_ratio{bound=\"hint_lists\"} 0.03125").then_some(())
        }) => {}
    }
    let (answer, got) = (runner.post(&[], &call("ninth")).await, backend.is_quiet());
    assert_eq!((answer.status, got), (403, true), "{answer:?}");
    let asked: Value = serde_json::from_slice(&list.body).unwrap();
    assert_eq!(asked["method"], "tools/list");
    let tools = json!([tool("read", json!({"readOnlyHint": true}))]);
    let answer = |id: &Value, result: &Value| json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string();
    list.json("200 OK", "", &answer(&asked["id"], &json!({"tools": tools}))).await;
    let (answers, ()) = tokio::join!(waiting, async {
        let call = backend.next().await;
        assert!(String::from_utf8_lossy(&call.body).contains("\"read\""));
        call.json("200 OK", "", &answer(&json!(7), &json!({}))).await;
    });
    let statuses: Vec<_> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [403, 403, 403, 403, 403, 403, 403, 200]);
    assert!(backend.is_quiet(), "one list answers for all of them");
}

#[tokio::test]
async fn hints_hold_until_the_server_says_that_its_tools_have_changed() {
    let mut backend = Recorder::start().await;
    let runner = Runner::http(&backend.url(), &authorized(&[READERS], json!({}))).await;
    let list = |read: bool| json!({"tools": [tool("read", json!({"readOnlyHint": read}))]});
    let (answer, came) = served(&runner, &mut backend, &call("read"), &[list(true), json!({})]).await;
    assert_eq!((answer.status, came.len()), (200, 2));
    let (changed, read) = (r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#, call("read"));
    let events = format!("data: {changed}\n\ndata: {}\n\n", json!({"jsonrpc": "2.0", "id": 7, "result": {}}));
    let length = events.len();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {length}\r\n\r\n");
    let (answer, ()) = tokio::join!(runner.post(&[], &read), async {
        backend.next().await.answer(head + &events).await;
    });
    assert_eq!(answer.body, events);
    let (answer, came) = served(&runner, &mut backend, &read, &[list(false)]).await;
    assert_eq!((answer.status, came.len(), &came[0].0["method"]), (403, 1, &json!("tools/list")), "{answer:?}");
}

#[tokio::test]
async fn an_answer_to_something_else_than_a_list_teaches_no_hints() {
    let mut backend = Recorder::start().await;
    let runner = Runner::http(&backend.url(), &authorized(&[READERS], json!({}))).await;
    let list = |read: bool| json!({"tools": [tool("read", json!({"readOnlyHint": read}))]});
    served(&runner, &mut backend, &message("ping", &json!({})), &[list(true)]).await;
    let (answer, came) = served(&runner, &mut backend, &call("read"), &[list(false)]).await;
    assert_eq!((answer.status, came.len(), &came[0].0["method"]), (403, 1, &json!("tools/list")), "{answer:?}");
}

#[tokio::test]
async fn an_odd_hint_withholds_a_list_only_where_a_policy_reads_hints() {
    let mut backend = Recorder::start().await;
    let echo = r#"permit(principal, action == Action::"call_tool", resource == Tool::"read");"#;
    let list = json!({"tools": [tool("read", json!({"readOnlyHint": 1}))]});
    for (policies, status) in [(&[echo][..], 200), (&[echo, READERS], 500)] {
        let runner = Runner::http(&backend.url(), &authorized(policies, json!({}))).await;
        let asked = message("tools/list", &json!({}));
        let (answer, _) = served(&runner, &mut backend, &asked, std::slice::from_ref(&list)).await;
        assert_eq!((answer.status, answer.body.contains("readOnlyHint")), (status, status == 200), "{answer:?}");
    }
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
