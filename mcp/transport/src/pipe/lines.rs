//! Lines from a pipe that may hold anything.

use std::io::BufRead as _;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

const CHUNK: usize = 64 << 10;

/// The lines of `pipe`, without their line breaks, until the pipe ends. Lines longer than `limit` bytes are dropped without being held, and
/// logged.
pub(crate) struct Lines<P> {
    pipe: P,
    splitter: Splitter,
}

impl<P: AsyncRead + Unpin> Lines<P> {
    pub(crate) fn new(pipe: P, limit: usize) -> Self {
        let splitter = Splitter { limit, buffer: BytesMut::with_capacity(CHUNK), scanned: 0, skipping: false };
        Self { pipe, splitter }
    }

    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(line) = self.splitter.next_line() {
                return Some(line);
            }
            self.splitter.buffer.reserve(CHUNK / 4);
            match self.pipe.read_buf(&mut self.splitter.buffer).await {
                Ok(0) => return None,
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot read from the MCP server's process");
                    return None;
                }
            }
        }
    }
}

struct Splitter {
    limit: usize,
    buffer: BytesMut,
    scanned: usize,
    skipping: bool,
}

impl Splitter {
    fn next_line(&mut self) -> Option<Bytes> {
        loop {
            let mut unseen = self.buffer.get(self.scanned..).unwrap_or_default();
            // Reading from a slice cannot fail.
            let seen = unseen.skip_until(b'\n').unwrap_or(0);
            let end = self.scanned + seen;
            if seen == 0 || self.buffer.get(end - 1) != Some(&b'\n') {
                self.scanned = end;
                if end > self.limit && !self.skipping {
                    tracing::warn!(limit = self.limit, "dropped a line of the MCP server's process that is too long");
                    self.skipping = true;
                }
                if self.skipping {
                    self.buffer.clear();
                    self.scanned = 0;
                }
                return None;
            }
            let line = self.buffer.split_to(end).freeze();
            self.scanned = 0;
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            if line.len() > self.limit {
                tracing::warn!(limit = self.limit, "dropped a line of the MCP server's process that is too long");
                continue;
            }
            return Some(line.slice(..line.len() - 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_come_whole_and_overlong_ones_are_dropped_alone() {
        let long = "x".repeat(300_000);
        let text = format!("one\n\ntwo\r\n{long}\nthree\n{}\nfour", "y".repeat(101));
        let (mut pipe, mut lines) = (Lines::new(text.as_bytes(), 100), Vec::new());
        while let Some(line) = pipe.next().await {
            lines.push(String::from_utf8_lossy(&line).into_owned());
        }
        // What the pipe ends in the middle of is no line.
        assert_eq!(lines, ["one", "", "two\r", "three"]);
    }
}
