//! The places of the proxy, shared by its clients.

use std::fmt::Write as _;
use std::net::SocketAddr;

use portcullis_testing::Stopwatch;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::places::{FEW, PROBE, begin, probe, silent_streams, small};
use crate::shares::value;
use crate::support::{Issuer, Runner, Signer, eventually, within};

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

fn stream(authorization: &str) -> String {
    format!("GET /mcp HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n{authorization}\r\n")
}

fn call(authorization: &str) -> String {
    let length = PING.len();
    let head = "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    format!("{head}content-length: {length}\r\n{authorization}\r\n{PING}")
}

/// A runner with these flags, and the authorization of three callers.
async fn login(flags: &[&str]) -> (Runner, Issuer, [String; 3]) {
    let signer = Signer::ec("a");
    let issuer = Issuer::start(vec![signer.clone()]).await;
    let backend = silent_streams().await;
    let flags = [flags, &["--backend", &backend, "--allow-endpoint-cidr", "127.0.0.0/8"]].concat();
    let flags: Vec<_> = flags.into_iter().map(Into::into).collect();
    let members = json!({"oidc_config": issuer.login(&json!({}))});
    let runner = Runner::start("streamable-http", &members, &flags, &[]).await;
    let token = |subject| signer.sign("ES256", &issuer.claims(subject));
    let callers = ["mallory", "alice", "bob"].map(|subject| format!("authorization: Bearer {}\r\n", token(subject)));
    (runner, issuer, callers)
}

/// So many connections, on each of which this was sent and has its 200.
async fn held(address: SocketAddr, count: usize, sent: &str) -> Vec<TcpStream> {
    let mut held = Vec::new();
    while held.len() < count {
        let mut some = JoinSet::new();
        for _ in 0..64.min(count - held.len()) {
            let sent = sent.to_owned();
            some.spawn(async move { within("the head of an answer", begin(address, sent.as_bytes())).await.unwrap() });
        }
        for (stream, status) in some.join_all().await {
            assert_eq!(status, "200");
            held.push(stream);
        }
    }
    held
}

/// Whether the proxy has ended it: the rest of the answer, if it has.
fn rest(stream: &TcpStream) -> Option<String> {
    let (mut rest, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        match stream.try_read(&mut piece) {
            Ok(0) => return Some(String::from_utf8(rest).unwrap()),
            Ok(count) => rest.extend_from_slice(&piece[..count]),
            Err(_) => return None,
        }
    }
}

#[tokio::test]
async fn thousands_of_streams_of_one_login_lock_nobody_out() {
    let (runner, _issuer, [mallory, alice, _]) = login(&[]).await;
    let _streams = held(runner.address, 4_200, &stream(&mallory)).await;
    let _served = held(runner.address, 10, &call(&alice)).await;
    let _served = held(runner.address, 10, &stream(&alice)).await;
    assert_eq!(probe(&runner, "/health").await.0, 200);
}

#[tokio::test]
async fn the_login_with_the_most_streams_gives_its_oldest() {
    let (runner, _issuer, [mallory, alice, bob]) = login(&["--connections", &FEW.to_string()]).await;
    let few = held(runner.address, 2, &stream(&bob)).await;
    let mut many = Vec::new();
    for _ in 0..FEW + 16 {
        many.extend(held(runner.address, 1, &stream(&mallory)).await);
    }
    // All but the last quarter of the places, in which nobody waits for a call.
    let ended = FEW + 16 - (FEW - FEW / 4 - few.len());
    eventually("the oldest streams to end", || async {
        many.iter().position(|stream| rest(stream).is_none()).filter(|first| *first == ended)
    })
    .await;
    // More than that quarter: streams give way for the rest.
    let calls = held(runner.address, FEW / 2, &call(&alice)).await;
    // One more gives way for this.
    let metrics = probe(&runner, "/metrics").await.1;
    let left = many.iter().skip(ended).filter(|stream| rest(stream).is_none()).count();
    assert!(left < FEW - FEW / 2 - few.len(), "{left}");
    for kept in few.iter().chain(&calls) {
        assert_eq!(rest(kept), None, "neither a stream of another login nor a call gives way");
    }
    let count = |name: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|count| count.trim().parse::<usize>().ok()).unwrap_or_else(|| panic!("{name}: {metrics}"))
    };
    assert_eq!(count("mcp_runner_streams"), left + few.len());
    assert_eq!(count("mcp_runner_connections_at_work"), left + few.len() + calls.len() + 1, "and this one");
    assert_eq!(count("mcp_runner_evictions_total{kind=\"stream\"}"), many.len() - left);
}

