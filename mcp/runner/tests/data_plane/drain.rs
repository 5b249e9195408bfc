//! SIGTERM: no new calls, those under way are answered, streams end, exit code 0.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use portcullis_testing::Stopwatch;
use serde_json::json;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::support::{Recorder, Runner, SdkClient, eventually, go, node_server, within};

/// How long after a pod says that it is not ready a Service still sends clients to it.
const LAG: Duration = Duration::from_millis(1500);

/// Sends one call, on a connection of its own or on the one that is kept, and says what went wrong.
async fn call(request: Request<Full<Bytes>>, kept: &mut Option<http1::SendRequest<Full<Bytes>>>) -> Result<(), String> {
    let address = request.uri().authority().ok_or("no address")?.to_string();
    let mut sender = if let Some(sender) = kept.take() {
        sender
    } else {
        let stream = TcpStream::connect(address).await.map_err(|error| format!("connect: {error}"))?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        tokio::spawn(connection);
        sender
    };
    let answer = sender.send_request(request).await.map_err(|error| format!("send: {error}"))?;
    let closes = answer.headers().get("connection").is_some_and(|value| value == "close");
    let status = answer.status();
    answer.into_body().collect().await.map_err(|error| format!("read: {error}"))?;
    if !closes {
        *kept = Some(sender);
    }
    if status == 200 { Ok(()) } else { Err(status.to_string()) }
}

/// A rollout: clients learn of it through readiness and a Service, some seconds after SIGTERM.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_fails_while_clients_learn_that_the_proxy_ends() {
    let mut backend = Recorder::start().await;
    let mut runner = Runner::with_flags(&["--backend", &backend.url(), "--drain-delay", "1s"]).await;
    let post = |name: &str| {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{name}"}}}}"#);
        runner.build(Method::POST, "/mcp", &[("content-type", "application/json")], &body)
    };
    // Slow calls end after the listener closed, and a stream does not end by itself.
    let closed = CancellationToken::new();
    let server = tokio::spawn({
        let closed = closed.clone();
        async move {
            loop {
                let mut request = backend.next().await;
                let slow = request.body.windows(4).any(|four| four == b"slow");
                let closed = closed.clone();
                tokio::spawn(async move {
                    if request.head.starts_with("GET") {
                        let head =
                            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
                        request.part(head).await;
                        return request.left().await;
                    }
                    if slow {
                        closed.cancelled().await;
                    }
                    request.json("200 OK", "", r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).await;
                });
            }
        }
    });
    let slow = tokio::spawn({
        let request = post("slow");
        async move { call(request, &mut None).await }
    });
    let get = runner.build(Method::GET, "/mcp", &[("accept", "text/event-stream")], "");
    let mut stream = runner.send(get).await;
    let (routed, calls) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let clients: Vec<_> = [false, false, false, true, true]
        .into_iter()
        .map(|keeps| {
            let (routed, calls, request) = (Arc::clone(&routed), Arc::clone(&calls), post("quick"));
            tokio::spawn(async move {
                let mut kept = None;
                while routed.load(Relaxed) {
                    call(request.clone(), &mut kept).await?;
                    calls.fetch_add(1, Relaxed);
                    if !keeps {
                        kept = None;
                    }
                }
                Ok::<_, String>(())
            })
        })
        .collect();
    eventually("calls under way", || async { (calls.load(Relaxed) > 100).then_some(()) }).await;
    runner.ready().await;
    runner.terminate();
    let asked = Stopwatch::start();
    eventually("readiness to end", || async { (runner.get("/readyz").await.status == 503).then_some(()) }).await;
    assert!(asked.elapsed() < Duration::from_secs(1), "readiness ends at once: {:?}", asked.elapsed());
    assert_eq!(runner.get("/health").await.status, 200, "a proxy that drains is not to be restarted");
    let before = calls.load(Relaxed);
    // The lag of a Service, which nothing tells the end of: longer than what was granted, as on a busy node.
    tokio::time::sleep(LAG).await;
    routed.store(false, Relaxed);
    for client in clients {
        within("a client to end", client).await.unwrap().expect("no call fails");
    }
    assert!(calls.load(Relaxed) > before + 20, "{} calls after SIGTERM", calls.load(Relaxed) - before);
    assert!(within("the stream to be told", stream.body_mut().frame()).await.is_none(), "a clean end");
    let told = asked.started().elapsed();
    assert!(told >= LAG, "streams end with the listener: {told:?}");
    eventually("new connections to be refused", || async { TcpStream::connect(runner.address).await.err() }).await;
    closed.cancel();
    within("the slow call", slow).await.unwrap().expect("a call under way is answered");
    assert_eq!(runner.ended().await.code(), Some(0), "{}", runner.log());
    assert!(asked.elapsed() < Duration::from_secs(28), "{:?}", asked.elapsed());
    server.abort();
}

#[tokio::test]
async fn calls_under_way_are_answered_and_streams_end_when_the_proxy_is_asked_to_end() {
    let mut backend = Recorder::start().await;
    let mut runner = Runner::http(&backend.url(), &json!({})).await;
    let call = tokio::spawn({
        let stream = TcpStream::connect(runner.address).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
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

#[tokio::test]
async fn a_name_server_that_does_not_answer_does_not_keep_the_proxy_from_ending() {
    let mut backend = Recorder::start().await;
    // The C library reads this file before it asks a name server, and nobody ever writes to it.
    let directory = tempfile::tempdir().unwrap();
    let silent = directory.path().join("aliases");
    assert!(Command::new("mkfifo").arg(&silent).status().unwrap().success());
    let webhook = json!({"name": "w", "url": "https://hook/", "timeout": 1_000_000_000, "failure_policy": "ignore"});
    let parameters = json!({"webhooks": [webhook], "server_name": "demo", "transport": "streamable-http"});
    let chain = json!([
        {"type": "auth", "parameters": {}},
        {"type": "mcp-parser", "parameters": {}},
        {"type": "validating-webhook", "parameters": parameters},
    ]);
    let environment = [("HOSTALIASES", silent.to_str().unwrap())];
    let mut runner = Runner::http_with(&backend.url(), &json!({"middleware_configs": chain}), &environment).await;
    let (answer, ()) = tokio::join!(runner.post(&[], r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#), async {
        backend.next().await.json("200 OK", "", r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).await;
    });
    assert_eq!(answer.status, 200);
    assert!(runner.log().contains("timeout"), "{}", runner.log());
    runner.terminate();
    assert_eq!(runner.ended().await.code(), Some(0), "{}", runner.log());
}
