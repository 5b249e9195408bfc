//! Real clients and real servers: what works without the proxy works with it.

use serde_json::{Value, json};

use crate::support::{Runner, SdkClient, Server, go, node_server};

/// Uses the server behind the runner by its tool that greets, and returns the client and its session.
async fn with_client(runner: &Runner, tool: &str, argument: &str, greeting: &str) -> (SdkClient, String) {
    let mut client = SdkClient::new(&runner.url());
    let connected = client.ask(json!({"do": "connect"})).await;
    assert!(connected["session"].is_string(), "{connected}");
    let listed = client.ask(json!({"do": "list"})).await;
    let names: Vec<_> = listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect();
    assert!(names.contains(&json!(tool)), "{names:?}");
    assert_eq!(
        client.call(tool, json!({argument: "Ada \u{e9}\u{1f600}"})).await,
        format!("{greeting}Ada \u{e9}\u{1f600}")
    );
    client.ask(json!({"do": "ping"})).await;
    (client, connected["session"].as_str().unwrap().to_owned())
}

/// Ends the session, after which the proxy knows it no more.
async fn leave(runner: &Runner, mut client: SdkClient, session: &str) {
    client.ask(json!({"do": "leave"})).await;
    let answer = runner.post(&[("mcp-session-id", session)], r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).await;
    assert_eq!((answer.status, answer.message()["error"]["code"].clone()), (404, json!(-32001)), "{answer:?}");
}

async fn counts(client: &mut SdkClient) -> Vec<Value> {
    let slow = json!({"do": "call", "name": "trigger-long-running-operation", "args": {"duration": 1, "steps": 4}, "progress": true});
    client.heard.clear();
    client.ask(slow).await;
    client.heard.iter().filter_map(|line| Some(line.get("progress")?["progress"].clone())).collect()
}

#[tokio::test]
async fn the_go_server_over_http_serves_the_typescript_client() {
    let server = Server::go().await;
    let runner = Runner::http(&server.url(), &json!({})).await;
    let (client, session) = with_client(&runner, "greet", "name", "Hi ").await;
    leave(&runner, client, &session).await;
}

#[tokio::test]
async fn the_node_server_over_http_serves_the_typescript_client_with_progress() {
    let server = Server::node().await;
    let runner = Runner::http(&server.url(), &json!({})).await;
    let (mut client, session) = with_client(&runner, "echo", "message", "Echo: ").await;
    assert_eq!(counts(&mut client).await, [1, 2, 3, 4]);
    leave(&runner, client, &session).await;
}

#[tokio::test]
async fn the_go_server_over_stdio_serves_the_typescript_client() {
    let runner = Runner::stdio(&[go().into()], &json!({})).await;
    let (client, session) = with_client(&runner, "greet", "name", "Hi ").await;
    leave(&runner, client, &session).await;
}

#[tokio::test]
async fn the_node_server_over_stdio_serves_the_typescript_client_with_progress() {
    let runner = Runner::stdio(&["node".into(), node_server().into(), "stdio".into()], &json!({})).await;
    let (mut client, session) = with_client(&runner, "echo", "message", "Echo: ").await;
    assert_eq!(counts(&mut client).await, [1, 2, 3, 4]);
    leave(&runner, client, &session).await;
}

#[tokio::test]
async fn a_server_that_asks_its_client_over_a_shared_pipe_is_refused_and_does_not_hang() {
    let runner = Runner::stdio(&[go().into()], &json!({})).await;
    let mut client = SdkClient::connect(&runner.url()).await;
    // The tool asks its client for its roots; nobody can say which client that is.
    let reply = client.ask(json!({"do": "call", "name": "roots"})).await;
    assert_eq!(reply["isError"], true, "{reply}");
    // `ping` is answered in the clients' place.
    let reply = client.ask(json!({"do": "call", "name": "ping"})).await;
    assert_ne!(reply["isError"], true, "{reply}");
}

#[tokio::test]
async fn a_stateless_client_is_served_over_a_shared_pipe_without_handshake_or_session() {
    use http_body_util::BodyExt as _;
    let runner = Runner::stdio(&[go().into()], &json!({})).await;
    let ask = |id: Value, method: &str, mut params: Value| {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        });
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
    };
    let version = ("mcp-protocol-version", "2026-07-28");
    let modern = |method| [version, ("mcp-method", method)];
    let discovered = runner.post(&modern("server/discover"), &ask(json!(1), "server/discover", json!({}))).await;
    assert_eq!((discovered.status, discovered.header("mcp-session-id")), (200, None));
    assert!(discovered.message()["result"]["supportedVersions"].as_array().unwrap().contains(&json!("2026-07-28")));
    let [version, method] = modern("tools/call");
    let called = runner
        .post(
            &[version, method, ("mcp-name", "greet")],
            &ask(json!("two"), "tools/call", json!({"name": "greet", "arguments": {"name": "Ada"}})),
        )
        .await;
    assert_eq!(called.message()["id"], "two");
    assert_eq!(called.message()["result"]["content"][0]["text"], "Hi Ada");
    // The binding's status for a method that the server does not know.
    let unknown = runner.post(&modern("no/such"), &ask(json!(3), "no/such", json!({}))).await;
    assert_eq!((unknown.status, unknown.message()["error"]["code"].clone()), (404, json!(-32601)));
    // What belongs to a subscription names it by the client's id, not by the one that the process knows.
    let listen = ask(json!("L"), "subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}));
    let [version, method] = modern("subscriptions/listen");
    let accept = ("accept", "application/json, text/event-stream");
    let headers = [version, method, ("content-type", "application/json"), accept];
    let mut stream = runner.send(runner.build(http::Method::POST, "/mcp", &headers, &listen)).await;
    let frame = crate::support::within("the acknowledgement", stream.body_mut().frame()).await.unwrap().unwrap();
    let frame = String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap();
    let message: Value = serde_json::from_str(frame.trim().strip_prefix("event: message\ndata: ").unwrap()).unwrap();
    assert_eq!(message["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], "L");
}
