//! A server made of one socket: it keeps every byte it gets and answers what the test says.

use std::net::SocketAddr;
use std::sync::Arc;

use socket2::{SockFilter, SockRef};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::within;

/// A request as it came over the wire, with the connection to answer on.
pub(crate) struct Recorded {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    stream: TcpStream,
    back: Arc<mpsc::UnboundedSender<TcpStream>>,
}

pub(crate) struct Recorder {
    pub(crate) address: SocketAddr,
    requests: mpsc::UnboundedReceiver<Recorded>,
}

impl Recorder {
    pub(crate) async fn start() -> Self {
        Self::at(([127, 0, 0, 1], 0).into()).await
    }

    pub(crate) async fn at(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, requests) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let (back, mut returned) = mpsc::unbounded_channel::<TcpStream>();
            let back = Arc::new(back);
            loop {
                let stream = tokio::select! {
                    accepted = listener.accept() => accepted.unwrap().0,
                    Some(stream) = returned.recv() => stream,
                };
                let (sender, back) = (sender.clone(), Arc::clone(&back));
                tokio::spawn(async move {
                    if let Some(request) = record(stream, back).await {
                        let _ = sender.send(request);
                    }
                });
            }
        });
        Self { address, requests }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) async fn next(&mut self) -> Recorded {
        within("a request to reach the server", self.requests.recv()).await.unwrap()
    }

    /// Whether a request came that nobody asked for.
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.requests.try_recv().is_err()
    }
}

async fn record(mut stream: TcpStream, back: Arc<mpsc::UnboundedSender<TcpStream>>) -> Option<Recorded> {
    let mut bytes = Vec::new();
    loop {
        let (head, body) = read(&mut stream, &mut bytes).await?;
        // The runner's own checks are no requests of the test's.
        if !head.starts_with("GET / ") && body != br#"{"jsonrpc":"2.0","id":"health","method":"ping"}"# {
            return Some(Recorded { head, body, stream, back });
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.ok()?;
        bytes.clear();
    }
}

/// The head and the body of one request.
async fn read(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<(String, Vec<u8>)> {
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let length = header(&head, "content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    while bytes.len() < end + length {
        if stream.read_buf(bytes).await.ok()? == 0 {
            return None;
        }
    }
    Some((head, bytes[end..].to_vec()))
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines()
        .filter_map(|line| line.split_once(": "))
        .find(|(key, _)| key.eq_ignore_ascii_case(name))
        .map(|(_, value)| value)
}

impl Recorded {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    /// Answers with these bytes and takes the next request on the same connection.
    pub(crate) async fn answer(mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
        let _ = self.back.send(self.stream);
    }

    /// Answers with JSON.
    pub(crate) async fn json(self, status: &str, headers: &str, body: &str) {
        let length = body.len();
        let head =
            format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{headers}content-length: {length}\r\n\r\n");
        self.answer(head + body).await;
    }

    /// Sends a part of an answer and keeps the connection.
    pub(crate) async fn part(&mut self, bytes: &str) {
        self.stream.write_all(bytes.as_bytes()).await.unwrap();
    }

    /// The server's machine is gone from here on, and says no farewell: the kernel drops all that comes on this connection.
    pub(crate) fn vanishes(&self) {
        // BPF_RET: no byte of a packet is let through.
        let nothing = SockFilter::new(0x06, 0, 0, 0);
        SockRef::from(&self.stream).attach_filter(&[nothing]).unwrap();
    }

    /// Waits until the proxy ends the connection.
    pub(crate) async fn left(mut self) {
        let mut rest = Vec::new();
        let ended = within("the proxy to end the connection", self.stream.read_to_end(&mut rest)).await;
        assert!(ended.is_err() || rest.is_empty(), "{:?}", String::from_utf8_lossy(&rest));
    }
}
