//! Peers that take their time, and the deadlines that end it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Response};
use portcullis::server::{Incoming, Limits, Server};
use portcullis_testing::Stopwatch;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::client::{PATIENCE, connect, is_closed, post, read_reply, send, serve_webhooks};
use crate::fixture::{Serving, entity, review, serve, webhooks};

const SHORT: Duration = Duration::from_millis(300);

async fn serve_with(limits: Limits) -> Serving {
    serve(webhooks().routes().unwrap(), limits, &["webhook.test.svc"]).await
}

fn fine() -> Value {
    review("CREATE", entity(json!({"username": "fine"})), Value::Null)
}

#[tokio::test]
async fn half_a_body_is_given_up_when_the_caller_would_give_up() {
    let serving = serve_webhooks().await;
    let whole = post("/validate/username?timeout=2s", &fine().to_string());
    let mut took = Vec::new();
    // A machine that stalls is late now and then, and not each time.
    while took.len() < 5 && took.iter().all(|time| *time >= Duration::from_secs(2)) {
        let mut connection = connect(&serving).await;
        let began = Instant::now();
        let reply = send(&mut connection, &whole[..whole.len() - 20]).await;
        took.push(began.elapsed());
        assert_eq!(reply.status, 408);
        assert!(is_closed(&mut connection).await, "the rest of the body is not a request");
    }
    assert!(took.iter().any(|time| *time < Duration::from_secs(2)), "{took:?}");
}

#[tokio::test]
async fn a_handshake_that_does_not_go_on_is_ended() {
    let serving = serve_with(Limits { handshake: SHORT, ..Limits::default() }).await;
    let began = Stopwatch::start();
    let mut stream = TcpStream::connect(serving.address).await.unwrap();
    stream.write_all(&[0x16, 0x03, 0x01]).await.unwrap();
    assert!(is_closed(&mut stream).await);
    assert!(began.elapsed() < Limits::default().handshake, "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_head_that_comes_byte_by_byte_is_not_waited_for() {
    let serving = serve_with(Limits { idle: SHORT, ..Limits::default() }).await;
    let began = Stopwatch::start();
    let (mut reading, mut writing) = tokio::io::split(connect(&serving).await);
    let dribble = async {
        let head = post("/validate/username", "");
        for byte in head.bytes().cycle().filter(|byte| *byte != b'\n') {
            if writing.write_all(&[byte]).await.is_err() || writing.flush().await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        reply = read_reply(&mut reading) => assert!(reply.is_none()),
        () = dribble => {}
    }
    assert!(began.elapsed() < Limits::default().idle, "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_kept_connection_ends_with_its_idle_deadline() {
    let limits = Limits { idle: Duration::from_secs(2), ..Limits::default() };
    let serving = serve_with(limits).await;
    let mut connection = connect(&serving).await;
    let began = Instant::now();
    assert_eq!(send(&mut connection, &post("/validate/username", &fine().to_string())).await.status, 200);
    let last = read_reply(&mut connection).await;
    assert!(began.elapsed() >= Duration::from_millis(1900), "{:?}", began.elapsed());
    assert!(last.is_none_or(|reply| reply.status == 408), "nothing was asked");
}

/// Otherwise a few peers that never read would hold every connection there is.
#[tokio::test]
async fn a_peer_that_does_not_read_its_answer_loses_its_connection() {
    let big = |_: Request<Incoming>| async { Response::new(Full::new(Bytes::from(vec![b'x'; 64 << 20]))) };
    let server = Server::bind(
        SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        Limits { connections: 1, write: SHORT, ..Limits::default() },
    );
    let server = server.await.unwrap();
    let (address, stop) = (server.local_addr().unwrap(), CancellationToken::new());
    let _stop = stop.clone().drop_guard();
    tokio::spawn(server.serve_plain(Arc::new(big), stop));

    let mut idle = TcpStream::connect(address).await.unwrap();
    idle.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    // The only connection there may be: the next one is served when the first is given up.
    let mut next = TcpStream::connect(address).await.unwrap();
    next.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let mut first = [0; 12];
    let by_default = Limits::default().write;
    timeout(by_default, next.read_exact(&mut first)).await.expect("the first connection is given up").unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    drop(idle);
}

/// Otherwise a client that only opens connections blocks the API server, and by the failure policy all writes.
#[tokio::test]
async fn connections_that_ask_nothing_give_way_to_one_that_does() {
    // By themselves they would not end before this test does.
    let hours = Duration::from_hours(1);
    let limits = Limits { connections: 4, handshake: hours, idle: hours, ..Limits::default() };
    let serving = serve_with(limits).await;
    let silent = TcpStream::connect(serving.address).await.unwrap();
    let shaken = connect(&serving).await;
    let (mut kept, mut half) = (connect(&serving).await, connect(&serving).await);
    let whole = post("/validate/username", &fine().to_string());
    for connection in [&mut kept, &mut half] {
        assert_eq!(send(connection, &whole).await.status, 200);
    }
    half.write_all(&whole.as_bytes()[..30]).await.unwrap();
    half.flush().await.unwrap();

    let mut held = Vec::new();
    for turn in 0..8 {
        let came = async {
            let mut connection = connect(&serving).await;
            assert_eq!(send(&mut connection, &whole).await.status, 200);
            connection
        };
        held.push(timeout(PATIENCE, came).await.unwrap_or_else(|_| panic!("turn {turn} never came")));
    }
    assert!(is_closed(&mut kept).await && is_closed(&mut half).await);
    let mut last = held.pop().unwrap();
    assert_eq!(send(&mut last, &whole).await.status, 200, "the newest is kept");
    drop((silent, shaken));
}
