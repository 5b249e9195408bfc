//! The memory for bodies: those of requests, which are read here, and those of answers that a filter holds.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use mcp_http::{Body, Bounds, Budget, ReadError, Share, read};

use crate::network::client_network;

/// Bytes of messages that are in memory at once: eight of the longest that `bodylimit` lets pass unless told otherwise.
const REQUESTS: usize = 64 << 20;
/// Bytes of answers that are held at once, and what one client may hold of them: the longest one that is held at all.
const ANSWERS: Bounds = Bounds { total: 128 << 20, client: MAX_ANSWER, free: FREE };
/// The longest answer that is held, in bytes.
pub(crate) const MAX_ANSWER: usize = 100 << 20;
/// Bytes of each body that count for nothing: long ones that a slow server or a slow client keeps must not stop short ones. The listener's
/// places bound their sum.
const FREE: usize = 8 << 10;

/// The bodies that a proxy reads.
#[derive(Debug)]
pub(crate) struct Bodies {
    /// Longest body of a request that is read, in bytes.
    limit: usize,
    /// How long a client may take to send it.
    time: Duration,
    requests: Budget,
    answers: Budget,
}

impl Bodies {
    pub(crate) fn new(limit: usize, time: Duration) -> Self {
        // One client may hold half of it, and that must do for one body.
        let total = REQUESTS.max(limit.saturating_mul(2));
        let requests = Bounds { total, client: total / 2, free: FREE };
        Self { limit, time, requests: Budget::new(requests), answers: Budget::new(ANSWERS) }
    }

    /// The whole body that `peer` sends, and its share of the memory.
    pub(crate) async fn read(&self, body: Body, peer: SocketAddr) -> Result<(Bytes, Share), ReadError> {
        let mut share = self.requests.share(client_network(Some(peer)));
        match read(body, self.limit, self.time, &mut share).await {
            Ok(body) => Ok((body, share)),
            Err(error) => {
                let client = peer.ip();
                if matches!(error, ReadError::NoRoom) {
                    tracing::warn!(%client, %error, "a request was refused");
                } else {
                    tracing::debug!(%client, %error, "a request was refused");
                }
                Err(error)
            }
        }
    }

    /// A share of the memory for an answer to `peer`.
    pub(crate) fn answer(&self, peer: SocketAddr) -> Share {
        self.answers.share(client_network(Some(peer)))
    }
}
