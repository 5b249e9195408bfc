//! An MCP backend that answers at once, and sessions that call it in a loop.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

const SESSION: &str = "mcp-session-id";
const ANSWER: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"Hi Ada"}]}}"#;
const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#;
const CALL: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"greet","arguments":{"name":"Ada"}}}"#;

/// Starts the backend on a free loopback port.
pub async fn backend() -> Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            stream.set_nodelay(true).ok();
            tokio::spawn(
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer)),
            );
        }
    });
    Ok(address)
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let known = request.headers().get(SESSION).cloned();
    request.into_body().collect().await.ok();
    let mut response = Response::new(Full::from(ANSWER));
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    let fresh = || header::HeaderValue::from_str(&format!("{:016x}-{}", rand(), "bench")).ok();
    if let Some(session) = known.or_else(fresh) {
        response.headers_mut().insert(SESSION, session);
    }
    Ok(response)
}

/// Enough to tell sessions apart.
fn rand() -> u128 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_nanos())
}

/// What a number of sessions measured.
#[derive(Debug)]
pub struct Measured {
    /// Calls made.
    pub calls: usize,
    /// How long all of it took.
    pub elapsed: Duration,
    latencies: Vec<Duration>,
}

impl Measured {
    /// The latency below which `percent` of the calls stayed.
    pub fn percentile(&self, percent: usize) -> Duration {
        self.latencies.get(self.latencies.len() * percent / 100).copied().unwrap_or_default()
    }

    /// Calls per second.
    #[allow(clippy::cast_precision_loss, reason = "a figure to look at")]
    pub fn per_second(&self) -> f64 {
        self.calls as f64 / self.elapsed.as_secs_f64()
    }
}

/// Runs `sessions` sessions side by side, each making `calls` calls one after the other, after a tenth of them as warm-up.
pub async fn run(address: SocketAddr, sessions: usize, calls: usize) -> Result<Measured> {
    let mut open = Vec::new();
    for _ in 0..sessions {
        open.push(Session::open(address).await?);
    }
    let start = Instant::now();
    let running: Vec<_> = open.into_iter().map(|session| tokio::spawn(session.calls(calls))).collect();
    let mut latencies = Vec::new();
    for session in running {
        latencies.extend(session.await??);
    }
    latencies.sort_unstable();
    Ok(Measured { calls: sessions * calls, elapsed: start.elapsed(), latencies })
}

struct Session {
    sender: SendRequest<Full<Bytes>>,
    id: header::HeaderValue,
    host: String,
}

impl Session {
    async fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let mut session = Self { sender, id: header::HeaderValue::from_static(""), host: address.to_string() };
        let response = session.post(INITIALIZE).await?;
        session.id = response.headers().get(SESSION).context("initialize gave no session id")?.clone();
        response.into_body().collect().await?;
        Ok(session)
    }

    async fn post(&mut self, body: &'static str) -> Result<Response<Incoming>> {
        let mut request = Request::post("/mcp")
            .header(header::HOST, &self.host)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, text/event-stream")
            .body(Full::from(body))?;
        if !self.id.is_empty() {
            request.headers_mut().insert(SESSION, self.id.clone());
        }
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        ensure!(response.status().is_success(), "{} to {body}", response.status());
        Ok(response)
    }

    async fn calls(mut self, calls: usize) -> Result<Vec<Duration>> {
        let mut latencies = Vec::with_capacity(calls);
        for _ in 0..calls {
            let start = Instant::now();
            let response = self.post(CALL).await?;
            response.into_body().collect().await?;
            latencies.push(start.elapsed());
        }
        Ok(latencies)
    }
}