/// Its first read has taken the status: the rest ends with the last chunk.
#[tokio::test]
async fn a_stream_that_gives_way_ends_in_order() {
    let runner = small(&json!({})).await;
    let mut streams = held(runner.address, FEW - FEW / 4, &stream("")).await;
    let _next = held(runner.address, 1, &stream("")).await;
    let (ended, _, _) = futures::future::select_all(streams.iter_mut().map(|stream| {
        Box::pin(async move {
            let mut rest = String::new();
            within("an end", stream.read_to_string(&mut rest)).await.unwrap();
            rest
        })
    }))
    .await;
    assert!(ended.contains("text/event-stream") && ended.ends_with("0\r\n\r\n"), "{ended}");
}

/// A server that answers calls, and nobody who listens.
async fn keeps_heads_back() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let answer = b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                if stream.read_u8().await.is_ok_and(|first| first == b'P') {
                    let _ = stream.write_all(answer).await;
                }
                let _ = stream.read_to_end(&mut Vec::new()).await;
            });
        }
    });
    url
}

/// Sends this from another host of loopback, whose network is its own.
pub(crate) async fn from(host: u8, runner: &Runner, sent: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 2, host], 0))).unwrap();
    let mut stream = socket.connect(runner.address).await.unwrap();
    stream.write_all(sent.as_bytes()).await.unwrap();
    stream
}

/// Waits until a call of another client is answered.
async fn served(runner: &Runner) {
    eventually("another client's answer", || async {
        let mut head = [0; 12];
        let read = from(3, runner, &call("")).await.read_exact(&mut head).await;
        (read.is_ok() && &head == b"HTTP/1.1 202").then_some(())
    })
    .await;
}

/// A server that sends without end to those who listen.
async fn floods() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                if stream.read_u8().await.is_ok_and(|first| first == b'P') {
                    let answer = b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                    let _ = stream.write_all(answer).await;
                    return;
                }
                let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
                let event = format!("data: {}\n\n", "x".repeat(64 << 10));
                let mut sent = stream.write_all(head).await;
                while sent.is_ok() {
                    sent = stream.write_all(event.as_bytes()).await;
                }
            });
        }
    });
    url
}

// P8
#[tokio::test]
async fn streams_that_nobody_reads_keep_no_places() {
    let flags = ["--connections", &FEW.to_string(), "--backend", &floods().await].map(Into::into);
    let runner = Runner::start("streamable-http", &json!({}), &flags, &[]).await;
    let mut unread = Vec::new();
    for _ in 0..FEW {
        unread.push(from(2, &runner, &stream("")).await);
    }
    eventually("as many streams as there may be", || async {
        let at_work = value(&runner, "mcp_runner_connections_at_work").await;
        (at_work >= f64::from(u32::try_from(FEW * 3 / 4).unwrap())).then_some(())
    })
    .await;
    // These find no place that is free.
    for _ in 0..FEW {
        unread.push(from(2, &runner, &stream("")).await);
    }
    let began = Stopwatch::start();
    assert_eq!(probe(&runner, "/health").await.0, 200);
    assert!(began.elapsed() < PROBE, "{:?}", began.elapsed());
    served(&runner).await;
    assert!(began.elapsed() < PROBE, "{:?}", began.elapsed());
}

