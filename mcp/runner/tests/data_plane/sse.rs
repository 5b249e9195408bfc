//! Servers of the legacy HTTP+SSE transport behind the proxy (toolhive-runner §1.10, toolhive-0.63 §4.2).

use http::{Method, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::{Value, json};

use crate::support::{INITIALIZE, Issuer, Recorder, Runner, SdkClient, Server, Signer, eventually, within};

async fn runner(backend: &str, members: &Value) -> Runner {
    Runner::start("sse", members, &["--backend".into(), backend.into()], &[]).await
}

fn stream_of(runner: &Runner) -> String {
    format!("http://{}/sse", runner.address)
}

/// Opens a stream and returns it with the URL of its endpoint.
async fn open(runner: &Runner) -> (Response<Incoming>, String) {
    let request = runner.build(Method::GET, "/sse", &[("accept", "text/event-stream")], "");
    let mut stream = runner.send(request).await;
    assert_eq!(stream.status(), 200);
    let frame = within("the endpoint", stream.body_mut().frame()).await.unwrap().unwrap().into_data().unwrap();
    let text = String::from_utf8(frame.to_vec()).unwrap();
    let url = text.lines().find_map(|line| line.strip_prefix("data:")).unwrap().trim().to_owned();
    (stream, url)
}

async fn post(runner: &Runner, url: &str) -> u16 {
    runner.request(Method::POST, url, &[("content-type", "application/json")], INITIALIZE).await.status
}

#[tokio::test]
async fn two_clients_call_tools_and_each_gets_its_own_answers() {
    let server = Server::node_sse().await;
    let runner = runner(&server.url(), &json!({})).await;
    let mut clients = [SdkClient::connect(&stream_of(&runner)).await, SdkClient::connect(&stream_of(&runner)).await];
    for round in 0..5 {
        for (name, client) in clients.iter_mut().enumerate() {
            let said = format!("{name} {round}");
            assert_eq!(client.call("echo", json!({"message": said})).await, format!("Echo: {said}"));
        }
    }
}

#[tokio::test]
async fn a_client_neither_sees_nor_calls_a_tool_that_is_filtered_out() {
    let server = Server::node_sse().await;
    let parameters = json!({"filter_tools": ["echo"]});
    let chain = json!({"middleware_configs": [
        {"type": "tool-filter", "parameters": parameters},
        {"type": "tool-call-filter", "parameters": parameters},
        {"type": "mcp-parser", "parameters": {}},
    ]});
    let runner = runner(&server.url(), &chain).await;
    let mut client = SdkClient::connect(&stream_of(&runner)).await;
    let listed = client.ask(json!({"do": "list"})).await;
    let tools: Vec<_> = listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(tools, ["echo"], "{listed}");
    assert_eq!(client.call("echo", json!({"message": "x"})).await, "Echo: x");

    // A denial is the answer to the POST: it never reaches the server, nor the stream.
    let (_stream, url) = open(&runner).await;
    let call =
        r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"get-sum","arguments":{"a":1,"b":2}}}"#;
    let denied = runner.request(Method::POST, &url, &[("content-type", "application/json")], call).await;
    // An error status: a client does not wait for an answer on the stream then.
    assert_eq!(denied.status, 400, "{}", denied.body);
    assert!(denied.body.contains("tool not found"), "{}", denied.body);
}

#[tokio::test]
async fn a_message_needs_the_session_of_an_open_stream() {
    let server = Server::node_sse().await;
    let runner = runner(&server.url(), &json!({"endpoint_prefix": "/gateway"})).await;
    let (stream, url) = open(&runner).await;
    let url = url.strip_prefix("/gateway").unwrap().to_owned();
    assert_eq!(post(&runner, &url).await, 202);
    for refused in ["/message", "/message?sessionId=absent", &format!("{url}&session_id=absent")] {
        assert_eq!(post(&runner, refused).await, 404, "{refused}");
    }
    drop(stream);
    eventually("the session to end", || async { (post(&runner, &url).await == 404).then_some(()) }).await;
}

