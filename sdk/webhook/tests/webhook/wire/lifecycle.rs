//! Certificates that change, and servers that end.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Response};
use portcullis::server::{Incoming, Limits, TlsError, tls_config};
use portcullis_testing::Stopwatch;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::client::{PATIENCE, connect, connect_with, is_closed, post, read_reply, send, serve_webhooks, trusting};
use crate::fixture::{Serving, certificates, entity, provider, review, serve};

fn request(username: &str) -> String {
    post("/validate/username", &review("CREATE", entity(json!({"username": username})), Value::Null).to_string())
}

#[tokio::test]
async fn new_certificates_serve_new_connections_only() {
    let serving = serve_webhooks().await;
    let mut old = connect(&serving).await;
    assert_eq!(send(&mut old, &request("fine")).await.status, 200);

    let (new_ca, config) = certificates(&["webhook.test.svc"]);
    serving.tls.store(Arc::new(config));

    assert_eq!(send(&mut old, &request("fine")).await.status, 200);
    let mut new = connect_with(serving.address, trusting(new_ca.cert_pem(), &[b"http/1.1"])).await.unwrap();
    assert_eq!(send(&mut new, &request("fine")).await.status, 200);
    let refused = connect_with(serving.address, trusting(serving.ca.cert_pem(), &[b"http/1.1"])).await;
    assert!(refused.is_err(), "the old certificate is served no more");
}

#[test]
fn a_bad_pair_is_refused_with_the_part_that_is_wrong() {
    let (from, to) = (jiff::Timestamp::now(), jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1));
    let one = portcullis_pki::Ca::generate("one", from, to).unwrap();
    let two = portcullis_pki::Ca::generate("two", from, to).unwrap();
    let refused = |cert: &str, key: &str| tls_config(provider(), cert.as_bytes(), key.as_bytes()).unwrap_err();
    assert!(matches!(refused("", one.key_pem()), TlsError::Certificate(_)));
    assert!(matches!(refused(one.cert_pem(), "no key"), TlsError::Key(_)));
    assert!(matches!(refused(one.cert_pem(), two.key_pem()), TlsError::Pair(_)));
    assert!(tls_config(provider(), one.cert_pem().as_bytes(), one.key_pem().as_bytes()).is_ok());
}

/// A server whose handler answers `/held` when it is let go, and anything else at once.
struct Held {
    serving: Serving,
    arrived: Arc<Notify>,
    release: Arc<Notify>,
}

async fn held(limits: Limits) -> Held {
    let (arrived, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (came, go) = (Arc::clone(&arrived), Arc::clone(&release));
    let handler = move |request: Request<Incoming>| {
        let (came, go) = (Arc::clone(&came), Arc::clone(&go));
        async move {
            if request.uri().path() == "/held" {
                came.notify_one();
                go.notified().await;
            }
            Response::new(Full::new(Bytes::from_static(b"done")))
        }
    };
    Held { serving: serve(handler, limits, &["webhook.test.svc"]).await, arrived, release }
}

/// kubernetes#127335: idle connections in the API server's pool would send requests to a process that is gone.
#[tokio::test]
async fn stopping_closes_idle_connections_and_finishes_answers() {
    let mut held = held(Limits::default()).await;
    let mut idle = connect(&held.serving).await;
    assert_eq!(send(&mut idle, &post("/", "")).await.status, 200);
    let mut busy = connect(&held.serving).await;
    busy.write_all(post("/held", "").as_bytes()).await.unwrap();
    busy.flush().await.unwrap();
    timeout(PATIENCE, held.arrived.notified()).await.expect("the request is with the handler");

    held.serving.stop.cancel();
    assert!(is_closed(&mut idle).await);
    held.release.notify_one();
    let reply = read_reply(&mut busy).await.expect("the answer that was under way");
    assert_eq!((reply.status, reply.text().as_str()), (200, "done"));
    assert!(reply.head.contains("connection: close"), "{}", reply.head);
    assert!(is_closed(&mut busy).await);
    timeout(PATIENCE, &mut held.serving.ended).await.expect("the server ends").unwrap();
    assert!(TcpStream::connect(held.serving.address).await.is_err(), "the port is closed");
}

#[tokio::test]
async fn answers_that_never_end_are_cut_off_after_the_drain() {
    let mut held = held(Limits { drain: Duration::from_millis(300), ..Limits::default() }).await;
    let mut stuck = connect(&held.serving).await;
    stuck.write_all(post("/held", "").as_bytes()).await.unwrap();
    stuck.flush().await.unwrap();
    timeout(PATIENCE, held.arrived.notified()).await.expect("the request is with the handler");
    held.serving.stop.cancel();
    let began = Stopwatch::start();
    let reply = read_reply(&mut stuck).await.expect("a word on why");
    assert_eq!(reply.status, 503);
    assert!(began.elapsed() < Limits::default().drain, "{:?}", began.elapsed());
    assert!(reply.head.contains("retry-after: 1") && reply.head.contains("connection: close"), "{}", reply.head);
    assert!(is_closed(&mut stuck).await);
    timeout(PATIENCE, &mut held.serving.ended).await.expect("the server ends").unwrap();
}