#[tokio::test]
async fn streams_whose_server_says_nothing_give_way_as_well() {
    let backend = keeps_heads_back().await;
    let flags = ["--connections", &FEW.to_string(), "--backend", &backend].map(Into::into);
    let runner = Runner::start("streamable-http", &json!({}), &flags, &[]).await;
    let mut waiting = Vec::new();
    for _ in 0..FEW + 16 {
        waiting.push(from(2, &runner, &stream("")).await);
    }
    served(&runner).await;
    let mut first = String::new();
    within("the oldest to end", waiting[0].read_to_string(&mut first)).await.unwrap();
    assert!(first.starts_with("HTTP/1.1 503") && first.contains("retry-after: 1\r\n"), "{first}");
}

// P8
#[tokio::test]
async fn clients_of_an_ingress_share_as_one_each_where_it_is_trusted() {
    for (trusted, lost, lost_by_the_largest) in [(json!(["127.0.0.0/8"]), 0, 20), (json!([]), 20, 0)] {
        let backend = silent_streams().await;
        // Streams have 240 of the places.
        let flags = ["--connections", "320", "--backend", &backend].map(Into::into);
        let members = json!({"portcullis": {"trusted_proxies": trusted}});
        let runner = Runner::start("streamable-http", &members, &flags, &[]).await;
        let (mut clients, mut largest) = (Vec::new(), Vec::new());
        for client in 0..200 {
            let forwarded = format!("x-forwarded-for: 10.9.8.{client}\r\n");
            clients.extend(held(runner.address, 1, &stream(&forwarded)).await);
        }
        for _ in 0..60 {
            largest.extend(held(runner.address, 1, &stream("x-forwarded-for: 10.9.9.9\r\n")).await);
        }
        let ended = |streams: &[TcpStream]| streams.iter().filter(|stream| rest(stream).is_some()).count();
        eventually("twenty streams to end", || async {
            (ended(&clients) == lost && ended(&largest) == lost_by_the_largest).then_some(())
        })
        .await;
    }
}

/// The resident memory of the runner, in MiB.
fn resident(runner: &Runner) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", runner.pid())).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    resident.trim().trim_end_matches(" kB").parse::<usize>().unwrap() >> 10
}

/// Thousands of connections, on each of which `first` is answered before an unfinished head is sent. Returns the MiB that
/// the heads take.
async fn unfinished_heads(first: &str) -> usize {
    let runner = Runner::http_with(&silent_streams().await, &json!({}), &[("RUST_LOG", "info")]).await;
    let mut clients = Vec::new();
    while clients.len() < 4_000 {
        let mut client = within("a connection", TcpStream::connect(runner.address)).await.unwrap();
        if !first.is_empty() {
            client.write_all(first.as_bytes()).await.unwrap();
            within("an answer", client.read_exact(&mut [0; 12])).await.unwrap();
        }
        clients.push(client);
    }
    let before = resident(&runner);
    let mut head = "GET /mcp HTTP/1.1\r\nhost: localhost\r\n".to_owned();
    while head.len() < 60_000 {
        write!(head, "x-{}: {}\r\n", head.len(), "y".repeat(1_000)).unwrap();
    }
    for client in &mut clients {
        // One that has lost its place cannot be written to.
        let _ = client.write_all(head.as_bytes()).await;
    }
    let call = call("");
    assert_eq!(within("another client to be served", begin(runner.address, call.as_bytes())).await.unwrap().1, "200");
    resident(&runner).saturating_sub(before)
}

#[tokio::test]
async fn unfinished_heads_take_no_more_than_their_budget() {
    for first in ["", "GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n"] {
        let took = unfinished_heads(first).await;
        // 16 MiB of heads beyond the first buffers, with what allocators add.
        assert!(took <= 96, "{first:?}: {took} MiB");
    }
}
