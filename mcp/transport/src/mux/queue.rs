//! Lines on their way to the server.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;
use mcp_store::{Bound, Client};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// How many bytes wait for the server. A line that is longer waits alone.
const MAX_BYTES: u32 = 16 << 20;
/// The part of these that is one client's. Its other lines wait without keeping those of others waiting; one that is longer waits alone.
const MAX_CLIENT_BYTES: u32 = MAX_BYTES / 4;
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
    _room: (Option<OwnedSemaphorePermit>, OwnedSemaphorePermit),
}

/// The end at which lines come in. It is bounded in bytes; lines that wait for room get it in the order in which they came, but
/// for those of a client that has its share.
#[derive(Debug)]
pub(super) struct Queue {
    room: Arc<Semaphore>,
    /// Room for each client that has lines here.
    clients: Mutex<HashMap<Client, Weak<Semaphore>>>,
    lines: mpsc::UnboundedSender<Queued>,
}

impl Queue {
    pub(super) fn new() -> (Self, mpsc::UnboundedReceiver<Queued>) {
        let (lines, receiver) = mpsc::unbounded_channel();
        let room = Arc::new(Semaphore::new(MAX_BYTES as usize));
        (Self { room, clients: Mutex::default(), lines }, receiver)
    }

    pub(super) fn bound(&self) -> Bound {
        let limit = MAX_BYTES as usize;
        Bound { name: "process_lines", used: limit - self.room.available_permits(), limit }
    }

    /// Adds a line of `client`, or of the multiplexer, as soon as there is room. Returns whether anybody will ever read it.
    pub(super) async fn send(&self, line: Line, client: Option<&Client>) -> bool {
        let (all, weight) = (Arc::clone(&self.room), weight(&line));
        let own = client.map(|client| self.room_of(client).acquire_many_owned(weight.min(MAX_CLIENT_BYTES)));
        let room = async {
            let own = match own {
                Some(own) => Some(own.await.ok()?),
                None => None,
            };
            Some((own, all.acquire_many_owned(weight).await.ok()?))
        };
        tokio::select! {
            biased;
            room = room => room.is_some_and(|room| self.lines.send(Queued { line, _room: room }).is_ok()),
            () = self.lines.closed() => false,
        }
    }

    /// Adds a line that nobody waits for; dropped when the server is behind.
    pub(super) fn push(&self, line: Line) {
        let room = Arc::clone(&self.room).try_acquire_many_owned(weight(&line));
        let queued = room.is_ok_and(|room| self.lines.send(Queued { line, _room: (None, room) }).is_ok());
        if !queued {
            tracing::warn!("dropped a message to the MCP server's process: it is behind");
        }
    }

    fn room_of(&self, client: &Client) -> Arc<Semaphore> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(room) = clients.get(client).and_then(Weak::upgrade) {
            return room;
        }
        // Looking at every client is dear, so it waits until there are twice as many.
        if clients.len().is_power_of_two() {
            clients.retain(|_, room| room.strong_count() > 0);
        }
        let room = Arc::new(Semaphore::new(MAX_CLIENT_BYTES as usize));
        clients.insert(client.clone(), Arc::downgrade(&room));
        room
    }
}

fn weight(line: &Line) -> u32 {
    u32::try_from(line.bytes.len() + OVERHEAD).unwrap_or(MAX_BYTES).min(MAX_BYTES)
}

#[cfg(test)]
mod tests {
    use futures::future::poll_immediate;

    use super::*;

    #[tokio::test]
    async fn large_requests_do_not_wait_for_the_server_in_more_bytes_than_allowed() {
        let (queue, mut lines) = Queue::new();
        let large = || Line { bytes: vec![b'x'; 7 << 20].into(), call: None };
        assert!(queue.send(large(), None).await && queue.send(large(), None).await);
        queue.push(large());
        let (third, ()) = tokio::join!(queue.send(large(), None), async {
            assert_eq!(lines.len(), 2, "the third waits");
            drop(lines.recv().await);
        });
        assert!(third);
        // What nobody will read does not wait for ever.
        let (sent, ()) = tokio::join!(queue.send(large(), None), async { drop(lines) });
        assert!(!sent);
    }

    #[tokio::test]
    async fn a_client_with_lines_without_end_keeps_nobody_waiting() {
        let (queue, mut lines) = Queue::new();
        let [mallory, alice] = [1, 2].map(|host| Client::Network([192, 0, 2, host].into()));
        let line = |length: usize| Line { bytes: vec![b'x'; length].into(), call: None };
        let mut waiting: Vec<_> = (0..32).map(|_| Box::pin(queue.send(line(1 << 20), Some(&mallory)))).collect();
        for send in &mut waiting {
            let _ = poll_immediate(send).await;
        }
        assert_eq!(poll_immediate(Box::pin(queue.send(line(1), Some(&alice)))).await, Some(true));
        let mut ahead = 0;
        while lines.recv().await.is_some_and(|next| next.line.bytes.len() > 1) {
            ahead += 1;
        }
        assert_eq!(ahead, 3, "with its overhead, the fourth is more than a share");
        // A line that is longer than a share takes the whole of it.
        drop(waiting);
        assert!(queue.send(line(MAX_BYTES as usize), Some(&mallory)).await);
        drop(lines);
        queue.room_of(&alice);
        assert!(queue.clients.lock().unwrap().len() <= 2, "nothing is kept of clients without lines");
    }
}
