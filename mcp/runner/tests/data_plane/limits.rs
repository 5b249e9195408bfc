//! Clients that send too much or too slowly.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use portcullis_testing::Stopwatch;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::support::{Recorder, Runner, within};

#[tokio::test]
async fn a_body_over_the_limit_is_413_and_a_batch_is_400() {
    let mut backend = Recorder::start().await;
    let limit = |bytes: u64| json!({"type": "bodylimit", "parameters": {"max_bytes": bytes}});
    let parser = json!({"type": "mcp-parser", "parameters": {}});
    for chain in [json!([limit(1000), parser]), json!([limit(1000)])] {
        let runner = Runner::http(&backend.url(), &json!({"middleware_configs": chain})).await;
        let long = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"x":"{}"}}}}"#, "y".repeat(2000));
        let answer = runner.post(&[], &long).await;
        assert_eq!((answer.status, answer.body.trim_end()), (413, "Request Entity Too Large"), "{chain}");
        let answer = runner.post(&[], r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#).await;
        assert_eq!(answer.status, 400, "{chain}");
        assert_eq!(answer.message()["error"]["code"], -32600);
        // Without a Content-Length the cap bites while reading.
        let mut stream = TcpStream::connect(runner.address).await.unwrap();
        let head = "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(format!("{:x}\r\n{long}\r\n0\r\n\r\n", long.len()).as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        within("a refusal", stream.read_exact(&mut answer)).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 413", "{chain}");
    }
    assert!(backend.is_quiet());
}

#[tokio::test]
async fn a_head_that_comes_drop_by_drop_is_cut_off_and_a_silent_connection_is_not() {
    let backend = Recorder::start().await;
    // The head may take as long as a request may, and 10 s at most.
    let runner = Runner::http(&backend.url(), &json!({"proxy_read_timeout": "1s"})).await;
    runner.ready().await;
    let mut idle = TcpStream::connect(runner.address).await.unwrap();
    let mut slow = TcpStream::connect(runner.address).await.unwrap();
    let start = Instant::now();
    slow.write_all(b"GET /readyz HTTP/1.1\r\nx-slow: ").await.unwrap();
    let cut = async {
        let mut pause = tokio::time::interval(Duration::from_millis(50));
        let mut byte = [0];
        loop {
            tokio::select! {
                read = slow.read(&mut byte) => return read,
                _ = pause.tick() => { let _ = slow.try_write(b"x"); }
            }
        }
    };
    let read = within("a slow head to be cut off", cut).await;
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    assert!(start.elapsed() >= Duration::from_millis(900), "{:?}", start.elapsed());
    // The other connection, silent for as long, still serves.
    idle.write_all(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut answer = [0; 12];
    within("an answer", idle.read_exact(&mut answer)).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
}

#[tokio::test]
async fn a_request_that_takes_longer_than_the_documents_read_timeout_does_not_reach_the_backend() {
    let mut backend = Recorder::start().await;
    for chain in [json!([{"type": "mcp-parser"}]), json!([{"type": "auth"}])] {
        let members = json!({"proxy_read_timeout": "1s", "middleware_configs": chain});
        let runner = Runner::http(&backend.url(), &members).await;
        let head = "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
        for (part, status) in [(format!("{head}content-length: 100\r\n\r\n{{"), "408"), (head.to_owned(), "")] {
            let mut stream = TcpStream::connect(runner.address).await.unwrap();
            let start = Stopwatch::start();
            stream.write_all(part.as_bytes()).await.unwrap();
            let mut answer = [0; 12];
            let read = within("the end of a slow request", stream.read(&mut answer)).await;
            let passed = start.started().elapsed();
            assert!(passed >= Duration::from_millis(900), "{part:?}: {passed:?}");
            // Both default limits, 10 s for the head and 30 s for the body, are far away.
            assert!(start.elapsed() < Duration::from_secs(8), "{part:?}: {:?}", start.elapsed());
            assert!(!answer.starts_with(b"HTTP/1.1 2"), "{part:?}: {read:?} {answer:?}");
            assert!(status.is_empty() || answer.ends_with(status.as_bytes()), "{chain} {part:?}: {answer:?}");
        }
    }
    assert!(backend.is_quiet());
}

#[tokio::test]
async fn the_documents_body_limit_counts_and_not_the_narrower_one_of_the_chain() {
    let mut backend = Recorder::start().await;
    let chain =
        json!([{"type": "bodylimit", "parameters": {"max_bytes": 10}}, {"type": "mcp-parser", "parameters": {}}]);
    let runner =
        Runner::http(&backend.url(), &json!({"middleware_configs": chain, "max_request_body_size": 200})).await;
    let call = |length: usize| {
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"x":"{}"}}}}"#, "y".repeat(length))
    };
    assert_eq!(runner.post(&[], &call(200)).await.status, 413);
    assert!(backend.is_quiet());
    let body = call(100);
    let (answer, ()) = tokio::join!(runner.post(&[], &body), async {
        let mut request = backend.next().await;
        request.part("HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n").await;
    });
    assert_eq!(answer.status, 202);
}

