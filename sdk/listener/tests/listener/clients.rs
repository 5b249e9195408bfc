//! Clients that hold connections, and those that come after them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::{Request, Response};
use portcullis_listener::{Connections, Handler, Limits, RequestBody, Server};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Nothing in these tests takes longer.
const PATIENCE: Duration = Duration::from_mins(1);

/// Answers `/stream` with a body that does not end, `/large` with one of 32 MiB, the rest at once.
struct Handled;

/// So many bytes, and then no end if there is to be none.
struct Bytewise {
    left: usize,
    ends: bool,
}

const PIECE: usize = 64 << 10;
const LARGE: usize = 32 << 20;

impl Body for Bytewise {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        let piece = self.left.min(PIECE);
        if piece == 0 {
            return if self.ends { Poll::Ready(None) } else { Poll::Pending };
        }
        self.left -= piece;
        Poll::Ready(Some(Ok(Frame::data(vec![b'x'; piece].into()))))
    }

    fn size_hint(&self) -> SizeHint {
        if self.ends { SizeHint::with_exact(self.left as u64) } else { SizeHint::default() }
    }
}

impl Handler for Handled {
    type Body = Bytewise;

    async fn handle(&self, request: Request<RequestBody>) -> Response<Bytewise> {
        Response::new(match request.uri().path() {
            "/stream" => Bytewise { left: 1, ends: false },
            "/large" => Bytewise { left: LARGE, ends: true },
            _ => Bytewise { left: 1, ends: true },
        })
    }

    async fn shed(&self, request: Request<RequestBody>) -> Option<Response<Bytewise>> {
        (request.uri().path() == "/health").then(|| Response::new(Bytewise { left: 1, ends: true }))
    }
}

struct Serving {
    address: SocketAddr,
    connections: Connections,
    ending: CancellationToken,
    stop: CancellationToken,
    ended: tokio::task::JoinHandle<()>,
    _stop: DropGuard,
}

