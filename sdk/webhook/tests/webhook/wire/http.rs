//! HTTP that is not an admission review.

use portcullis_review::ADMISSION_LIMIT;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::client::{ask, connect, connect_with, is_closed, post, read_reply, send, serve_webhooks, trusting};
use crate::fixture::{Serving, entity, review};

fn fine() -> Value {
    review("CREATE", entity(json!({"username": "fine"})), Value::Null)
}

async fn still_serves(serving: &Serving, after: &str) {
    assert_eq!(ask(serving, "/validate/username", &fine()).await.response()["allowed"], true, "after {after}");
}

#[tokio::test]
async fn what_is_not_a_review_gets_the_status_that_says_why() {
    let serving = serve_webhooks().await;
    let body = fine().to_string();
    let with = |line: &str, headers: &str, body: &str| {
        format!("{line} HTTP/1.1\r\nhost: webhook\r\n{headers}content-length: {}\r\n\r\n{body}", body.len())
    };
    let json = "content-type: application/json\r\n";
    let good = "POST /validate/username";
    let cases = [
        (200, "", with(good, "content-type: application/json; charset=utf-8\r\n", &body)),
        (200, "", with(good, "content-type: Application/JSON;q=1\r\n", &body)),
        (404, "no webhook is served at /validate/nobody", with("POST /validate/nobody", json, &body)),
        (404, "no webhook is served at /", with("GET /", "", "")),
        (405, "POST", with("GET /validate/username", json, "")),
        (405, "POST", with("PUT /validate/username", json, &body)),
        (415, "content-type application/json", with(good, "", &body)),
        (415, "content-type application/json", with(good, "content-type: text/plain\r\n", &body)),
        (415, "content-type application/json", with(good, "content-type: application/json-patch+json\r\n", &body)),
        (
            415,
            "content-type application/json",
            with(good, "content-type: application/vnd.kubernetes.protobuf\r\n", &body),
        ),
        (400, "not an admission review", with(good, json, "")),
        (400, "not an admission review", with(good, json, "{\"kind\":")),
        (400, "AdmissionReview", with(good, json, "{\"kind\":\"Pod\",\"apiVersion\":\"v1\"}")),
        (400, "request.uid is empty", with(good, json, &body.replace("e911857d-c318-11e8-bbad-025000000001", ""))),
        (400, "not an admission review", with(good, json, &"[".repeat(1_000_000))),
    ];
    let mut connection = connect(&serving).await;
    for (status, said, request) in cases {
        let reply = send(&mut connection, &request).await;
        let line = request.lines().next().unwrap();
        assert_eq!(reply.status, status, "{line}: {}", reply.text());
        assert!(reply.text().contains(said), "{line}: {} does not say {said:?}", reply.text());
        if status == 405 {
            assert!(reply.head.contains("allow: POST"), "{}", reply.head);
        }
    }
    still_serves(&serving, "all of these on one connection").await;
}

/// Announced or not, more than 7 MiB is not read.
#[tokio::test]
async fn a_body_over_the_limit_is_refused_with_413() {
    let serving = serve_webhooks().await;

    let mut connection = connect(&serving).await;
    let head = format!(
        "POST /validate/username HTTP/1.1\r\nhost: w\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        ADMISSION_LIMIT + 1
    );
    let reply = send(&mut connection, &head).await;
    assert_eq!(reply.status, 413, "though not a byte of it was sent");
    assert!(is_closed(&mut connection).await, "what would follow is not a request");

    let chunk = format!("100000\r\n{}\r\n", " ".repeat(0x10_0000));
    let chunked = "POST /validate/username HTTP/1.1\r\nhost: w\r\ncontent-type: application/json\r\n\
                   transfer-encoding: chunked\r\n\r\n";
    let mut connection = connect(&serving).await;
    let reply = send(&mut connection, &format!("{chunked}{}0\r\n\r\n", chunk.repeat(8))).await;
    assert_eq!(reply.status, 413, "announced or not");

    // A client that goes on sending is cut off, with or without an answer.
    let mut connection = connect(&serving).await;
    connection.write_all(chunked.as_bytes()).await.unwrap();
    let endless = async { while connection.write_all(chunk.as_bytes()).await.is_ok() {} };
    tokio::time::timeout(crate::client::PATIENCE, endless).await.expect("the connection is cut");

    let padding = " ".repeat(ADMISSION_LIMIT - fine().to_string().len());
    let reply = send(&mut connect(&serving).await, &post("/validate/username", &(fine().to_string() + &padding))).await;
    assert_eq!(reply.response()["allowed"], true, "the limit itself is not over the limit");
}

#[tokio::test]
async fn bytes_that_are_not_tls_end_their_own_connection_only() {
    let serving = serve_webhooks().await;
    let kept = connect(&serving).await;
    for garbage in [
        b"GET / HTTP/1.1\r\nhost: webhook\r\n\r\n".as_slice(),
        b"\x16\x03\x01\xff\xff\x01\x00\xff\xfb\x03\x03garbage that begins like a client hello",
        &[0; 1024],
        &[0xff; 10_000],
        b"",
    ] {
        let mut stream = TcpStream::connect(serving.address).await.unwrap();
        stream.write_all(garbage).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut said = Vec::new();
        // A TLS alert, a reset or nothing, but an end.
        let end = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut said);
        let _ = tokio::time::timeout(crate::client::PATIENCE, end).await.expect("the connection ends");
        assert!(said.len() < 100, "{} bytes came back", said.len());
    }
    let mut kept = kept;
    assert_eq!(send(&mut kept, &post("/validate/username", &fine().to_string())).await.status, 200);
    still_serves(&serving, "garbage instead of TLS").await;
}

#[tokio::test]
async fn bytes_that_are_not_http_end_their_own_connection_only() {
    let serving = serve_webhooks().await;
    let long = format!("POST /validate/username HTTP/1.1\r\nhost: w\r\nlong: {}\r\n\r\n", "x".repeat(100_000));
    for (request, status) in [
        ("\0\0\0\0\r\n\r\n", 400),
        ("POST\r\n\r\n", 400),
        ("POST /validate/username HTTP/1.1\r\nhost w\r\n\r\n", 400),
        ("POST /validate/username HTTP/1.1\r\ncontent-length: many\r\n\r\n", 400),
        ("POST /validate/username HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n", 400),
        (&long, 431),
    ] {
        let mut connection = connect(&serving).await;
        let reply = send(&mut connection, request).await;
        assert_eq!(reply.status, status, "{request:.60}");
        assert!(is_closed(&mut connection).await);
    }
    // HTTP/2 without asking for it.
    let mut connection = connect(&serving).await;
    connection.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    if let Some(reply) = read_reply(&mut connection).await {
        assert_eq!(reply.status, 400);
    }
    still_serves(&serving, "garbage instead of HTTP").await;
}

/// The API server offers `http/1.1` alone; a server that took only `h2` would be of no use to it.
#[tokio::test]
async fn the_protocol_is_http_1_1_by_alpn_and_without() {
    let serving = serve_webhooks().await;
    for (offered, chosen) in [
        (vec![b"http/1.1".as_slice()], Some(b"http/1.1".as_slice())),
        (vec![b"h2", b"http/1.1"], Some(b"http/1.1")),
        (vec![], None),
    ] {
        let config = trusting(serving.ca.cert_pem(), &offered);
        let mut stream = connect_with(serving.address, config).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), chosen);
        assert_eq!(send(&mut stream, &post("/validate/username", &fine().to_string())).await.status, 200);
    }
    assert!(connect_with(serving.address, trusting(serving.ca.cert_pem(), &[b"h2"])).await.is_err());
}
