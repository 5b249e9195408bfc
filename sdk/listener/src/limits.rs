//! What one listener grants its clients.

use std::time::Duration;

/// Bounds of one listener. Nothing on it waits without one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections held at the same time. When there are more, those without a request under way are closed.
    pub connections: usize,
    /// Connections beyond that, accepted while all or nearly all others are at work. Each gets one answer from
    /// [`Handler::shed`](crate::Handler::shed) and is closed; the rest waits in the kernel's queue, and those that ask
    /// nothing leave for it.
    pub reserved: usize,
    /// Time for a TLS handshake.
    pub handshake: Duration,
    /// Time for the head of the first request on a connection to arrive.
    pub first_request: Duration,
    /// Time that a connection may wait for the first byte of its next request. Longer than the 90 s after which Go's
    /// client, and so the API server, gives up an idle connection: the side that may send next has to be the one that
    /// closes, or a request is lost to a connection that is just going.
    pub idle: Duration,
    /// Time for the head of a request, from its first byte.
    pub head: Duration,
    /// Time for a client to take some bytes of an answer.
    pub write: Duration,
    /// Bytes that the head of a request may have; also the size of a connection's read buffer. A reserved connection may
    /// have 8 KiB at most.
    pub head_bytes: usize,
    /// Time for answers under way to be finished when the server stops. Requests without an answer are then answered
    /// with 503 and `Retry-After: 1`; answers that are still being sent are cut off.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 512,
            reserved: 32,
            handshake: Duration::from_secs(10),
            first_request: Duration::from_secs(10),
            idle: Duration::from_secs(150),
            head: Duration::from_secs(10),
            write: Duration::from_secs(30),
            head_bytes: 64 * 1024,
            drain: Duration::from_secs(25),
        }
    }
}