async fn serve(limits: Limits) -> Serving {
    let server = Server::bind((Ipv4Addr::LOCALHOST, 0), limits).await.unwrap();
    let (address, stop, ending) = (server.local_addr().unwrap(), CancellationToken::new(), CancellationToken::new());
    let connections = server.connections();
    let serving = server.ending(ending.clone()).serve_plain(Arc::new(Handled), stop.clone());
    let ended = tokio::spawn(serving);
    Serving { address, connections, ending, _stop: stop.clone().drop_guard(), stop, ended }
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

    /// Waits until it has so many connections open.
    async fn has(&self, count: usize) {
        let look = async {
            while self.connections.count() != count {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, look).await.unwrap_or_else(|_| panic!("it never has {count} connections"));
    }

    /// A connection on which the large answer is asked for, and nothing is read.
    async fn ask_for_large(&self) -> TcpStream {
        let mut stream = self.connect_from(1).await;
        stream.write_all(b"GET /large HTTP/1.1\r\nhost: l\r\nconnection: close\r\n\r\n").await.unwrap();
        stream
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
    let serving = serve(Limits { connections: 2, reserved: 1, ..Limits::default() }).await;
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
        assert!(head.starts_with("HTTP/1.1 429") && head.contains("retry-after: 1"), "{head}");
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
    // By themselves they would not end before this test does.
    let first_request = Duration::from_hours(1);
    let serving = serve(Limits { connections: 1, reserved: 2, first_request, ..Limits::default() }).await;
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
    let serving = serve(Limits { connections: 4, reserved: 2, ..Limits::default() }).await;
    let mut streams = Vec::new();
    for _ in 0..4 {
        streams.push(serving.ask(1, "/stream").await.0);
    }
    let mut silent = [serving.connect_from(2).await, serving.connect_from(2).await];
    serving.has(6).await;
    let (_, head) = serving.ask(3, "/health").await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    for silent in &mut silent {
        assert!(is_closed(silent).await, "those that were in the way leave");
    }
    for stream in &streams {
        assert!(!matches!(stream.try_read(&mut [0; 64]), Ok(0)), "a stream goes on");
    }
}

#[tokio::test]
async fn one_address_does_not_take_idle_places_from_the_others() {
    let serving = serve(Limits { connections: 4, ..Limits::default() }).await;
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

/// Reads a large answer slower than the limit on the whole, and quicker than it from piece to piece; how much came.
async fn read_slowly(stream: &mut TcpStream, limit: Duration) -> usize {
    let (began, mut read, mut piece) = (Instant::now(), 0, vec![0; 4 << 20]);
    loop {
        match timeout(PATIENCE, stream.read(&mut piece)).await.unwrap() {
            Ok(came) if came > 0 => read += came,
            Ok(_) | Err(_) => return read,
        }
        if began.elapsed() < 2 * limit {
            tokio::time::sleep(limit / 3).await;
        }
    }
}

#[tokio::test]
async fn a_client_that_reads_slowly_is_not_given_up_and_one_that_stops_is() {
    let mut read = 0;
    // A client on a machine that stalls is slower than it wants to be: then it tries again under a longer limit.
    for write in [500, 2_000, 8_000].map(Duration::from_millis) {
        let serving = serve(Limits { write, ..Limits::default() }).await;
        read = read_slowly(&mut serving.ask_for_large().await, write).await;
        if read > LARGE {
            break;
        }
    }
    assert!(read > LARGE, "{read}");

    let serving = serve(Limits { write: Duration::from_millis(500), ..Limits::default() }).await;
    let (mut stopped, mut rest) = (serving.ask_for_large().await, Vec::new());
    serving.has(1).await;
    serving.has(0).await;
    let _ = timeout(PATIENCE, stopped.read_to_end(&mut rest)).await.unwrap();
    assert!(rest.len() < LARGE, "{}", rest.len());
}

/// A pool that holds one of them must not have its request meet the end of the server.
#[tokio::test]
async fn before_the_listener_ends_each_connection_closes_with_its_next_answer_and_none_before() {
    let serving = serve(Limits::default()).await;
    let (mut idle, head) = serving.ask(1, "/").await;
    assert!(!head.contains("connection: close"), "{head}");
    serving.ending.cancel();
    // Until it has heard of it, connections are as before.
    let until_told = async { while !serving.ask(1, "/").await.1.contains("connection: close") {} };
    timeout(PATIENCE, until_told).await.unwrap();
    for _ in 0..3 {
        let (mut new, head) = serving.ask(1, "/").await;
        assert!(head.starts_with("HTTP/1.1 200") && head.contains("connection: close"), "{head}");
        assert!(is_closed(&mut new).await);
    }
    let head = ask(&mut idle, "/").await;
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("connection: close"), "{head}");
    assert!(is_closed(&mut idle).await);
}

#[tokio::test]
async fn a_request_that_arrives_as_the_listener_closes_is_not_lost() {
    let serving = serve(Limits::default()).await;
    let mut late = serving.connect_from(1).await;
    serving.has(1).await;
    serving.stop.cancel();
    timeout(PATIENCE, async { while TcpStream::connect(serving.address).await.is_ok() {} }).await.unwrap();
    let head = ask(&mut late, "/").await;
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("connection: close"), "{head}");
    assert!(is_closed(&mut late).await);
}

#[tokio::test]
async fn neither_silence_nor_an_endless_answer_holds_up_the_end() {
    // By itself the silent one would not end before this test does.
    let (drain, first_request) = (Duration::from_secs(2), Duration::from_hours(1));
    let serving = serve(Limits { drain, first_request, ..Limits::default() }).await;
    let mut silent = serving.connect_from(1).await;
    let (mut stream, _) = serving.ask(1, "/stream").await;
    serving.stop.cancel();
    assert!(is_closed(&mut silent).await);
    assert!(is_closed(&mut stream).await);
    timeout(PATIENCE, serving.ended).await.unwrap().unwrap();
}

/// Its kernel has made the connection, and it does not know that nobody has taken it.
#[tokio::test]
async fn a_request_that_waits_to_be_taken_when_the_listener_ends_is_answered() {
    let serving = serve(Limits::default()).await;
    // Nothing here lets the listener run before it is to end.
    let mut early = std::net::TcpStream::connect(serving.address).unwrap();
    std::io::Write::write_all(&mut early, b"GET / HTTP/1.1\r\nhost: l\r\n\r\n").unwrap();
    serving.stop.cancel();
    early.set_nonblocking(true).unwrap();
    let mut early = TcpStream::from_std(early).unwrap();
    let mut answer = String::new();
    timeout(PATIENCE, early.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("connection: close"), "{answer}");
    timeout(PATIENCE, serving.ended).await.unwrap().unwrap();
}
