//! Lines from a pipe that may hold anything.

use std::io::BufRead as _;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

const CHUNK: usize = 64 << 10;

/// Gives every line of `pipe` to `take`, without its line break, until the pipe ends. Lines longer than `limit` bytes are dropped
/// without being held, and logged.
pub(crate) async fn read(mut pipe: impl AsyncRead + Unpin, limit: usize, mut take: impl FnMut(Bytes)) {
    let mut splitter = Splitter { limit, buffer: BytesMut::with_capacity(CHUNK), scanned: 0, skipping: false };
    loop {
        splitter.buffer.reserve(CHUNK / 4);
        match pipe.read_buf(&mut splitter.buffer).await {
            Ok(0) => return,
            Ok(_) => {
                while let Some(line) = splitter.next_line() {
                    take(line);
                }
            }
            Err(error) => {
                tracing::warn!(%error, "cannot read from the MCP server's process");
                return;
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
        let mut lines = Vec::new();
        read(text.as_bytes(), 100, |line| lines.push(String::from_utf8_lossy(&line).into_owned())).await;
        // What the pipe ends in the middle of is no line.
        assert_eq!(lines, ["one", "", "two\r", "three"]);
    }
}
