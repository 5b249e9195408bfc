//! Load over a limit is shed at once, with the time after which to retry.

use std::sync::Arc;
use std::time::Duration;

use portcullis::server::Limits;
use portcullis::webhooks::{Context, Routes, Validate, Verdict, Webhooks};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use crate::client::{PATIENCE, Reply, connect, post, read_reply, send};
use crate::fixture::{Entity, Serving, entity, review, serve};

/// Two webhooks whose handlers say that they are asked, and wait: `one` takes a single review at a time.
struct Slow {
    serving: Serving,
    routes: Routes,
    arrived: Arc<Notify>,
    release: Arc<Notify>,
}

async fn slow(limits: Limits) -> Slow {
    let (arrived, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let handler = {
        let (came, go) = (Arc::clone(&arrived), Arc::clone(&release));
        move |new: Arc<Entity>, _: Context| {
            let (came, go) = (Arc::clone(&came), Arc::clone(&go));
            async move {
                if new.spec.username == "slow" {
                    came.notify_one();
                    go.notified().await;
                }
                Verdict::allow()
            }
        }
    };
    let webhooks = Webhooks::new()
        .validate(Validate::<Entity>::new("one").on_create(handler.clone()).concurrency(1))
        .validate(Validate::<Entity>::new("other").on_create(handler));
    let routes = webhooks.routes().unwrap();
    Slow { serving: serve(routes.clone(), limits, &["webhook.test.svc"]).await, routes, arrived, release }
}

fn ask(path: &str, username: &str) -> String {
    post(path, &review("CREATE", entity(json!({"username": username})), Value::Null).to_string())
}

async fn write(connection: &mut TlsStream<TcpStream>, bytes: &[u8]) {
    connection.write_all(bytes).await.unwrap();
    connection.flush().await.unwrap();
}

/// Has a handler at work, and the connection that asked it.
async fn at_work(slow: &Slow, path: &str) -> TlsStream<TcpStream> {
    let mut busy = connect(&slow.serving).await;
    write(&mut busy, ask(path, "slow").as_bytes()).await;
    timeout(PATIENCE, slow.arrived.notified()).await.expect("the request is with the handler");
    busy
}

/// Returns the responses of those connections that get one within a moment.
async fn said(connections: &mut [TlsStream<TcpStream>]) -> Vec<String> {
    let mut words = Vec::new();
    for connection in connections {
        let mut said = [0; 512];
        if let Ok(read) = timeout(Duration::from_secs(2), connection.read(&mut said)).await {
            words.push(String::from_utf8_lossy(&said[..read.unwrap()]).into_owned());
        }
    }
    words
}

fn assert_retry_later(reply: &Reply) {
    assert_eq!(reply.status, 429, "{}", reply.text());
    assert!(reply.head.contains("retry-after: 1\r\n"), "{}", reply.head);
    assert!(reply.text().contains("ask again in a second"), "{}", reply.text());
}

#[tokio::test]
async fn only_reviews_over_the_limit_get_retry_later() {
    let slow = slow(Limits::default()).await;
    let mut busy = at_work(&slow, "/validate/one").await;
    let mut connection = connect(&slow.serving).await;
    for _ in 0..3 {
        assert_retry_later(&send(&mut connection, &ask("/validate/one", "fine")).await);
        let other = send(&mut connection, &ask("/validate/other", "fine")).await;
        assert_eq!(other.response()["allowed"], true, "another webhook has its own limit, and the connection is kept");
    }
    slow.release.notify_one();
    assert_eq!(read_reply(&mut busy).await.expect("its own answer").response()["allowed"], true);
    assert_eq!(send(&mut connection, &ask("/validate/one", "fine")).await.status, 200, "there is room again");
    let metrics = slow.routes.metrics().encode();
    assert!(
        metrics.contains("portcullis_webhook_rejected_total{webhook=\"/validate/one\",reason=\"shed\"} 3"),
        "{metrics}"
    );
}

/// A review starts when its body is complete: a client that sends half a body takes no slot.
#[tokio::test]
async fn half_sent_bodies_are_no_reviews_under_way() {
    let slow = slow(Limits::default()).await;
    let whole = ask("/validate/one", "fine");
    let mut half = connect(&slow.serving).await;
    write(&mut half, &whole.as_bytes()[..whole.len() - 5]).await;
    for _ in 0..3 {
        assert_eq!(send(&mut connect(&slow.serving).await, &whole).await.status, 200);
    }
    write(&mut half, &whole.as_bytes()[whole.len() - 5..]).await;
    assert_eq!(read_reply(&mut half).await.unwrap().status, 200);
}

/// A slow body may continue while no other call waits; then slow peers are cut off.
#[tokio::test]
async fn half_sent_bodies_give_their_places_to_those_who_wait() {
    let slow = slow(Limits { connections: 4, ..Limits::default() }).await;
    let whole = ask("/validate/other?timeout=30s", "fine");
    let mut halves = Vec::new();
    for _ in 0..4 {
        let mut half = connect(&slow.serving).await;
        write(&mut half, &whole.as_bytes()[..whole.len() - 5]).await;
        halves.push(half);
    }
    // Four reviews at work: every place has changed hands.
    let mut at_work = Vec::new();
    let waiting = async {
        while at_work.len() < 4 {
            let mut connection = connect(&slow.serving).await;
            write(&mut connection, ask("/validate/other", "slow").as_bytes()).await;
            slow.arrived.notified().await;
            at_work.push(connection);
        }
    };
    timeout(PATIENCE, waiting).await.expect("places");
    // Before the bodies' own deadline, which is another answer.
    let words = said(&mut halves).await;
    assert_eq!(words.len(), 4);
    // One whose head was not read yet gives way as those do that ask nothing.
    let told = words.iter().filter(|word| word.contains("429") && word.contains("too slowly")).count();
    assert!(told >= 3, "{words:?}");
}

#[tokio::test]
async fn a_connection_beyond_the_limit_waits_for_one_at_work() {
    let slow = slow(Limits { connections: 2, ..Limits::default() }).await;
    let _busy = [at_work(&slow, "/validate/one").await, at_work(&slow, "/validate/other").await];
    let beyond = async { send(&mut connect(&slow.serving).await, &ask("/validate/other", "fine")).await };
    let released = async {
        slow.release.notify_one();
    };
    let (reply, ()) = timeout(PATIENCE, async { tokio::join!(beyond, released) }).await.expect("a place");
    assert_eq!(reply.response()["allowed"], true);
}

/// 64 MiB for all bodies together: nine of 7 MiB, and not a tenth. Those that do not go on lose theirs.
#[tokio::test]
async fn bodies_stay_within_their_budget_and_slow_ones_return_it() {
    let slow = slow(Limits::default()).await;
    let size = 7 * 1024 * 1024 - 1;
    let head = format!(
        "POST /validate/other?timeout=30s HTTP/1.1\r\nhost: w\r\ncontent-type: application/json\r\n\
         content-length: {size}\r\n\r\n"
    );
    let part = vec![b' '; size - 1];
    let mut unfinished = Vec::new();
    for _ in 0..9 {
        let mut connection = connect(&slow.serving).await;
        write(&mut connection, head.as_bytes()).await;
        write(&mut connection, &part).await;
        unfinished.push(connection);
    }
    let mut refused = 0;
    let goes_through = async {
        loop {
            let mut connection = connect(&slow.serving).await;
            let reply = send(&mut connection, &post("/validate/other", &" ".repeat(size))).await;
            match reply.status {
                429 => refused += 1,
                // Spaces are no review. Written is not read yet: it may be the first, too.
                400 if refused > 0 => break,
                400 => {}
                status => panic!("{status}: {}", reply.text()),
            }
            if reply.status == 429 {
                assert_retry_later(&reply);
                assert!(reply.text().contains("no memory is left"), "{}", reply.text());
            }
        }
    };
    timeout(PATIENCE, goes_through).await.expect("memory");
    // Before the bodies' own deadline, which is another answer.
    let words = said(&mut unfinished).await;
    assert!(
        !words.is_empty() && words.iter().all(|word| word.contains("429") && word.contains("too slowly")),
        "{words:?}"
    );
    let reply = send(&mut connect(&slow.serving).await, &ask("/validate/other", "fine")).await;
    assert_eq!(reply.response()["allowed"], true);
}
