//! All connections of the proxy taken: by streams, by slow uploads.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::support::{Recorder, Runner, eventually, within};

/// What the runner serves at once.
const PLACES: usize = 4096;
/// The shortest `timeoutSeconds` of the probes that the operator writes.
const PROBE: Duration = Duration::from_secs(3);

/// A server each answer of which is a stream that says nothing.
async fn silent_streams() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
                if stream.read_u8().await.is_ok() && stream.write_all(head).await.is_ok() {
                    let mut rest = Vec::new();
                    let _ = stream.read_to_end(&mut rest).await;
                }
            });
        }
    });
    url
}

/// Takes every place with a connection on which this was sent and, where `answered`, an answer has begun.
async fn take_all(runner: &Runner, sent: &'static [u8], answered: bool) -> Vec<TcpStream> {
    let mut held = Vec::new();
    while held.len() < PLACES {
        let mut some = JoinSet::new();
        let address = runner.address;
        for _ in 0..64 {
            some.spawn(async move {
                let mut stream = TcpStream::connect(address).await.unwrap();
                stream.write_all(sent).await.unwrap();
                if answered {
                    let mut status = [0; 12];
                    within("the head of a stream", stream.read_exact(&mut status)).await.unwrap();
                    assert_eq!(&status, b"HTTP/1.1 200");
                }
                stream
            });
        }
        held.extend(some.join_all().await);
    }
    held
}

/// Asks on a connection of its own, as kubelet does; the status and the head of the answer.
async fn probe(runner: &Runner, path: &str) -> (u16, String) {
    let began = Instant::now();
    let mut stream = TcpStream::connect(runner.address).await.unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    within("an answer to a probe", stream.read_to_end(&mut answer)).await.unwrap();
    assert!(began.elapsed() < PROBE, "{path}: {:?}", began.elapsed());
    let answer = String::from_utf8(answer).unwrap();
    (answer[9..12].parse().unwrap(), answer)
}

#[tokio::test]
async fn streams_in_every_place_do_not_make_liveness_restart_the_pod() {
    let runner = Runner::http(&silent_streams().await, &json!({})).await;
    let get = b"GET /mcp HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n";
    let mut streams = take_all(&runner, get, true).await;
    for path in ["/health", "/readyz", "/metrics"] {
        let (status, answer) = probe(&runner, path).await;
        assert_eq!(status, 200, "{answer}");
        assert!(answer.contains("connection: close\r\n"), "{answer}");
    }
    let (status, answer) = probe(&runner, "/mcp").await;
    assert_eq!(status, 503, "{answer}");
    assert!(answer.contains("retry-after: 1\r\n"), "{answer}");
    streams.truncate(PLACES - 1);
    eventually("the place of a client that left", || async {
        let mut stream = TcpStream::connect(runner.address).await.ok()?;
        stream.write_all(get).await.ok()?;
        let mut status = [0; 12];
        stream.read_exact(&mut status).await.ok()?;
        status.ends_with(b"200").then_some(())
    })
    .await;
}

#[tokio::test]
async fn slow_uploads_in_every_place_do_not_keep_a_quick_client_out() {
    let mut backend = Recorder::start().await;
    let runner = Runner::http(&backend.url(), &json!({"proxy_read_timeout": "5m"})).await;
    let part =
        b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";
    let _slow = take_all(&runner, part, false).await;
    let served = async {
        loop {
            // Those beyond the limit are told to ask again.
            let answer = runner.post(&[], r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).await;
            if answer.status != 503 {
                return answer.status;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let (status, ()) = tokio::join!(within("a quick client to be served", served), async {
        backend.next().await.json("200 OK", "", r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).await;
    });
    assert_eq!(status, 200);
}

#[tokio::test]
async fn two_hundred_slow_uploads_do_not_slow_a_quick_client_down() {
    let mut backend = Recorder::start().await;
    let runner = Runner::http(&backend.url(), &json!({})).await;
    let mut slow = Vec::new();
    for _ in 0..200 {
        let mut stream = TcpStream::connect(runner.address).await.unwrap();
        let head =
            "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{";
        stream.write_all(head.as_bytes()).await.unwrap();
        slow.push(stream);
    }
    let answers = tokio::spawn(async move {
        for _ in 0..50 {
            backend.next().await.json("200 OK", "", r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).await;
        }
    });
    let mut longest = Duration::ZERO;
    for _ in 0..50 {
        let began = Instant::now();
        for stream in &mut slow {
            let _ = stream.try_write(b" ");
        }
        assert_eq!(runner.post(&[], r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).await.status, 200);
        longest = longest.max(began.elapsed());
    }
    answers.await.unwrap();
    assert!(longest < Duration::from_secs(5), "{longest:?}");
}
