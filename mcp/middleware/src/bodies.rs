//! The memory for bodies: those of requests, which are read here, and those of answers that a filter holds.

use std::future::pending;
use std::panic::resume_unwind;
use std::time::Duration;

use bytes::Bytes;
use mcp_http::{Body, Bounds, Budget, ReadError, Share, read};
use mcp_runconfig::chain::MAX_BODY_LIMIT;
use mcp_store::{Bound, Client};
use mcp_wire::{MessageError, OwnedMessage};
use tokio::task::{JoinError, spawn_blocking};

/// Bytes of messages that are in memory at once: eight of the longest that `bodylimit` lets pass unless told otherwise.
/// Where it lets longer ones pass, two of those; so never more than twice [`MAX_BODY_LIMIT`].
const REQUESTS: usize = 64 << 20;
/// Bytes of answers that are held at once, and what one client may hold of them: the longest one that is held at all.
pub const ANSWERS: Bounds = Bounds { total: 128 << 20, client: MAX_ANSWER, free: FREE };
/// The longest answer that is held, in bytes.
pub(crate) const MAX_ANSWER: usize = 100 << 20;
/// Bytes of each body that count for nothing: long ones that a slow server or a slow client keeps must not stop short
/// ones. The listener's places bound their sum.
const FREE: usize = 8 << 10;

/// To parse so many bytes takes milliseconds, and more where they have many members: other clients of the thread would
/// notice.
pub(crate) const LONG: usize = 256 << 10;

/// The bodies that a proxy reads.
#[derive(Debug)]
pub(crate) struct Bodies {
    /// Longest body of a request that is read, in bytes: at most [`MAX_BODY_LIMIT`].
    limit: usize,
    /// The time that a client may take to send it.
    time: Duration,
    requests: Budget,
    answers: Budget,
}

impl Bodies {
    pub(crate) fn new(limit: usize, time: Duration) -> Self {
        let limit = limit.min(usize::try_from(MAX_BODY_LIMIT).unwrap_or(usize::MAX));
        // One client may hold half of it, and that must do for one body.
        let total = REQUESTS.max(2 * limit);
        let requests = Bounds { total, client: total / 2, free: FREE };
        Self { limit, time, requests: Budget::new(requests), answers: Budget::new(ANSWERS) }
    }

    /// The whole body that `client` sends, and its share of the memory.
    pub(crate) async fn read(&self, body: Body, client: Client) -> Result<(Bytes, Share), ReadError> {
        let mut share = self.requests.share(client.clone());
        match read(body, self.limit, self.time, &mut share).await {
            Ok(body) => Ok((body, share)),
            Err(error) => {
                if matches!(error, ReadError::NoRoom) {
                    tracing::warn!(?client, %error, "a request was refused");
                } else {
                    tracing::debug!(?client, %error, "a request was refused");
                }
                Err(error)
            }
        }
    }

    pub(crate) fn bounds(&self) -> [Bound; 2] {
        [self.requests.bound("request_bodies"), self.answers.bound("held_answers")]
    }

    /// A share of the memory for an answer to `client`.
    pub(crate) fn answer(&self, client: Client) -> Share {
        self.answers.share(client)
    }
}

/// Reads the message in a body, beside the thread that serves other clients where the body is long. `held` is what the
/// body takes of the memory: it is not given back before the body is read, even if nobody waits for the message any
/// more.
///
/// # Errors
/// The body is not a message that every parser reads alike.
pub async fn read_message<T: Send + 'static>(body: Bytes, held: T) -> Result<(OwnedMessage, T), MessageError> {
    beside(body.len(), move || OwnedMessage::read(body).map(|message| (message, held))).await
}

/// Works on a body of `length` bytes: one of 256 KiB or more beside the thread that serves other clients, where the
/// work goes on even if nobody waits for it any more. Every step over a whole body goes this way, but for a plain copy
/// of it.
///
/// # Panics
/// Where `work` does.
pub async fn beside<T: Send + 'static>(length: usize, work: impl FnOnce() -> T + Send + 'static) -> T {
    if length < LONG {
        return work();
    }
    match spawn_blocking(work).await.map_err(JoinError::try_into_panic) {
        Ok(done) => done,
        Err(Ok(panic)) => resume_unwind(panic),
        // The runtime ends, and polls this no more.
        Err(Err(_)) => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread::{self, ThreadId};

    use futures::future::poll_immediate;

    use super::*;

    /// Tells on which thread it is dropped.
    struct Told(mpsc::Sender<ThreadId>);

    impl Drop for Told {
        fn drop(&mut self) {
            let _ = self.0.send(thread::current().id());
        }
    }

    #[test]
    fn memory_for_bodies_does_not_follow_their_limit_for_ever() {
        const MIB: usize = 1 << 20;
        for (asked, limit, total) in [
            (8 * MIB, 8, 64),
            (100 * MIB, 100, 200),
            (256 * MIB, 256, 512),
            (257 * MIB, 256, 512),
            (usize::MAX, 256, 512),
        ] {
            let bodies = Bodies::new(asked, Duration::from_secs(1));
            assert_eq!(bodies.limit, limit * MIB, "{asked}");
            // One client has half of it, which is enough for one body.
            let mut share = bodies.requests.share(Client::Network(crate::client_network(None)));
            assert!(share.grow(total / 2 * MIB).is_ok() && bodies.limit <= total / 2 * MIB, "{asked}");
            assert!(share.grow(FREE + 1).is_err(), "{asked}");
        }
    }

    #[tokio::test]
    async fn a_long_message_neither_stops_the_thread_of_its_client_nor_gives_memory_back_before_it_is_read() {
        for (length, beside) in [(LONG - 1, false), (LONG, true)] {
            let (tell, told) = mpsc::channel();
            // No message, so that what is held does not come back; and the client leaves at once.
            let _ = poll_immediate(Box::pin(read_message(vec![b' '; length].into(), Told(tell)))).await;
            let dropped_on = told.recv_timeout(Duration::from_secs(30)).unwrap();
            assert_eq!(dropped_on != thread::current().id(), beside, "{length} bytes");
        }
    }
}
