//! A stream is worth what the token is that opened it.

use std::time::{SystemTime, UNIX_EPOCH};

use http::Method;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::support::{INITIALIZE, Issuer, Recorder, Runner, Signer, go, within};

const BYTES: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\ntransfer-encoding: chunked\r\n\r\n";
const STREAM: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
/// What a token is taken for beyond its `exp`.
const LEEWAY: u64 = 30;
/// Seconds in which all is set up that is to end with a token.
const ENOUGH: u64 = 8;

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// A token of alice that is taken until `until`.
fn token(issuer: &Issuer, signer: &Signer, until: u64) -> String {
    let mut claims: Value = issuer.claims("alice");
    claims["exp"] = json!(until - LEEWAY);
    format!("Bearer {}", signer.sign("ES256", &claims))
}

#[tokio::test]
async fn a_stream_ends_with_the_token_that_opened_it_and_a_newer_one_opens_the_next() {
    let signer = Signer::ec("a");
    let issuer = Issuer::start(vec![signer.clone()]).await;
    let mut backend = Recorder::start().await;
    let runner = Runner::login(&backend.url(), &issuer.login(&json!({}))).await;
    let until = now() + ENOUGH;
    let authorization = token(&issuer, &signer, until);
    let listen = |authorization: &str| {
        let headers = [("accept", "text/event-stream"), ("authorization", authorization)];
        runner.build(Method::GET, "/mcp", &headers, "")
    };
    let call = runner.build(
        Method::POST,
        "/mcp",
        &[("content-type", "application/json"), ("authorization", &authorization)],
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow"}}"#,
    );
    // A stream, the answer to a call, bytes without end, and a stream whose head the server keeps back.
    let mut ends = Vec::new();
    for (request, head) in [(listen(&authorization), STREAM), (call, STREAM), (listen(&authorization), BYTES)] {
        let (client, server) = tokio::join!(runner.send(request), async {
            let mut server = backend.next().await;
            server.part(head).await;
            server
        });
        assert_eq!(client.status(), 200);
        ends.push((client, server));
    }
    let waits = runner.send(listen(&authorization));
    let (headless, kept_back) = tokio::join!(waits, backend.next());
    assert!(now() >= until, "it waited for the head until then");
    assert_eq!(headless.status(), 401);
    let challenge = headless.headers()["www-authenticate"].to_str().unwrap();
    assert!(challenge.contains(r#"error="invalid_token""#), "{challenge}");
    kept_back.left().await;
    let (mut bytes, sender) = ends.pop().unwrap();
    assert!(within("the bytes to break off", bytes.body_mut().frame()).await.unwrap().is_err(), "they are not whole");
    sender.left().await;
    let (mut call, answers) = ends.pop().unwrap();
    let (mut stream, server) = ends.pop().unwrap();
    assert!(within("the stream to end", stream.body_mut().frame()).await.is_none(), "a clean end");
    server.left().await;
    runner.logged("a stream was ended: the token that opened it expired").await;
    answers.answer("9\r\ndata: 1\n\n\r\n0\r\n\r\n").await;
    let answer = within("the answer", call.body_mut().collect()).await.unwrap().to_bytes();
    assert_eq!(answer, "data: 1\n\n", "a call that was let in may end");
    let refused = runner.send(listen(&authorization)).await;
    assert_eq!(refused.status(), 401);
    let newer = token(&issuer, &signer, now() + 600);
    let (again, _server) = tokio::join!(runner.send(listen(&newer)), async {
        let mut server = backend.next().await;
        server.part(STREAM).await;
        server
    });
    assert_eq!(again.status(), 200);
}

#[tokio::test]
async fn a_stream_of_a_server_behind_a_pipe_ends_with_its_token_and_the_session_goes_on() {
    let signer = Signer::ec("a");
    let issuer = Issuer::start(vec![signer.clone()]).await;
    let runner = Runner::login_stdio(&[go().into()], &issuer.login(&json!({}))).await;
    let newer = token(&issuer, &signer, now() + 600);
    let opened = runner.post(&[("authorization", &newer)], INITIALIZE).await;
    let session = opened.header("mcp-session-id").unwrap_or_else(|| panic!("{opened:?}"));
    let until = now() + ENOUGH;
    let short = token(&issuer, &signer, until);
    let headers = [("accept", "text/event-stream"), ("mcp-session-id", session), ("authorization", &*short)];
    let mut stream = runner.send(runner.build(Method::GET, "/mcp", &headers, "")).await;
    assert_eq!(stream.status(), 200);
    let ended = async {
        // What the server says meanwhile may come before.
        while let Some(frame) = stream.body_mut().frame().await {
            frame.expect("a clean end");
        }
    };
    within("the stream to end", ended).await;
    // Seconds are cut off on both sides.
    assert!(now() + 1 >= until, "it ended {} s early", until - now());
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let answer = runner.post(&[("authorization", &newer), ("mcp-session-id", session)], ping).await;
    assert_eq!(answer.status, 200, "{answer:?}");
}
