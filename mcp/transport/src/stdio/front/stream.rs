//! Streams, and what happens when their reader leaves.

use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use http::Response;
use mcp_http::Body;
use tokio::sync::mpsc;

use super::answer::events;
use super::{Client, Front, Line};
use crate::stdio::calls::QUEUE;
use crate::stdio::events::{Events, TimedOut};

/// Closes a call when nobody waits for it any more.
///
/// In the Modern era leaving is cancelling, so the process is told; in the Legacy era only `notifications/cancelled` is, and the answer
/// is dropped when it comes. A call that took too long is cancelled in both.
pub(super) struct Waiting {
    pub(super) front: Arc<Front>,
    pub(super) id: u64,
    pub(super) leaving_cancels: bool,
    /// Keeps the session from expiring while it is used.
    pub(super) _client: Option<Arc<Client>>,
}

impl TimedOut for Waiting {
    fn timed_out(&mut self) {
        self.leaving_cancels = true;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.front.calls.close(self.id).is_some() && self.leaving_cancels {
            let id = self.id;
            self.front.write(Line::of_ours(format!(
                "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{{\"requestId\":{id},\"reason\":\"nobody waits for the answer\"}}}}"
            )));
        }
    }
}

impl TimedOut for Arc<Client> {}

/// The stream on which a session hears what belongs to no call. A new one ends the one before.
pub(super) fn listen(client: Arc<Client>) -> Response<Body> {
    let (stream, messages) = mpsc::channel::<Bytes>(QUEUE);
    *client.stream.lock().unwrap_or_else(PoisonError::into_inner) = Some(stream);
    events(Body::new(Events::new(messages, None, client)))
}
