//! Limits of a listener.

use std::time::Duration;

/// Limits and timeouts of one listener. It never waits without one of these timeouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of open connections. When more arrive, the one that has been idle longest is closed; while none is
    /// idle, they wait in the kernel's queue.
    pub connections: usize,
    /// Timeout of a TLS handshake.
    pub handshake: Duration,
    /// Timeout for the head of the next request on a connection, the first one included. Longer than the 90 s after which
    /// Go's client, and so the API server, closes an idle connection: if the server closed it first, a request sent at that
    /// moment would be lost. That client also opens connections in advance, which wait as long for their first request.
    pub idle: Duration,
    /// Timeout for a client to take some bytes of a response. Kept by the kernel (`TCP_USER_TIMEOUT`), on Linux only.
    pub write: Duration,
    /// Maximum size of the head of a request in bytes, and the size of a connection's read buffer.
    pub head_bytes: usize,
    /// Time to finish responses in flight when the server stops. After that, requests without a response get 503 with
    /// `Retry-After: 1`, and responses that are still being sent are aborted.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 512,
            handshake: Duration::from_secs(10),
            idle: Duration::from_secs(150),
            write: Duration::from_secs(30),
            head_bytes: 64 * 1024,
            drain: Duration::from_secs(25),
        }
    }
}
