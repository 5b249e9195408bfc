//! SIGTERM: no new calls, those under way are answered, streams end, exit code 0.

use http::Method;
use http_body_util::BodyExt as _;
use serde_json::json;
use tokio::net::TcpStream;

use crate::support::{Recorder, Runner, SdkClient, eventually, go, node_server, within};

#[tokio::test]
async fn calls_under_way_are_answered_and_streams_end_when_the_proxy_is_asked_to_end() {
    let mut backend = Recorder::start().await;
    let mut runner = Runner::http(&backend.url(), &json!({})).await;
    let call = tokio::spawn({
        let stream = TcpStream::connect(runner.address).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow"}}"#;
        let post = runner.build(Method::POST, "/mcp", &[("content-type", "application/json")], body);
        async move { sender.send_request(post).await.unwrap().into_body().collect().await.unwrap().to_bytes() }
    });
    let under_way = backend.next().await;
    let get = runner.build(Method::GET, "/mcp", &[("accept", "text/event-stream")], "");
    let (mut stream, _held) = tokio::join!(runner.send(get), async {
        let mut request = backend.next().await;
        request.part("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n").await;
        request
    });
    runner.terminate();
    let end = within("the stream to end", stream.body_mut().frame()).await;
    assert!(end.is_none(), "a clean end, not an error: {end:?}");
    eventually("new connections to be refused", || async { TcpStream::connect(runner.address).await.err() }).await;
    let answer = r#"{"jsonrpc":"2.0","id":1,"result":{"late":true}}"#;
    under_way.json("200 OK", "", answer).await;
    assert_eq!(within("the answer", call).await.unwrap(), answer);
    assert_eq!(runner.ended().await.code(), Some(0), "{}", runner.log());
}

#[tokio::test]
async fn a_stream_that_the_server_has_not_begun_does_not_hold_up_the_end() {
    let mut backend = Recorder::start().await;
    let mut runner = Runner::http(&backend.url(), &json!({})).await;
    let get = runner.build(Method::GET, "/mcp", &[("accept", "text/event-stream")], "");
    let (answer, _held) = tokio::join!(runner.send(get), async {
        let request = backend.next().await;
        runner.terminate();
        request
    });
    assert_eq!(answer.status(), 503);
    assert_eq!(runner.ended().await.code(), Some(0));
    assert!(!runner.log().contains("did not finish in time"), "{}", runner.log());
}

#[tokio::test]
async fn the_last_answer_on_a_connection_says_that_it_ends() {
    let mut backend = Recorder::start().await;
    let runner = Runner::http(&backend.url(), &json!({})).await;
    let held = runner.build(
        Method::POST,
        "/mcp",
        &[("content-type", "application/json")],
        r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#,
    );
    let (answer, ()) = tokio::join!(runner.send(held), async {
        let request = backend.next().await;
        runner.terminate();
        runner.logged("draining").await;
        request.json("200 OK", "", "{}").await;
    });
    assert_eq!(answer.headers().get("connection").unwrap(), "close");
}

#[tokio::test]
async fn a_stdio_server_answers_what_is_under_way_and_ends_with_the_proxy() {
    let command = ["node".into(), node_server().into(), "stdio".into()];
    let mut runner = Runner::stdio(&command, &json!({})).await;
    let mut client = SdkClient::connect(&runner.url()).await;
    let slow = json!({"do": "start", "name": "trigger-long-running-operation", "args": {"duration": 2, "steps": 4}, "progress": true});
    client.ask(slow).await;
    client.hears(|line| line["progress"]["progress"] == 1).await;
    runner.terminate();
    let reply = client.ask(json!({"do": "finish"})).await;
    assert!(reply["content"][0]["text"].as_str().unwrap().contains("completed"), "{reply}");
    assert_eq!(runner.ended().await.code(), Some(0), "{}", runner.log());
}

#[tokio::test]
async fn an_idle_proxy_ends_at_once() {
    let mut runner = Runner::stdio(&[go().into()], &json!({})).await;
    let _session = runner.session().await;
    runner.terminate();
    assert_eq!(runner.ended().await.code(), Some(0), "{}", runner.log());
}
