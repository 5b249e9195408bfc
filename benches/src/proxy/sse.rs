//! A session over HTTP with server-sent events (MCP 2024-11-05): answers come on one connection, what is asked goes over another.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bytes::BytesMut;

use super::caller::{INITIALIZE, INITIALIZED};
use super::http::{Connection, Head, get};
use super::workload::Workload;

/// An open session.
#[derive(Debug)]
pub struct SseSession {
    stream: Connection,
    head: Head,
    read: BytesMut,
    posts: Connection,
    address: SocketAddr,
    /// Where to POST.
    path: String,
}

impl SseSession {
    /// Opens a session as clients do.
    pub async fn open(address: SocketAddr) -> Result<Self> {
        let (mut stream, posts) = (Connection::open(address).await?, Connection::open(address).await?);
        stream.send(&get(address, "/sse", "accept: text/event-stream\r\n")).await?;
        let head = stream.head().await?;
        ensure!(head.status == 200 && head.sse, "{} instead of a stream", head.status);
        let mut session = Self { stream, head, read: BytesMut::new(), posts, address, path: String::new() };
        let endpoint = session.event().await?;
        // Absolute or not, it is at this address.
        let path = endpoint
            .split_once("://")
            .map_or(Some(endpoint.as_str()), |(_, rest)| rest.find('/').map(|at| &rest[at..]));
        session.path = path.context("an endpoint without a path")?.to_owned();
        session.post(INITIALIZE).await?;
        session.event().await?;
        session.accepted().await?;
        session.post(INITIALIZED).await?;
        session.accepted().await?;
        Ok(session)
    }

    /// Makes a call; returns the time until its answer was on the stream.
    pub async fn call(&mut self, workload: Workload, id: u64) -> Result<Duration> {
        let start = Instant::now();
        self.post(&workload.call(id)).await?;
        let answer = self.event().await?;
        let elapsed = start.elapsed();
        self.accepted().await?;
        workload.check(id, answer.as_bytes(), false)?;
        Ok(elapsed)
    }

    async fn post(&mut self, body: &str) -> Result<()> {
        let Self { address, path, .. } = self;
        let length = body.len();
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        self.posts.send(request.as_bytes()).await
    }

    async fn accepted(&mut self) -> Result<()> {
        let mut head = self.posts.head().await?;
        let body = self.posts.body(&mut head).await?;
        ensure!(head.status == 202, "{} to a message: {}", head.status, String::from_utf8_lossy(&body));
        Ok(())
    }

    /// The data of the next event. Comments are no events.
    async fn event(&mut self) -> Result<String> {
        loop {
            while let Some(end) = self.read.windows(2).position(|two| two == b"\n\n") {
                let event = self.read.split_to(end + 2);
                let data = std::str::from_utf8(&event)?.lines().find_map(|line| line.strip_prefix("data: "));
                if let Some(data) = data {
                    return Ok(data.to_owned());
                }
            }
            let part = self.stream.part(&mut self.head).await?.context("the stream ended")?;
            self.read.extend_from_slice(&part);
        }
    }
}
