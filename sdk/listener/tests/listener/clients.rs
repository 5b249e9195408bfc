//! Clients that hold connections, and those that come after them.

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::{Request, Response};
use portcullis_listener::{Handler, Incoming, Limits, Server};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Nothing in these tests takes longer.
const PATIENCE: Duration = Duration::from_mins(1);

/// Answers `/stream` with a body that does not end, `/large` with one of 32 MiB, the rest at once. Cancels the token
/// when a large one is dropped.
struct Handled(CancellationToken);

/// So many bytes, and then no end if there is to be none.
struct Bytewise {
    left: usize,
    ends: bool,
    _dropped: Option<DropGuard>,
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

    async fn handle(&self, request: Request<Incoming>) -> Response<Bytewise> {
        Response::new(match request.uri().path() {
            "/stream" => Bytewise { left: 1, ends: false, _dropped: None },
            "/large" => Bytewise { left: LARGE, ends: true, _dropped: Some(self.0.clone().drop_guard()) },
            _ => Bytewise { left: 1, ends: true, _dropped: None },
        })
    }
}

struct Serving {
    address: SocketAddr,
    /// Cancelled when a large answer is dropped.
    dropped: CancellationToken,
    ending: CancellationToken,
    stop: CancellationToken,
    ended: tokio::task::JoinHandle<()>,
    _stop: DropGuard,
}

async fn serve(limits: Limits) -> Serving {
    let server = Server::bind((Ipv4Addr::LOCALHOST, 0), limits).await.unwrap();
    let (address, stop, ending) = (server.local_addr().unwrap(), CancellationToken::new(), CancellationToken::new());
    let dropped = CancellationToken::new();
    let serving =
        server.with_drain_signal(ending.clone()).serve_plain(Arc::new(Handled(dropped.clone())), stop.clone());
    let ended = tokio::spawn(serving);
    Serving { address, dropped, ending, _stop: stop.clone().drop_guard(), stop, ended }
}

impl Serving {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// A connection on which this was asked, and the head of the answer.
    async fn ask(&self, path: &str) -> (TcpStream, String) {
        let mut stream = self.connect().await;
        let head = ask(&mut stream, path).await;
        (stream, head)
    }

    /// A connection on which the large answer is asked for, and nothing is read.
    async fn ask_for_large(&self) -> TcpStream {
        let mut stream = self.connect().await;
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

/// Go's client opens one for a request that another connection then takes, and keeps it for 90 s.
#[tokio::test]
async fn a_connection_is_kept_for_its_first_request() {
    let serving = serve(Limits::default()).await;
    let mut spare = serving.connect().await;
    tokio::time::pause();
    tokio::time::sleep(Duration::from_secs(100)).await;
    tokio::time::resume();
    let head = ask(&mut spare, "/").await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
}

/// By themselves none of them would end before this test does.
#[tokio::test]
async fn the_longest_idle_connection_closes_for_a_new_one() {
    let hours = Duration::from_hours(1);
    let serving = serve(Limits { connections: 3, idle: hours, ..Limits::default() }).await;
    let (_stream, _) = serving.ask("/stream").await;
    let (mut first, _) = serving.ask("/").await;
    let (mut second, _) = serving.ask("/").await;
    assert!(ask(&mut first, "/").await.starts_with("HTTP/1.1 200"));
    let (mut third, head) = serving.ask("/").await;
    assert!(head.starts_with("HTTP/1.1 200") && is_closed(&mut second).await, "{head}");
    let mut silent = serving.connect().await;
    assert!(is_closed(&mut first).await);
    let (mut fourth, head) = serving.ask("/").await;
    assert!(head.starts_with("HTTP/1.1 200") && is_closed(&mut third).await, "{head}");
    let (_stream, head) = serving.ask("/stream").await;
    assert!(head.starts_with("HTTP/1.1 200") && is_closed(&mut silent).await, "{head}");
    assert!(ask(&mut fourth, "/").await.starts_with("HTTP/1.1 200"), "and one that was asked later stays");
}

#[tokio::test]
async fn a_new_connection_waits_while_none_is_idle() {
    let serving = serve(Limits { connections: 1, ..Limits::default() }).await;
    let (stream, _) = serving.ask("/stream").await;
    let late = async { serving.ask("/").await.1 };
    let leave = async {
        // Another one finds no room meanwhile, and does not take any.
        drop(serving.connect().await);
        drop(stream);
    };
    let (head, ()) = tokio::join!(late, leave);
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
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
async fn a_slow_reader_is_kept_and_a_stopped_one_is_dropped() {
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
    timeout(PATIENCE, serving.dropped.cancelled()).await.expect("the connection is given up");
    let _ = timeout(PATIENCE, stopped.read_to_end(&mut rest)).await.unwrap();
    assert!(rest.len() < LARGE, "{}", rest.len());
}

/// A pool that holds one of them must not have its request meet the end of the server.
#[tokio::test]
async fn draining_closes_each_connection_after_its_next_answer() {
    let serving = serve(Limits::default()).await;
    let (mut idle, head) = serving.ask("/").await;
    assert!(!head.contains("connection: close"), "{head}");
    serving.ending.cancel();
    // Until it has noticed, connections are as before.
    let until_told = async { while !serving.ask("/").await.1.contains("connection: close") {} };
    timeout(PATIENCE, until_told).await.unwrap();
    for _ in 0..3 {
        let (mut new, head) = serving.ask("/").await;
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
    let mut late = serving.connect().await;
    // Connections are accepted in order.
    serving.ask("/").await;
    serving.stop.cancel();
    timeout(PATIENCE, async { while TcpStream::connect(serving.address).await.is_ok() {} }).await.unwrap();
    let head = ask(&mut late, "/").await;
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("connection: close"), "{head}");
    assert!(is_closed(&mut late).await);
}

#[tokio::test]
async fn neither_silence_nor_an_endless_answer_holds_up_the_end() {
    // By itself the silent one would not end before this test does.
    let (drain, idle) = (Duration::from_secs(2), Duration::from_hours(1));
    let serving = serve(Limits { drain, idle, ..Limits::default() }).await;
    let mut silent = serving.connect().await;
    let (mut stream, _) = serving.ask("/stream").await;
    serving.stop.cancel();
    assert!(is_closed(&mut silent).await);
    assert!(is_closed(&mut stream).await);
    timeout(PATIENCE, serving.ended).await.unwrap().unwrap();
}

/// Its kernel has made the connection, and it does not know that it was not accepted.
#[tokio::test]
async fn a_request_in_the_backlog_is_answered_when_the_listener_ends() {
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
