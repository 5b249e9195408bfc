//! Clients that hold connections, and those that come after them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::{Handler, Limits, Places, RequestBody, Server, Workers};
use bytes::Bytes;
use http_body::{Body, Frame};
use hyper::{Request, Response, StatusCode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Nothing in these tests takes longer.
const PATIENCE: Duration = Duration::from_mins(1);

/// Answers `/stream` with a body that does not end, `/wait` when it is told to, the rest at once.
#[derive(Default)]
struct Handled(Arc<Notify>);

/// One byte, and then no end if there is to be none.
struct Bytewise {
    byte: Option<Bytes>,
    ends: bool,
}

fn bytewise(ends: bool) -> Bytewise {
    Bytewise { byte: Some(Bytes::from_static(b"x")), ends }
}

impl Body for Bytewise {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        match self.byte.take() {
            Some(byte) => Poll::Ready(Some(Ok(Frame::data(byte)))),
            None if self.ends => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

impl Handler for Handled {
    type Body = Bytewise;

    async fn handle(&self, request: Request<RequestBody>) -> Response<Bytewise> {
        if request.uri().path() == "/wait" {
            self.0.notified().await;
        }
        Response::new(bytewise(request.uri().path() != "/stream"))
    }

    async fn shed(&self, request: Request<RequestBody>) -> Response<Bytewise> {
        let mut response = Response::new(bytewise(true));
        if request.uri().path() != "/health" {
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        }
        response
    }
}

struct Serving {
    address: SocketAddr,
    places: Places,
    go_on: Arc<Notify>,
    _stop: DropGuard,
}

async fn serve(places: usize, reserved: usize) -> Serving {
    // By themselves silent clients would not leave before a test ends.
    let hours = Duration::from_hours(1);
    let limits = Limits { connections: places, reserved, first_request: hours, idle: hours, ..Limits::default() };
    let server = Server::bind((Ipv4Addr::LOCALHOST, 0), limits).await.unwrap();
    let (address, places, stop) = (server.local_addr().unwrap(), server.places(), CancellationToken::new());
    let go_on = Arc::new(Notify::new());
    tokio::spawn(server.serve(Workers::start(1).unwrap(), Arc::new(Handled(Arc::clone(&go_on))), stop.clone()));
    Serving { address, places, go_on, _stop: stop.drop_guard() }
}

impl Serving {
    /// A connection from `127.0.0.<host>`.
    async fn connect_from(&self, host: u8) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::new(IpAddr::from([127, 0, 0, host]), 0)).unwrap();
        socket.connect(self.address).await.unwrap()
    }

    /// A connection on which this was asked, and the head of the answer.
    async fn ask(&self, host: u8, path: &str) -> (TcpStream, String) {
        let mut stream = self.connect_from(host).await;
        let head = ask(&mut stream, path).await;
        (stream, head)
    }

    /// A connection with a call under way that waits.
    async fn at_work(&self, host: u8) -> TcpStream {
        let mut stream = self.connect_from(host).await;
        let before = self.places.usage().at_work;
        stream.write_all(b"GET /wait HTTP/1.1\r\nhost: l\r\n\r\n").await.unwrap();
        let begun = async {
            while self.places.usage().at_work == before {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, begun).await.unwrap();
        stream
    }

    /// Waits until it has so many connections open.
    async fn has(&self, count: usize) {
        let look = async {
            while self.places.usage().open != count {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, look).await.unwrap_or_else(|_| panic!("it never has {count} connections"));
    }
}

/// Asks, and reads the head of the answer and the beginning of its body.
async fn ask(stream: &mut TcpStream, path: &str) -> String {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: l\r\n\r\n").as_bytes()).await.unwrap();
    let mut said = Vec::new();
    let head_ends = |said: &[u8]| said.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
    let all = |said: &[u8]| head_ends(said).is_some_and(|at| at < said.len());
    let read = async { while !all(&said) && stream.read_buf(&mut said).await.unwrap_or(0) > 0 {} };
    let _ = timeout(PATIENCE, read).await;
    String::from_utf8_lossy(&said).into_owned()
}

async fn is_closed(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    timeout(PATIENCE, stream.read_to_end(&mut rest)).await.is_ok()
}

#[tokio::test]
async fn a_probe_is_answered_while_others_hold_every_place_and_nothing_else_is() {
    let serving = serve(2, 1).await;
    let mut streams = Vec::new();
    for _ in 0..2 {
        let (stream, head) = serving.ask(1, "/stream").await;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        streams.push(stream);
    }
    for _ in 0..3 {
        let (mut probe, head) = serving.ask(1, "/health").await;
        assert!(head.starts_with("HTTP/1.1 200") && head.contains("connection: close"), "{head}");
        assert!(is_closed(&mut probe).await, "a reserved connection is for one request");
        let (_, head) = serving.ask(1, "/stream").await;
        assert!(head.starts_with("HTTP/1.1 503"), "{head}");
    }
    let mut long = serving.connect_from(1).await;
    long.write_all(format!("GET /health HTTP/1.1\r\nx: {}", "y".repeat(10 << 10)).as_bytes()).await.unwrap();
    let mut said = [0; 12];
    timeout(PATIENCE, long.read_exact(&mut said)).await.unwrap().unwrap();
    assert_eq!(&said, b"HTTP/1.1 431", "a small head");
    drop(streams);
    timeout(PATIENCE, async { while !serving.ask(1, "/stream").await.1.starts_with("HTTP/1.1 200") {} }).await.unwrap();
}

#[tokio::test]
async fn a_silent_crowd_in_the_reserved_places_does_not_keep_a_probe_waiting() {
    let serving = serve(1, 2).await;
    let _stream = serving.ask(1, "/stream").await;
    let mut silent = Vec::new();
    for _ in 0..10 {
        silent.push(serving.connect_from(2).await);
    }
    let (_, head) = serving.ask(3, "/health").await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
}

/// Otherwise each of them has its moment before the next one is let in, and a probe waits for all moments together.
#[tokio::test]
async fn silent_connections_do_not_pass_the_reserved_places_one_at_a_time() {
    let serving = serve(4, 2).await;
    let mut streams = Vec::new();
    for _ in 0..4 {
        streams.push(serving.ask(1, "/stream").await.0);
    }
    let mut silent = [serving.connect_from(2).await, serving.connect_from(2).await];
    serving.has(6).await;
    let (_, head) = serving.ask(3, "/health").await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(is_closed(&mut silent[0]).await, "one that was in the way leaves");
    for stream in &streams {
        assert!(!matches!(stream.try_read(&mut [0; 64]), Ok(0)), "a stream goes on");
    }
}

#[tokio::test]
async fn one_address_does_not_take_idle_places_from_the_others() {
    let serving = serve(4, 32).await;
    let (mut lone, _) = serving.ask(1, "/").await;
    let mut crowd = Vec::new();
    for _ in 0..3 {
        crowd.push(serving.ask(2, "/").await.0);
    }
    // The oldest of all is the lone one, and it stays for as long as its address has fewer than others.
    for host in [3, 4] {
        crowd.push(serving.ask(host, "/").await.0);
    }
    assert!(ask(&mut lone, "/").await.starts_with("HTTP/1.1 200"));
    assert!(is_closed(&mut crowd[0]).await && is_closed(&mut crowd[1]).await);
    for stream in &mut crowd[2..] {
        assert!(ask(stream, "/").await.starts_with("HTTP/1.1 200"));
    }
}

#[tokio::test]
async fn whoever_holds_more_takes_no_idle_place_of_one_that_holds_less() {
    let serving = serve(4, 1).await;
    let (mut lone, _) = serving.ask(2, "/").await;
    let mut at_work = Vec::new();
    for _ in 0..3 {
        at_work.push(serving.at_work(1).await);
    }
    for _ in 0..3 {
        let (_, head) = serving.ask(1, "/").await;
        assert!(head.starts_with("HTTP/1.1 503"), "{head}");
    }
    assert!(ask(&mut lone, "/").await.starts_with("HTTP/1.1 200"));
    // A client that holds nothing gets it.
    assert!(serving.ask(3, "/").await.1.starts_with("HTTP/1.1 200"));
    assert!(is_closed(&mut lone).await);
}

#[tokio::test]
async fn calls_beyond_a_share_are_refused_while_others_wait() {
    let serving = serve(4, 1).await;
    let mut at_work = Vec::new();
    for host in [2, 2, 2, 1] {
        at_work.push(serving.at_work(host).await);
    }
    assert!(serving.ask(3, "/").await.1.starts_with("HTTP/1.1 503"), "calls hold all places");
    serving.go_on.notify_waiters();
    for (host, stream) in [(1, 3), (2, 0)] {
        let stream = &mut at_work[stream];
        let mut said = Vec::new();
        while !said.ends_with(b"0\r\n\r\n") {
            timeout(PATIENCE, stream.read_buf(&mut said)).await.unwrap().unwrap();
        }
        let head = ask(stream, "/").await;
        let refused = head.starts_with("HTTP/1.1 503") && head.contains("connection: close");
        assert_eq!(refused, host == 2, "{head}");
        if host == 2 {
            assert!(is_closed(stream).await);
        }
    }
    let (_, head) = serving.ask(3, "/").await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
}
