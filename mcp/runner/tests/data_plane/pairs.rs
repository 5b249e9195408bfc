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