#[tokio::test]
async fn a_stream_ends_with_its_server_and_another_can_be_opened() {
    let mut server = Server::node_sse().await;
    let runner = runner(&server.url(), &json!({})).await;
    let (stream, url) = open(&runner).await;
    server.kill().await;
    let _ = within("the end of the stream", stream.into_body().collect()).await;
    eventually("the session to end", || async { (post(&runner, &url).await == 404).then_some(()) }).await;
    server.start().await;
    let mut client = SdkClient::connect(&stream_of(&runner)).await;
    assert_eq!(client.call("echo", json!({"message": "again"})).await, "Echo: again");
}

#[tokio::test]
async fn a_stream_whose_endpoint_names_no_session_is_never_shown() {
    let mut server = Recorder::start().await;
    let runner = runner(&server.url(), &json!({})).await;
    let answer = async { runner.request(Method::GET, "/sse", &[], "").await };
    let serve = async {
        let mut request = server.next().await;
        request.part("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n").await;
        request.part("event: endpoint\ndata: //elsewhere.example/message?sessionId=x\n\n").await;
        request
    };
    let (answer, _open) = tokio::join!(answer, serve);
    assert_eq!(answer.status, 502, "{}", answer.body);
}

#[tokio::test]
async fn comments_keep_the_stream_of_a_client_open_and_its_end_is_the_servers() {
    let mut server = Recorder::start().await;
    let runner = runner(&server.url(), &json!({})).await;
    let ((mut client, _), mut request) = tokio::join!(open(&runner), async {
        let mut request = server.next().await;
        request.part("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n").await;
        request.part("event: endpoint\ndata: /message?sessionId=x\n\n").await;
        request
    });
    for (said, shown) in [
        (": ping - 1\r\n\r\n", ": keep-alive\n\n"),
        ("data: {}\nid: 7\n\n", "id: 7\ndata: {}\n\n"),
        (":\n", ": keep-alive\n\n"),
    ] {
        request.part(said).await;
        let frame = within("what the client sees", client.body_mut().frame()).await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), shown);
    }
    drop(client);
    within("the server's stream to end", request.left()).await;
}

#[tokio::test]
async fn a_session_takes_messages_of_the_login_alone_that_opened_it() {
    let signer = Signer::ec("a");
    let issuer = Issuer::start(vec![signer.clone()]).await;
    let mut server = Recorder::start().await;
    let flags = ["--backend", &server.url(), "--allow-endpoint-cidr", "127.0.0.0/8"].map(Into::into);
    let runner = Runner::start("sse", &json!({"oidc_config": issuer.login(&json!({}))}), &flags, &[]).await;
    let [alice, bob] = ["alice", "bob"].map(|name| format!("Bearer {}", signer.sign("ES256", &issuer.claims(name))));
    let get = runner.build(Method::GET, "/sse", &[("authorization", &alice)], "");
    let (stream, _request) = tokio::join!(runner.send(get), async {
        let mut request = server.next().await;
        request.part("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n").await;
        request.part("event: endpoint\ndata: /message?sessionId=x\n\n").await;
        request
    });
    assert_eq!(stream.status(), 200);
    let says = |who: Option<&str>| {
        let headers: Vec<_> = who.into_iter().map(|who| ("authorization", who)).collect();
        let all = [&[("content-type", "application/json")], headers.as_slice()].concat();
        runner.send(runner.build(Method::POST, "/message?sessionId=x", &all, INITIALIZE))
    };
    assert_eq!(says(Some(&bob)).await.status(), 404);
    assert_eq!(says(None).await.status(), 401);
    // The next that the server hears is alice: nobody else's message reached it.
    let (accepted, ()) = tokio::join!(says(Some(&alice)), async {
        let mut request = server.next().await;
        assert!(request.head.starts_with("POST /message?sessionId=x"), "{}", request.head);
        request.part("HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n").await;
    });
    assert_eq!(accepted.status(), 202);
}
