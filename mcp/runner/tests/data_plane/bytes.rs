//! Bytes in, bytes out.

use http::Method;
use serde_json::json;

use crate::support::{Recorder, Runner, within};

/// White space, key order, escapes, big numbers and unknown members: nothing is tidied up on the way.
const ODD: &str = "{ \"params\" :{\"z\":1.0,\"a\":1e2, \"name\":\"caf\\u00e9 \\u0022 \\/ é\",\"arguments\":{ }, \"n\":12345678901234567890 },\r\n\t\"method\":\"tools/call\",\"extra\":[ ], \"id\": \"\\u0061\" ,\"jsonrpc\":\"2.0\"}\n";

#[tokio::test]
async fn forwarded_bytes_are_the_received_bytes_both_ways() {
    let mut backend = Recorder::start().await;
    let runner = Runner::http(&backend.url(), &json!({})).await;
    let answer =
        "{\"result\" : {\"x\":1.50,\"text\":\"\\ud83d\\ude00\" },\n \"id\":\"\\u0061\",\"jsonrpc\":\"2.0\" }\n";
    let (got, ()) = tokio::join!(runner.post(&[("x-custom", "kept"), ("authorization", "Bearer t")], ODD), async {
        let request = backend.next().await;
        assert_eq!(String::from_utf8_lossy(&request.body), ODD);
        assert!(request.head.starts_with("POST /mcp HTTP/1.1\r\n"), "{}", request.head);
        assert_eq!(request.header("host"), Some(backend.address.to_string().as_str()));
        assert_eq!(request.header("x-custom"), Some("kept"));
        assert_eq!(request.header("authorization"), Some("Bearer t"));
        assert_eq!(request.header("x-forwarded-for"), Some("127.0.0.1"));
        assert_eq!(request.header("x-forwarded-proto"), Some("http"));
        assert_eq!(request.header("x-forwarded-host"), Some(runner.address.to_string().as_str()));
        request.json("200 OK", "x-answer: kept\r\nkeep-alive: timeout=9\r\n", answer).await;
    });
    assert_eq!((got.status, got.body.as_str()), (200, answer));
    assert_eq!(got.header("x-answer"), Some("kept"));
    assert_eq!(got.header("keep-alive"), None);
}

#[tokio::test]
async fn what_a_client_says_of_its_way_here_is_not_believed() {
    let mut backend = Recorder::start().await;
    let runner = Runner::http(&backend.url(), &json!({"trust_proxy_headers": true})).await;
    let headers = [
        ("x-forwarded-for", "10.9.8.7"),
        ("x-forwarded-host", "evil.example"),
        ("x-forwarded-prefix", "/evil"),
        ("forwarded", "for=1"),
    ];
    tokio::join!(runner.post(&headers, r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#), async {
        let request = backend.next().await;
        assert!(!request.head.contains("10.9.8.7") && !request.head.contains("evil"), "{}", request.head);
        assert_eq!(request.header("forwarded"), None);
        request.json("200 OK", "", "{}").await;
    });
}

#[tokio::test]
async fn a_stateless_request_does_not_reach_a_session_of_the_server_unchecked() {
    let mut backend = Recorder::start().await;
    let runner = Runner::http(&backend.url(), &json!({})).await;
    let meta =
        r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    let call = format!(r#"{{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{{"name":"echo","_meta":{meta}}}}}"#);
    tokio::join!(runner.post(&[("mcp-session-id", "anybodys")], &call), async {
        let request = backend.next().await;
        assert_eq!(request.header("mcp-session-id"), None);
        request.json("200 OK", "", r#"{"jsonrpc":"2.0","id":2,"result":{}}"#).await;
    });
}

#[tokio::test]
async fn event_streams_pass_frame_by_frame_as_they_are_written() {
    use http_body_util::BodyExt as _;
    let mut backend = Recorder::start().await;
    let runner = Runner::http(&backend.url(), &json!({})).await;
    let get = runner.build(Method::GET, "/mcp", &[("accept", "text/event-stream")], "");
    let (mut response, mut stream) = tokio::join!(runner.send(get), async {
        let mut request = backend.next().await;
        request.part("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n").await;
        request
    });
    for frame in ["id: 1\r\ndata:\r\n\r\n", ": a comment\n\n", "event: message\ndata: {\"a\":1}\n\n"] {
        stream.part(&format!("{:x}\r\n{frame}\r\n", frame.len())).await;
        // Each arrives although nothing follows it.
        let got = within("a frame", response.body_mut().frame()).await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(String::from_utf8_lossy(&got), frame);
    }
    // The client leaves; the server hears of it.
    drop(response);
    stream.left().await;
}

#[tokio::test]
async fn a_client_that_leaves_cancels_its_request_at_the_server() {
    let mut backend = Recorder::start().await;
    let runner = Runner::http(&backend.url(), &json!({})).await;
    let post = runner.build(
        Method::POST,
        "/mcp",
        &[("content-type", "application/json")],
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow"}}"#,
    );
    // A connection of its own, which ends when it is dropped.
    let stream = tokio::net::TcpStream::connect(runner.address).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    let waiting = tokio::spawn(async move { sender.send_request(post).await.map(|_| ()) });
    let request = backend.next().await;
    waiting.abort();
    connection.abort();
    request.left().await;
}

#[tokio::test]
async fn redirects_are_followed_on_the_same_host_only_with_method_and_body() {
    let mut backend = Recorder::start().await;
    let runner = Runner::http(&backend.url(), &json!({})).await;
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let (answer, ()) = tokio::join!(runner.post(&[], ping), async {
        backend.next().await.json("307 Temporary Redirect", "location: /mcp/\r\n", "").await;
        let request = backend.next().await;
        assert!(request.head.starts_with("POST /mcp/ HTTP/1.1\r\n"), "{}", request.head);
        assert_eq!(String::from_utf8_lossy(&request.body), ping);
        request.json("200 OK", "", r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).await;
    });
    assert_eq!(answer.status, 200);
    let (answer, ()) = tokio::join!(runner.post(&[], ping), async {
        backend.next().await.json("302 Found", "location: http://169.254.169.254/latest\r\n", "").await;
    });
    assert_eq!(answer.status, 502);
    assert_eq!(answer.message()["error"]["code"], -32603);
    assert_eq!(answer.message()["id"], 1);
    assert!(!answer.body.contains("169.254"), "where it leads is nobody's business: {answer:?}");
    assert!(backend.is_quiet());
}

#[tokio::test]
async fn a_server_that_switches_protocols_unasked_does_not_switch_the_client() {
    let mut backend = Recorder::start().await;
    let runner = Runner::http(&backend.url(), &json!({})).await;
    let upgrade = [("connection", "upgrade"), ("upgrade", "raw")];
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let (answer, ()) = tokio::join!(runner.post(&upgrade, ping), async {
        let request = backend.next().await;
        assert_eq!(request.header("upgrade"), None);
        request.answer("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: raw\r\n\r\n").await;
    });
    assert_eq!(answer.status, 502);
}
