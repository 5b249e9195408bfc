//! Long answers and streams of remote servers pass as they come.

use http::Method;
use http_body_util::BodyExt as _;
use serde_json::json;

use crate::support::{Recorded, Recorder, Runner, TlsFront, within};

const STREAM: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

async fn behind_tls() -> (Recorder, TlsFront, Runner) {
    let backend = Recorder::start().await;
    let front = TlsFront::before(backend.address).await;
    let runner = Runner::remote(&front, "/mcp", "127.0.0.0/8", &json!({}), &[]).await;
    (backend, front, runner)
}

/// Opens a stream; both of its ends.
async fn stream(backend: &mut Recorder, runner: &Runner) -> (http::Response<hyper::body::Incoming>, Recorded) {
    let get = runner.build(Method::GET, "/mcp", &[("accept", "text/event-stream")], "");
    tokio::join!(runner.send(get), async {
        let mut request = backend.next().await;
        request.part(STREAM).await;
        request
    })
}

async fn event_arrives(server: &mut Recorded, client: &mut http::Response<hyper::body::Incoming>, event: &str) {
    server.part(&format!("{:x}\r\n{event}\r\n", event.len())).await;
    let got = within("an event", client.body_mut().frame()).await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(String::from_utf8_lossy(&got), event);
}

#[tokio::test]
async fn events_pass_one_by_one_and_a_client_that_leaves_ends_the_call_at_the_server() {
    let (mut backend, _front, runner) = behind_tls().await;
    let (mut client, mut server) = stream(&mut backend, &runner).await;
    for event in ["id: 1\r\ndata:\r\n\r\n", ": a comment\n\n", "event: message\ndata: {\"a\":1}\n\n"] {
        event_arrives(&mut server, &mut client, event).await;
    }
    drop(client);
    server.left().await;
}

#[tokio::test]
async fn forty_streams_are_open_beside_each_other_and_each_has_its_own_events() {
    let (mut backend, _front, runner) = behind_tls().await;
    let mut streams = Vec::new();
    for _ in 0..40 {
        streams.push(stream(&mut backend, &runner).await);
    }
    for (number, (client, server)) in streams.iter_mut().enumerate() {
        event_arrives(server, client, &format!("data: {number}\n\n")).await;
    }
}

#[tokio::test]
async fn a_long_answer_passes_without_being_held() {
    const LENGTH: usize = 100 << 20;
    const PART: usize = 64 << 10;
    let (mut backend, _front, runner) = behind_tls().await;
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}"#;
    let post = runner.build(Method::POST, "/mcp", &[("content-type", "application/json")], call);
    let before = kibibytes(runner.pid(), "VmRSS:");
    let (received, ()) = tokio::join!(
        async {
            let mut body = runner.send(post).await.into_body();
            let mut received = 0;
            while let Some(frame) = within("a part of the answer", body.frame()).await {
                received += frame.unwrap().into_data().map_or(0, |data| data.len());
            }
            received
        },
        async {
            let mut request = backend.next().await;
            let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {LENGTH}\r\n\r\n");
            request.part(&head).await;
            let part = " ".repeat(PART);
            for _ in 0..LENGTH / PART {
                request.part(&part).await;
            }
        }
    );
    assert_eq!(received, LENGTH);
    let grown = kibibytes(runner.pid(), "VmHWM:").saturating_sub(before);
    assert!(grown < 24 << 10, "the proxy grew by {grown} KiB");
}

fn kibibytes(pid: u32, line: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let value = status.lines().find_map(|found| found.strip_prefix(line)).unwrap();
    value.split_whitespace().next().unwrap().parse().unwrap()
}
