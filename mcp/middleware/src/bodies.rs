//! Reading the bodies of requests, within bounds.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Limited};
use mcp_http::{Body, BoxError, is_length_limit, json_error, text};
use mcp_wire::{ErrorBody, code};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

/// How long a client may take to send its message.
const DEADLINE: Duration = Duration::from_secs(30);
/// Bytes of messages that are in memory at once, whoever sent them: eight of the longest that `bodylimit` lets pass unless told otherwise.
const MEMORY: usize = 64 << 20;

/// The bodies that a proxy reads.
#[derive(Debug)]
pub(crate) struct Bodies {
    /// Longest body that is read, in bytes.
    limit: usize,
    /// What is left of [`MEMORY`].
    memory: Arc<Semaphore>,
}

/// What a body takes of the memory. Free again when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Share(Option<OwnedSemaphorePermit>);

impl Bodies {
    pub(crate) fn new(limit: usize) -> Self {
        let memory = MEMORY.max(limit).min(Semaphore::MAX_PERMITS);
        Self { limit, memory: Arc::new(Semaphore::new(memory)) }
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// The whole body and its share of the memory; `Err` holds the answer to a body that is too long, too slow or broken off, or for
    /// which there is no room.
    pub(crate) async fn read(&self, body: Body) -> Result<(Bytes, Share), Response<Body>> {
        let mut body = Limited::new(body, self.limit);
        let (mut first, mut rest) = (Bytes::new(), BytesMut::new());
        let mut share = Share::default();
        let deadline = Instant::now() + DEADLINE;
        loop {
            let Ok(frame) = timeout_at(deadline, body.frame()).await else {
                return Err(text(StatusCode::REQUEST_TIMEOUT, "Request Timeout"));
            };
            let Some(frame) = frame else { break };
            let piece = match frame.map(Frame::into_data) {
                Ok(Ok(piece)) => piece,
                // Trailers: they go no further.
                Ok(Err(_)) => continue,
                Err(error) => return Err(unreadable(&error)),
            };
            let size = u32::try_from(piece.len()).unwrap_or(u32::MAX);
            let Ok(more) = Arc::clone(&self.memory).try_acquire_many_owned(size) else {
                tracing::warn!("no room for another request body");
                return Err(text(StatusCode::SERVICE_UNAVAILABLE, "Too Many Request Bodies"));
            };
            share.add(more);
            // A body that comes in one piece is not copied.
            if first.is_empty() {
                first = piece;
            } else {
                if rest.is_empty() {
                    rest.extend_from_slice(&first);
                }
                rest.extend_from_slice(&piece);
            }
        }
        Ok((if rest.is_empty() { first } else { rest.freeze() }, share))
    }
}

impl Share {
    fn add(&mut self, more: OwnedSemaphorePermit) {
        match &mut self.0 {
            Some(share) => share.merge(more),
            none => *none = Some(more),
        }
    }
}

fn unreadable(error: &BoxError) -> Response<Body> {
    if is_length_limit(&**error) {
        return text(StatusCode::PAYLOAD_TOO_LARGE, "Request Entity Too Large");
    }
    tracing::debug!(%error, "a request body could not be read");
    json_error(StatusCode::BAD_REQUEST, &ErrorBody::new(code::INVALID_REQUEST, "Failed to read request body"))
}

#[cfg(test)]
mod tests {
    use mcp_http::full;

    use super::*;

    #[tokio::test]
    async fn a_limit_beyond_what_a_semaphore_counts_does_not_panic() {
        let bodies = Bodies::new(usize::MAX);
        let (body, _share) = bodies.read(full("{}")).await.unwrap();
        assert_eq!(body, "{}");
    }
}
