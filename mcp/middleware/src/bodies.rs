//! Reading the bodies of requests, within bounds.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use mcp_http::{Body, Budget, ReadError, Share, read};

use crate::network::client_network;

/// How long a client may take to send its message.
const DEADLINE: Duration = Duration::from_secs(30);
/// Bytes of messages that are in memory at once: eight of the longest that `bodylimit` lets pass unless told otherwise.
const MEMORY: usize = 64 << 20;
/// Bytes of each message that count for nothing: long calls that a slow server keeps must not stop short ones. The listener's places bound
/// their sum.
const FREE: usize = 8 << 10;

/// The bodies that a proxy reads.
#[derive(Debug)]
pub(crate) struct Bodies {
    /// Longest body that is read, in bytes.
    limit: usize,
    budget: Budget,
}

impl Bodies {
    pub(crate) fn new(limit: usize) -> Self {
        // One client may hold half of it, and that must do for one body.
        Self { limit, budget: Budget::with_free(MEMORY.max(limit.saturating_mul(2)), FREE) }
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// The whole body that `peer` sends, and its share of the memory; `Err` holds the answer to a body that is too long, too slow or
    /// broken off, or for which there is no room.
    pub(crate) async fn read(&self, body: Body, peer: Option<SocketAddr>) -> Result<(Bytes, Share), Response<Body>> {
        let mut share = self.budget.share(client_network(peer));
        match read(body, self.limit, DEADLINE, &mut share).await {
            Ok(body) => Ok((body, share)),
            Err(error) => {
                let client = peer.map(|peer| peer.ip());
                if matches!(error, ReadError::NoRoom) {
                    tracing::warn!(?client, %error, "a request was refused");
                } else {
                    tracing::debug!(?client, %error, "a request was refused");
                }
                Err(error.answer())
            }
        }
    }
}
