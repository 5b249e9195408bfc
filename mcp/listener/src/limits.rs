//! Limits of a listener.

use std::time::Duration;

/// The limits of a [`Server`](crate::Server).
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Number of places for connections.
    pub connections: usize,
    /// Number of further connections that are accepted while all or nearly all others are busy. Each gets one response
    /// from [`Handler::shed`](crate::Handler::shed) to a head of at most 8 KiB, and is closed. Further connections wait in the kernel's queue, and
    /// reserved ones without a request are closed for them.
    pub reserved: usize,
    /// Timeout for the head of the first request on a connection.
    pub first_request: Duration,
    /// Timeout for the first byte of the next request on a connection.
    pub idle: Duration,
    /// Timeout for the head of a request, from its first byte.
    pub head: Duration,
    /// Timeout for a client to read some bytes of a response.
    pub write: Duration,
    /// Maximum size of the head of a request in bytes, and the size of a connection's read buffer.
    pub head_bytes: usize,
    /// Maximum size of all heads together that have begun to arrive, in bytes.
    pub heads: usize,
    /// Time to finish responses in flight when the server stops. After that, requests without a response get 503 with
    /// `Retry-After: 1`, and responses that are still being sent are aborted.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 512,
            reserved: 32,
            first_request: Duration::from_secs(10),
            idle: Duration::from_mins(2),
            head: Duration::from_secs(10),
            write: Duration::from_secs(30),
            head_bytes: 64 << 10,
            heads: 16 << 20,
            drain: Duration::from_secs(25),
        }
    }
}
