//! A client of one connection that costs little: requests are bytes, answers are read as they come.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, bail, ensure};
use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

/// The header that names a session.
pub const SESSION: &str = "mcp-session-id";

/// The request that opens a session.
pub const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#;
/// The client's notification after the answer to [`INITIALIZE`].
pub const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// A connection that is kept between requests.
#[derive(Debug)]
pub struct Connection<S = TcpStream> {
    stream: S,
    read: BytesMut,
}

/// The head of an answer; says what is left of its body.
#[derive(Debug)]
pub struct Head {
    /// Its status.
    pub status: u16,
    /// The session that it opens.
    pub session: Option<String>,
    /// Whether it is an event stream.
    pub sse: bool,
    left: Left,
}

#[derive(Debug)]
enum Left {
    Bytes(usize),
    Chunks,
}

impl Connection {
    /// Connects to `address`.
    pub async fn open(address: SocketAddr) -> Result<Self> {
        Self::open_from(None, address).await
    }

    /// Connects to `address` from this local one.
    pub async fn open_from(local: Option<SocketAddr>, address: SocketAddr) -> Result<Self> {
        let socket = TcpSocket::new_v4()?;
        if let Some(local) = local {
            socket.bind(local)?;
        }
        let stream = socket.connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self::over(stream))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Over a stream that is connected.
    pub fn over(stream: S) -> Self {
        Self { stream, read: BytesMut::with_capacity(1 << 14) }
    }

    /// Sends bytes as they are.
    pub async fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).await?;
        Ok(self.stream.flush().await?)
    }

    /// Sends a request and reads its answer whole.
    pub async fn exchange(&mut self, request: &[u8]) -> Result<(Head, Bytes)> {
        self.send(request).await?;
        let mut head = self.head().await?;
        let body = self.body(&mut head).await?;
        Ok((head, body))
    }

    async fn more(&mut self) -> Result<()> {
        self.read.reserve(1 << 14);
        ensure!(self.stream.read_buf(&mut self.read).await? != 0, "the connection ended within an answer");
        Ok(())
    }

    /// Reads the head of an answer.
    pub async fn head(&mut self) -> Result<Head> {
        let end = loop {
            match self.read.windows(4).position(|four| four == b"\r\n\r\n") {
                Some(end) => break end,
                None => self.more().await?,
            }
        };
        let text = self.read.split_to(end + 4);
        let mut lines = std::str::from_utf8(&text)?.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).context("an answer without status")?;
        let mut head = Head { status: status.parse()?, session: None, sse: false, left: Left::Bytes(0) };
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => head.left = Left::Bytes(value.parse()?),
                "transfer-encoding" => head.left = Left::Chunks,
                "content-type" => head.sse = value.starts_with("text/event-stream"),
                SESSION => head.session = Some(value.to_owned()),
                _ => {}
            }
        }
        Ok(head)
    }

    /// Reads what there is of the body, at least a byte. `None` at its end.
    pub async fn part(&mut self, head: &mut Head) -> Result<Option<Bytes>> {
        match head.left {
            Left::Bytes(0) => Ok(None),
            Left::Bytes(left) => {
                if self.read.is_empty() {
                    self.more().await?;
                }
                let part = self.read.split_to(left.min(self.read.len()));
                head.left = Left::Bytes(left - part.len());
                Ok(Some(part.freeze()))
            }
            Left::Chunks => {
                let size = self.line().await?;
                let size = usize::from_str_radix(size.split(';').next().unwrap_or_default().trim(), 16)?;
                while self.read.len() < size + 2 {
                    self.more().await?;
                }
                let part = self.read.split_to(size).freeze();
                if !self.read.starts_with(b"\r\n") {
                    bail!("a chunk of {size} bytes does not end");
                }
                self.read.advance(2);
                if size == 0 {
                    head.left = Left::Bytes(0);
                    return Ok(None);
                }
                Ok(Some(part))
            }
        }
    }

    async fn line(&mut self) -> Result<String> {
        loop {
            if let Some(end) = self.read.windows(2).position(|two| two == b"\r\n") {
                let line = self.read.split_to(end + 2);
                return Ok(std::str::from_utf8(&line[..end])?.to_owned());
            }
            self.more().await?;
        }
    }

    /// Reads the rest of the body.
    pub async fn body(&mut self, head: &mut Head) -> Result<Bytes> {
        let Some(first) = self.part(head).await? else { return Ok(Bytes::new()) };
        let mut all: Option<BytesMut> = None;
        while let Some(part) = self.part(head).await? {
            all.get_or_insert_with(|| BytesMut::from(&first[..])).extend_from_slice(&part);
        }
        Ok(all.map_or(first, BytesMut::freeze))
    }
}

/// A POST of an MCP message, with these further header lines; `session` may be empty.
pub fn post(address: SocketAddr, headers: &str, session: &str, body: &str) -> Vec<u8> {
    let session = if session.is_empty() {
        String::new()
    } else {
        format!("{SESSION}: {session}\r\nmcp-protocol-version: 2025-11-25\r\n")
    };
    let length = body.len();
    format!(
        "POST /mcp HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\n{headers}{session}content-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// A GET, with these further header lines.
pub fn get(address: SocketAddr, path: &str, headers: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n{headers}\r\n").into_bytes()
}
