//! All connections of the proxy taken: by calls, by slow uploads, by clients that say nothing.

use std::net::SocketAddr;
use std::time::Duration;

use portcullis_testing::Stopwatch;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::support::{Recorder, Runner, eventually, within};

/// Most tests have the runner serve this many connections at once. Filling it as it is takes seconds.
pub(crate) const FEW: usize = 64;
/// Ten times the shortest `timeoutSeconds` of the probes that the operator writes: other tests keep the machine busy. `proxy_load` measures the time.
pub(crate) const PROBE: Duration = Duration::from_secs(30);

/// A server each answer of which is a stream that says nothing.
pub(crate) async fn silent_streams() -> String {
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

/// A call, the answer to which does not end.
const CALL: &[u8] =
    b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 40\r\n\r\n\
    {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}";

/// Sends this on a connection of its own, and reads the status of the answer.
pub(crate) async fn begin(address: SocketAddr, sent: &[u8]) -> Option<(TcpStream, String)> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    stream.write_all(sent).await.ok()?;
    let mut status = [0; 12];
    stream.read_exact(&mut status).await.ok()?;
    Some((stream, String::from_utf8_lossy(&status[9..]).into_owned()))
}

/// A runner of few places, with `members` over the usual document.
pub(crate) async fn small(members: &Value) -> Runner {
    let backend = silent_streams().await;
    let arguments = ["--connections", &FEW.to_string(), "--backend", &backend].map(Into::into);
    Runner::start("streamable-http", members, &arguments, &[]).await
}

/// So many calls, the answer to each of which has begun.
async fn calls(runner: &Runner, count: usize) -> Vec<TcpStream> {
    let mut held = Vec::new();
    while held.len() < count {
        let (mut some, address) = (JoinSet::new(), runner.address);
        for _ in 0..64.min(count - held.len()) {
            some.spawn(async move { within("the head of an answer", begin(address, CALL)).await.unwrap() });
        }
        held.extend(some.join_all().await.into_iter().map(|(stream, status)| {
            assert_eq!(status, "200");
            stream
        }));
    }
    held
}

/// Asks on a connection of its own, as kubelet does; the status and the whole answer.
pub(crate) async fn probe(runner: &Runner, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(runner.address).await.unwrap();
    stream
        .write_all(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").as_bytes())
        .await
        .unwrap();
    let mut answer = Vec::new();
    within("an answer to a probe", stream.read_to_end(&mut answer)).await.unwrap();
    let answer = String::from_utf8(answer).unwrap();
    (answer[9..12].parse().unwrap(), answer)
}

#[tokio::test]
async fn calls_in_every_place_do_not_make_liveness_restart_the_pod() {
    let runner = small(&json!({})).await;
    runner.ready().await;
    let mut held = calls(&runner, FEW).await;
    for path in ["/health", "/readyz", "/metrics"] {
        let began = Stopwatch::start();
        let (status, answer) = probe(&runner, path).await;
        assert!(began.elapsed() < PROBE, "{path}: {:?}", began.elapsed());
        assert_eq!(status, 200, "{answer}");
    }
    let (status, answer) = probe(&runner, "/mcp").await;
    assert_eq!(status, 503, "{answer}");
    assert!(answer.contains("retry-after: 1\r\n"), "{answer}");
    held.truncate(FEW - 1);
    eventually("the place of a client that left", || async {
        begin(runner.address, CALL).await.filter(|(_, status)| status == "200")
    })
    .await;
}

/// So many connections on which this is sent and nothing more.
async fn unfinished(runner: &Runner, count: usize, sent: &str) -> Vec<TcpStream> {
    let mut held = Vec::new();
    while held.len() < count {
        let mut stream = within("a connection", TcpStream::connect(runner.address)).await.unwrap();
        // One that has given way already takes nothing.
        let _ = stream.write_all(sent.as_bytes()).await;
        held.push(stream);
    }
    held
}

#[tokio::test]
async fn connections_that_say_nothing_do_not_keep_liveness_waiting() {
    let body = "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{";
    for (at_work, count, sent) in
        [(FEW, 100, ""), (FEW - 1, 100, ""), (0, FEW + 100, ""), (FEW, 1_500, ""), (FEW, 400, body)]
    {
        let runner = small(&json!({})).await;
        let _calls = calls(&runner, at_work).await;
        let _unfinished = unfinished(&runner, count, sent).await;
        let began = Stopwatch::start();
        let (status, answer) = probe(&runner, "/health").await;
        let took = began.elapsed();
        assert_eq!(status, 200, "{answer}");
        assert!(took < PROBE, "{at_work} at work, {count} that sent {sent:?}: {took:?}");
    }
}

#[tokio::test]
async fn clients_that_never_end_their_requests_do_not_keep_others_out() {
    let head = "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let whole = format!("{head}content-length: {}\r\n\r\n{ping}", ping.len());
    for begun in [String::new(), format!("{head}x-slow: "), format!("{head}content-length: 100\r\n\r\n{{")] {
        let runner = small(&json!({"proxy_read_timeout": "5m"})).await;
        let mut slow = Vec::new();
        for _ in 0..FEW + 100 {
            let mut stream = within("a connection", TcpStream::connect(runner.address)).await.unwrap();
            stream.write_all(begun.as_bytes()).await.unwrap();
            slow.push(stream);
        }
        let asked = Stopwatch::start();
        eventually("another client to be served", || async {
            begin(runner.address, whole.as_bytes()).await.filter(|(_, status)| status == "200")
        })
        .await;
        assert!(asked.elapsed() < PROBE, "{begun:?}: {:?}", asked.elapsed());
    }
}

#[tokio::test]
async fn slow_uploads_in_the_last_places_do_not_keep_a_quick_client_out() {
    const UPLOADS: usize = 20;
    let runner = small(&json!({"proxy_read_timeout": "5m"})).await;
    let _calls = calls(&runner, FEW - UPLOADS).await;
    let head = "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let mut uploads = Vec::new();
    for _ in 0..UPLOADS {
        let mut upload = TcpStream::connect(runner.address).await.unwrap();
        upload.write_all(format!("{head}content-length: 100\r\n\r\n{{").as_bytes()).await.unwrap();
        uploads.push(upload);
    }
    eventually("uploads in the last places", || async {
        let metrics = probe(&runner, "/metrics").await.1;
        let under_way = metrics.lines().find_map(|line| line.strip_prefix("mcp_runner_requests_in_flight "))?;
        // Some may have given way already.
        (under_way.parse::<usize>().unwrap() > FEW - UPLOADS / 2).then_some(())
    })
    .await;
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let whole = format!("{head}content-length: {}\r\n\r\n{ping}", ping.len());
    let asked = Stopwatch::start();
    // One that comes before an upload gave way is told to ask again.
    eventually("a quick client to be served", || async {
        begin(runner.address, whole.as_bytes()).await.filter(|(_, status)| status == "200")
    })
    .await;
    // Without giving way, the uploads have half a minute.
    assert!(asked.elapsed() < Duration::from_secs(20), "{:?}", asked.elapsed());
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
        let began = Stopwatch::start();
        for stream in &mut slow {
            let _ = stream.try_write(b" ");
        }
        assert_eq!(runner.post(&[], r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).await.status, 200);
        longest = longest.max(began.elapsed());
    }
    answers.await.unwrap();
    assert!(longest < Duration::from_secs(5), "{longest:?}");
}
