//! Sessions that call in a loop and check every answer.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use futures::future::try_join_all;
use http_body_util::{BodyExt as _, Full};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Client as Pool;
use hyper_util::rt::TokioExecutor;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::http::{Connection, INITIALIZE, INITIALIZED, post};
use super::sse::SseSession;
use super::webhooks::{self, Signed};
use super::workload::Workload;
use crate::proc::ThreadTimes;
use crate::webhook::client;

/// The measurements of one run of calls. Times are in milliseconds.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Measured {
    /// The latency that half of the calls stayed below.
    pub p50: f64,
    /// The one that 99 of 100 stayed below.
    pub p99: f64,
    /// Calls per second.
    pub per_second: f64,
    /// CPU time per call of the process that was watched.
    pub cpu: Option<f64>,
}

/// The calls of a run: the number of concurrent sessions, and that of calls in each, after a tenth as many to warm up.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Sessions.
    pub sessions: usize,
    /// Calls of each.
    pub calls: usize,
}

/// Calls the server at `address`, with `token` where there is one, and watches process `watched` meanwhile.
pub async fn call(
    address: SocketAddr,
    workload: Workload,
    load: Load,
    watched: Option<u32>,
    token: Option<&str>,
) -> Result<Measured> {
    let headers = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
    let sessions = (0..load.sessions).map(async |_| {
        let connection = Connection::open(address).await?;
        Session::open_over(connection, address, &headers).await
    });
    let sessions = try_join_all(sessions).await?;
    measure(sessions, load.calls, watched, async |session, id| session.call(workload, id).await).await
}

/// [`call`] over HTTP with server-sent events.
pub async fn call_over_sse(
    address: SocketAddr,
    workload: Workload,
    load: Load,
    watched: Option<u32>,
) -> Result<Measured> {
    let sessions = try_join_all((0..load.sessions).map(|_| SseSession::open(address))).await?;
    measure(sessions, load.calls, watched, async |session, id| session.call(workload, id).await).await
}

/// The client of the two HTTPS calls that a runner with two webhooks makes, without a runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Client {
    /// hyper's, as programs use it.
    Hyper,
    /// One that sends bytes which are ready: the least that calls can take.
    Bytes,
}

impl Client {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hyper => "hyper",
            Self::Bytes => "bytes",
        }
    }
}

/// Makes the two HTTPS calls of a runner with two webhooks, without a runner; each pair counts as one call. The process that is watched is
/// this one.
pub async fn call_webhooks(address: SocketAddr, folder: &Path, client: Client, load: Load) -> Result<Measured> {
    let signed = || ["mutate", "validate"].map(|path| Signed::new(address, path, &Workload::Json.call(1_000_000)));
    let tls = webhooks_tls(folder)?;
    let own = Some(std::process::id());
    if client == Client::Bytes {
        let callers = (0..load.sessions).map(|_| Webhooks::open(address, tls.clone(), signed()));
        let callers = try_join_all(callers).await?;
        return measure(callers, load.calls, own, async |caller, _| caller.call().await).await;
    }
    let https = HttpsConnectorBuilder::new().with_tls_config(tls).https_only().enable_http1().build();
    let client = Pool::builder(TokioExecutor::new()).build::<_, Full<Bytes>>(https);
    let callers = (0..load.sessions).map(|_| (client.clone(), signed())).collect();
    measure(callers, load.calls, own, async |(client, requests), _| {
        let start = Instant::now();
        for request in requests {
            let (head, body) = client.request(request.request()?).await?.into_parts();
            check_allowed(head.status.as_u16(), &body.collect().await?.to_bytes())?;
        }
        Ok(start.elapsed())
    })
    .await
}

/// The TLS of the callers of webhook servers, without ALPN: hyper's client refuses one that is set already.
fn webhooks_tls(folder: &Path) -> Result<ClientConfig> {
    let mut config = ClientConfig::clone(&*client::tls(&std::fs::read_to_string(folder.join(webhooks::CA))?)?);
    config.alpn_protocols.clear();
    Ok(config)
}

