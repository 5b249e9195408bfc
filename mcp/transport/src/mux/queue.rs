//! Lines on their way to the server.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// How many bytes wait for the server. A line that is longer waits alone.
const MAX_BYTES: u32 = 16 << 20;
/// What a line takes beside its bytes.
const OVERHEAD: usize = 128;

/// A line for the server.
#[derive(Debug)]
pub(super) struct Line {
    /// With its line break.
    pub(super) bytes: Bytes,
    /// The call that it opens; it is not written once nobody waits for that.
    pub(super) call: Option<u64>,
}

impl Line {
    /// A message of the multiplexer's own.
    pub(super) fn of_ours(message: impl Into<Vec<u8>>) -> Self {
        let mut bytes = message.into();
        bytes.push(b'\n');
        Self { bytes: bytes.into(), call: None }
    }
}

/// A line and the room that it takes until it has been written.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) line: Line,
    _room: OwnedSemaphorePermit,
}

/// The end at which lines come in. It is bounded in bytes; those who wait for room get it in the order in which they came.
#[derive(Debug)]
pub(super) struct Queue {
    room: Arc<Semaphore>,
    lines: mpsc::UnboundedSender<Queued>,
}

impl Queue {
    pub(super) fn new() -> (Self, mpsc::UnboundedReceiver<Queued>) {
        let (lines, receiver) = mpsc::unbounded_channel();
        (Self { room: Arc::new(Semaphore::new(MAX_BYTES as usize)), lines }, receiver)
    }

    /// Adds a line as soon as there is room. Returns whether anybody will ever read it.
    pub(super) async fn send(&self, line: Line) -> bool {
        let room = Arc::clone(&self.room).acquire_many_owned(weight(&line));
        tokio::select! {
            biased;
            room = room => room.is_ok_and(|room| self.lines.send(Queued { line, _room: room }).is_ok()),
            () = self.lines.closed() => false,
        }
    }

    /// Adds a line that nobody waits for; dropped when the server is behind.
    pub(super) fn push(&self, line: Line) {
        let room = Arc::clone(&self.room).try_acquire_many_owned(weight(&line));
        let queued = room.is_ok_and(|room| self.lines.send(Queued { line, _room: room }).is_ok());
        if !queued {
            tracing::warn!("dropped a message to the MCP server's process: it is behind");
        }
    }
}

fn weight(line: &Line) -> u32 {
    u32::try_from(line.bytes.len() + OVERHEAD).unwrap_or(MAX_BYTES).min(MAX_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn large_requests_do_not_wait_for_the_server_in_more_bytes_than_allowed() {
        let (queue, mut lines) = Queue::new();
        let large = || Line { bytes: vec![b'x'; 7 << 20].into(), call: None };
        assert!(queue.send(large()).await && queue.send(large()).await);
        queue.push(large());
        let (third, ()) = tokio::join!(queue.send(large()), async {
            assert_eq!(lines.len(), 2, "the third waits");
            drop(lines.recv().await);
        });
        assert!(third);
        // What nobody will read does not wait for ever.
        let (sent, ()) = tokio::join!(queue.send(large()), async { drop(lines) });
        assert!(!sent);
    }
}
