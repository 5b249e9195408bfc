//! What one listener grants its peers.

use std::time::Duration;

/// Bounds of one listener. Nothing on it waits without one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections held at the same time. When there are more, those without a request under way give way: first those
    /// that never asked anything, then the oldest. Where all are at work, a few more are answered with 429 at once and
    /// the rest waits in the kernel's queue, while bodies that come slowly give up their places.
    pub connections: usize,
    /// Time for a TLS handshake.
    pub handshake: Duration,
    /// Time for the head of the first request on a connection to arrive.
    pub first_request: Duration,
    /// Time that a connection may wait for the head of its next request to be complete. Longer than the 90 s after
    /// which Go's client, and so the API server, gives up an idle connection: the side that may send next has to be the
    /// one that closes, or a request is lost to a connection that is just going.
    pub idle: Duration,
    /// Time for a peer to take some bytes of an answer.
    pub write: Duration,
    /// Bytes that the head of a request may have; also the size of a connection's read buffer.
    pub head_bytes: usize,
    /// Time for answers under way to be finished when the server stops; what is left is then answered with 503 and
    /// `Retry-After: 1`.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 512,
            handshake: Duration::from_secs(10),
            first_request: Duration::from_secs(10),
            idle: Duration::from_secs(150),
            write: Duration::from_secs(30),
            head_bytes: 64 * 1024,
            drain: Duration::from_secs(25),
        }
    }
}