fn check_allowed(status: u16, body: &[u8]) -> Result<()> {
    let text = String::from_utf8_lossy(body);
    ensure!(status == 200 && text.contains(r#""allowed":true"#), "{status} of a webhook: {text}");
    Ok(())
}

#[allow(clippy::cast_precision_loss, reason = "figures to look at")]
async fn measure<C>(
    mut callers: Vec<C>,
    calls: usize,
    watched: Option<u32>,
    call: impl AsyncFn(&mut C, u64) -> Result<Duration>,
) -> Result<Measured> {
    let rounds = async |callers: &mut Vec<C>, first: u64, calls: usize| {
        let each = callers.iter_mut().map(async |caller| {
            let mut latencies = Vec::with_capacity(calls);
            for id in (first..).take(calls) {
                latencies.push(call(caller, id).await?);
            }
            Ok::<_, anyhow::Error>(latencies)
        });
        try_join_all(each).await
    };
    rounds(&mut callers, 1, calls.div_ceil(10)).await?;
    let before = watched.map(ThreadTimes::of).transpose()?;
    let start = Instant::now();
    let latencies = rounds(&mut callers, 1_000_000, calls).await?;
    let elapsed = start.elapsed();
    let after = watched.map(ThreadTimes::of).transpose()?;
    let mut latencies = latencies.concat();
    latencies.sort_unstable();
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    let percentile = |percent: usize| ms(latencies.get(latencies.len() * percent / 100).copied().unwrap_or_default());
    let total = latencies.len() as f64;
    let cpu = after.zip(before).map(|(after, before)| ms(after.since(&before)) / total);
    Ok(Measured { p50: percentile(50), p99: percentile(99), per_second: total / elapsed.as_secs_f64(), cpu })
}

/// An MCP session over a connection of its own.
#[derive(Debug)]
pub struct Session {
    connection: Connection,
    address: SocketAddr,
    /// Header lines of every request.
    headers: String,
    id: String,
}

impl Session {
    /// Opens a session as clients do.
    pub async fn open(address: SocketAddr) -> Result<Self> {
        Self::open_over(Connection::open(address).await?, address, "").await
    }

    /// Opens a session over this connection; every request of it has these further header lines.
    pub async fn open_over(mut connection: Connection, address: SocketAddr, headers: &str) -> Result<Self> {
        let (head, body) = connection.exchange(&post(address, headers, "", INITIALIZE)).await?;
        ensure!(head.status == 200, "{} to initialize: {}", head.status, String::from_utf8_lossy(&body));
        let id = head.session.context("initialize gave no session id")?;
        let (head, _) = connection.exchange(&post(address, headers, &id, INITIALIZED)).await?;
        ensure!(head.status == 202, "{} to the client's notification", head.status);
        Ok(Self { connection, address, headers: headers.to_owned(), id })
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Gives its connection back; the session stays.
    pub fn into_connection(self) -> Connection {
        self.connection
    }

    /// Makes a call; returns the time until its answer was there, or until the first event of a stream.
    pub async fn call(&mut self, workload: Workload, id: u64) -> Result<Duration> {
        let request = post(self.address, &self.headers, &self.id, &workload.call(id));
        let start = Instant::now();
        self.connection.send(&request).await?;
        let mut head = self.connection.head().await?;
        let (mut elapsed, mut answer) = (None, Vec::new());
        if workload == Workload::Stream {
            let first = self.connection.part(&mut head).await?.context("a stream without events")?;
            elapsed = Some(start.elapsed());
            answer.extend_from_slice(&first);
        }
        let rest = self.connection.body(&mut head).await?;
        let elapsed = elapsed.unwrap_or_else(|| start.elapsed());
        ensure!(head.status == 200, "{} to call {id}: {}", head.status, String::from_utf8_lossy(&rest));
        if answer.is_empty() {
            workload.check(id, &rest, head.sse)?;
        } else {
            answer.extend_from_slice(&rest);
            workload.check(id, &answer, head.sse)?;
        }
        Ok(elapsed)
    }
}

/// A connection to the webhooks' server, and the requests that a runner would send over it.
struct Webhooks {
    connection: Connection<TlsStream<TcpStream>>,
    requests: [Vec<u8>; 2],
}

impl Webhooks {
    async fn open(address: SocketAddr, tls: ClientConfig, requests: [Signed; 2]) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from("localhost")?;
        let stream = TlsConnector::from(Arc::new(tls)).connect(name, stream).await?;
        Ok(Self { connection: Connection::over(stream), requests: requests.map(|request| request.bytes()) })
    }

    async fn call(&mut self) -> Result<Duration> {
        let start = Instant::now();
        for request in &self.requests {
            let (head, body) = self.connection.exchange(request).await?;
            check_allowed(head.status, &body)?;
        }
        Ok(start.elapsed())
    }
}
