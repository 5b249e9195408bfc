//! The handshake is made once per process and serves every client.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use mcp_wire::Message;

use super::Mux;

/// The notification that ends a handshake.
pub(super) const INITIALIZED: &[u8] = b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n";

/// What came of asking the process.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The result, as JSON text: the same for every client.
    Result(Arc<str>),
    /// The error that the process answered, with the client's id.
    Refused(Bytes),
    /// Nothing in time, or the process ended.
    Silence,
}

/// The handshake that was made, to be given out and to be repeated with a new process.
#[derive(Debug, Default)]
pub(super) struct Handshake {
    made: Mutex<Option<Made>>,
    one_at_a_time: tokio::sync::Mutex<()>,
    initialized: AtomicBool,
}

#[derive(Clone, Debug)]
struct Made {
    request: Bytes,
    result: Arc<str>,
}

impl Handshake {
    fn made(&self) -> Option<Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps the result of an answer to `request`; `None` when the answer is an error.
    pub(super) fn keep(&self, request: &Bytes, answer: &[u8]) -> Option<Arc<str>> {
        let result: Arc<str> = Message::parse(answer).ok()?.result()?.get().into();
        // A copy: the request is a slice of what was read from the client.
        let made = Made { request: Bytes::copy_from_slice(request), result: Arc::clone(&result) };
        *self.made.lock().unwrap_or_else(PoisonError::into_inner) = Some(made);
        Some(result)
    }

    /// The `initialize` that a new process is to be greeted with.
    pub(super) fn request(&self) -> Option<Bytes> {
        self.made().map(|made| made.request)
    }

    /// Whether this is the first `notifications/initialized`, the one that reaches the process.
    pub(super) fn first_initialized(&self) -> bool {
        !self.initialized.swap(true, Ordering::Relaxed)
    }

    pub(super) fn is_initialized(&self) -> bool {
        self.initialized.load(Ordering::Relaxed)
    }
}

/// The result of the handshake; made with `request`, a client's `initialize`, when it is the first. A client that leaves does
/// not undo it: the process was asked.
pub(super) async fn make(mux: &Arc<Mux>, request: &Bytes) -> Outcome {
    if let Some(made) = mux.handshake.made() {
        return Outcome::Result(made.result);
    }
    let (asking, request) = (Arc::clone(mux), request.clone());
    let task = mux.tasks.spawn(async move {
        let _alone = asking.handshake.one_at_a_time.lock().await;
        if let Some(made) = asking.handshake.made() {
            return Outcome::Result(made.result);
        }
        match asking.ask(&request).await {
            Some(answer) => match asking.handshake.keep(&request, &answer) {
                Some(result) => Outcome::Result(result),
                None => Outcome::Refused(answer),
            },
            None => Outcome::Silence,
        }
    });
    task.await.unwrap_or(Outcome::Silence)
}