#[tokio::test]
async fn two_hundred_slow_uploads_do_not_keep_a_quick_client_out() {
    let mut backend = Recorder::start().await;
    let runner = Runner::http(&backend.url(), &json!({})).await;
    let head =
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 8000000\r\n\r\n";
    let part = vec![b' '; 1 << 20];
    let mut uploads = Vec::new();
    for _ in 0..200 {
        let mut stream = TcpStream::connect(runner.address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        // Those that are refused meanwhile cannot be written to.
        let _ = stream.write_all(&part).await;
        uploads.push(stream);
    }
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    for _ in 0..10 {
        let (answer, ()) = tokio::join!(runner.post(&[], ping), async {
            backend.next().await.json("200 OK", "", r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).await;
        });
        assert_eq!(answer.status, 200);
    }
}

/// A server whose answers are as long as the id of the request says, in bytes.
async fn long_answers() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut read = Vec::new();
                // The proxy may leave within an answer.
                while stream.read_buf(&mut read).await.is_ok_and(|count| count > 0) {
                    let text = String::from_utf8_lossy(&read);
                    let Some((_, id)) = text.split_once(r#""id":"#) else { continue };
                    let Some((id, _)) = id.split_once(',') else { continue };
                    let text = "x".repeat(id.parse().unwrap());
                    let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"text":"{text}"}}}}"#);
                    let length = body.len();
                    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ";
                    let answer = format!("{head}{length}\r\n\r\n{body}");
                    if stream.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                    read.clear();
                }
            });
        }
    });
    url
}

/// Asks from 127.0.1.`host` for an answer of so many bytes.
async fn ask(runner: &Runner, host: u8, bytes: usize) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 1, host], 0))).unwrap();
    let mut stream = socket.connect(runner.address).await.unwrap();
    let body = format!(r#"{{"jsonrpc":"2.0","method":"tools/call","id":{bytes},"params":{{"name":"say"}}}}"#);
    let length = body.len();
    let head = "POST /mcp HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n";
    stream.write_all(format!("{head}content-length: {length}\r\n\r\n{body}").as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn clients_that_do_not_read_their_answers_neither_fill_the_memory_nor_stop_the_answers_of_others() {
    const ANSWER: usize = 16 << 20;
    let members = json!({"middleware_configs": [
        {"type": "tool-filter", "parameters": {"filter_tools": ["say"]}},
        {"type": "mcp-parser", "parameters": {}},
    ]});
    let runner = Runner::http(&long_answers().await, &members).await;
    let mut silent = Vec::new();
    for host in (2..14).chain(2..6) {
        let mut stream = ask(&runner, host, ANSWER).await;
        // Its answer is held once it begins, or is withheld.
        within("the head of an answer", stream.read_exact(&mut [0; 12])).await.unwrap();
        silent.push(stream);
    }
    let resident = std::fs::read_to_string(format!("/proc/{}/status", runner.pid())).unwrap();
    let resident = resident.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap().trim();
    let kib: usize = resident.trim_end_matches(" kB").parse().unwrap();
    // 256 MiB were asked for; 128 MiB may be held, and 1 MiB for each connection.
    assert!(kib < 200 << 10, "{resident}");
    for bytes in [1 << 10, 200_000, 4 << 20] {
        for host in [2, 20] {
            let mut whole = Vec::new();
            let read = async { ask(&runner, host, bytes).await.read_to_end(&mut whole).await };
            within("an answer", read).await.unwrap();
            assert!(whole.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&whole[..200.min(whole.len())]));
            assert!(whole.len() > bytes, "{host}: {} of {bytes}", whole.len());
        }
    }
    runner.logged("dropped a body that waits for its client").await;
}

#[tokio::test]
async fn a_head_that_is_too_long_is_refused_before_it_is_held() {
    let mut backend = Recorder::start().await;
    let runner = Runner::http(&backend.url(), &json!({})).await;
    runner.ready().await;
    for (requests_before, kib, status) in [(0, 15, "200"), (0, 17, "431"), (1, 60, "200"), (1, 70, "431")] {
        let mut stream = TcpStream::connect(runner.address).await.unwrap();
        for _ in 0..requests_before {
            stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
            let mut answer = Vec::new();
            while !answer.ends_with(b"ok\n") {
                within("an answer", stream.read_buf(&mut answer)).await.unwrap();
            }
        }
        let head = "GET /readyz HTTP/1.1\r\nhost: localhost\r\nx-long: ";
        let long = format!("{head}{}\r\n\r\n", "y".repeat((kib << 10) - head.len()));
        stream.write_all(long.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        within("an answer", stream.read_exact(&mut answer)).await.unwrap();
        assert_eq!(&answer[9..], status.as_bytes(), "{kib} KiB after {requests_before} requests");
    }
    assert!(backend.is_quiet());
}

#[tokio::test]
async fn what_is_no_http_ends_its_connection_and_nothing_else() {
    let backend = Recorder::start().await;
    let runner = Runner::http(&backend.url(), &json!({})).await;
    for garbage in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"[..],
        b"GET\r\n\r\n",
        b"\0\0\0\0\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(runner.address).await.unwrap();
        stream.write_all(garbage).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut rest = Vec::new();
        let _ = within("the end of a connection", stream.read_to_end(&mut rest)).await;
        assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 400"), "{:?}", String::from_utf8_lossy(&rest));
    }
    runner.ready().await;
}

#[tokio::test]
async fn a_client_that_sent_more_than_a_request_and_went_leaves_nothing_behind() {
    let mut backend = Recorder::start().await;
    let runner = Runner::http(&backend.url(), &json!({})).await;
    let mut at_server = Vec::new();
    for head in [None, Some("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")]
    {
        let mut client = TcpStream::connect(runner.address).await.unwrap();
        client.write_all(b"GET /mcp HTTP/1.1\r\nhost: localhost\r\n\r\nGET /mcp HTTP/1.1\r\n").await.unwrap();
        let mut request = backend.next().await;
        if let Some(head) = head {
            request.part(head).await;
            within("the head", client.read_exact(&mut [0; 12])).await.unwrap();
        }
        drop(client);
        at_server.push(request);
    }
    for request in at_server {
        request.left().await;
    }
}
