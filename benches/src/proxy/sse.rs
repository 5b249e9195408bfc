//! A session over HTTP with server-sent events (MCP 2024-11-05): answers come on one connection, what is asked goes over another.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bytes::BytesMut;
use futures::future::try_join;

use super::http::{Connection, Head, INITIALIZE, INITIALIZED, get};
use super::workload::Workload;

/// An open session.
#[derive(Debug)]
pub struct SseSession {
    stream: Events,
    posts: Connection,
    address: SocketAddr,
    /// Where to POST.
    path: String,
}

/// The stream of its answers.
#[derive(Debug)]
struct Events {
    connection: Connection,
    head: Head,
    read: BytesMut,
}

impl SseSession {
    /// Opens a session as clients do.
    pub async fn open(address: SocketAddr) -> Result<Self> {
        let (mut connection, posts) = (Connection::open(address).await?, Connection::open(address).await?);
        connection.send(&get(address, "/sse", "accept: text/event-stream\r\n")).await?;
        let head = connection.head().await?;
        ensure!(head.status == 200 && head.sse, "{} instead of a stream", head.status);
        let mut stream = Events { connection, head, read: BytesMut::new() };
        let endpoint = stream.next().await?;
        // Absolute or not, it is at this address.
        let path = endpoint
            .split_once("://")
            .map_or(Some(endpoint.as_str()), |(_, rest)| rest.find('/').map(|at| &rest[at..]));
        let path = path.context("an endpoint without a path")?.to_owned();
        let mut session = Self { stream, posts, address, path };
        session.ask(INITIALIZE).await?;
        session.post(INITIALIZED).await?;
        accepted(&mut session.posts).await?;
        Ok(session)
    }

    /// Makes a call; returns the time until its answer was on the stream.
    pub async fn call(&mut self, workload: Workload, id: u64) -> Result<Duration> {
        let (answer, elapsed) = self.ask(&workload.call(id)).await?;
        workload.check(id, answer.as_bytes(), false)?;
        Ok(elapsed)
    }

    /// Sends a request; returns its answer and how long that took. A request that is refused fails at once: no answer to it would come.
    async fn ask(&mut self, body: &str) -> Result<(String, Duration)> {
        let start = Instant::now();
        self.post(body).await?;
        let answer = async { Ok((self.stream.next().await?, start.elapsed())) };
        let (answer, ()) = try_join(answer, accepted(&mut self.posts)).await?;
        Ok(answer)
    }

    async fn post(&mut self, body: &str) -> Result<()> {
        let Self { address, path, .. } = self;
        let length = body.len();
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        self.posts.send(request.as_bytes()).await
    }
}

async fn accepted(posts: &mut Connection) -> Result<()> {
    let mut head = posts.head().await?;
    let body = posts.body(&mut head).await?;
    ensure!(head.status == 202, "{} to a message: {}", head.status, String::from_utf8_lossy(&body));
    Ok(())
}

impl Events {
    /// The data of the next event. Comments are no events.
    async fn next(&mut self) -> Result<String> {
        loop {
            while let Some(end) = self.read.windows(2).position(|two| two == b"\n\n") {
                let event = self.read.split_to(end + 2);
                let data = std::str::from_utf8(&event)?.lines().find_map(|line| line.strip_prefix("data: "));
                if let Some(data) = data {
                    return Ok(data.to_owned());
                }
            }
            let part = self.connection.part(&mut self.head).await?.context("the stream ended")?;
            self.read.extend_from_slice(&part);
        }
    }
}
