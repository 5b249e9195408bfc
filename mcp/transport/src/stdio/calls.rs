//! The calls that the process has not answered yet.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use mcp_wire::{ErrorBody, code};
use tokio::sync::{mpsc, oneshot};

/// How many messages wait for one reader before further notifications to it are dropped.
pub(super) const QUEUE: usize = 100;

/// What a client hears when its call went down with the process.
pub(super) const PROCESS_ENDED: &str = "the MCP server's process ended; it is being restarted";

/// Where the answer to a call goes.
#[derive(Debug)]
pub(super) enum Reply {
    /// The answer alone.
    Once(oneshot::Sender<Bytes>),
    /// Notifications about the call, then the answer.
    Stream(mpsc::Sender<Bytes>),
}

/// One call: what the client called it and where its answer goes.
#[derive(Debug)]
pub(super) struct Call {
    /// The client's id, as JSON text.
    pub(super) id: Box<str>,
    /// The client's progress token, as JSON text.
    pub(super) token: Option<Box<str>>,
    /// The session it came in.
    pub(super) session: Option<Arc<str>>,
    pub(super) reply: Reply,
}

/// The calls by the id that the process knows.
#[derive(Debug, Default)]
pub(super) struct Calls {
    open: Mutex<HashMap<u64, Call>>,
    next: AtomicU64,
}

impl Calls {
    /// An id that no call has had.
    pub(super) fn fresh_id(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn open(&self, id: u64, call: Call) {
        self.lock().insert(id, call);
    }

    /// Takes the call out: its answer has come, or nobody waits for it any more.
    pub(super) fn close(&self, id: u64) -> Option<Call> {
        self.lock().remove(&id)
    }

    pub(super) fn is_open(&self, id: u64) -> bool {
        self.lock().contains_key(&id)
    }

    /// Hands a notification to the stream of call `id`; `make` gets the call. Dropped when the reader is behind:
    /// the last place in its queue is kept for the answer.
    pub(super) fn notify(&self, id: u64, make: impl FnOnce(&Call) -> Bytes) {
        let calls = self.lock();
        if let Some(call) = calls.get(&id)
            && let Reply::Stream(stream) = &call.reply
        {
            if stream.capacity() > 1 {
                let _ = stream.try_send(make(call));
            } else {
                tracing::debug!("dropped a notification: its reader is behind");
            }
        }
    }

    /// The id under which the process knows the client's call `id` of `session`.
    pub(super) fn find(&self, session: &str, id: &str) -> Option<u64> {
        let calls = self.lock();
        let mut found = calls.iter().filter(|(_, call)| call.session.as_deref() == Some(session) && *call.id == *id);
        found.next().map(|(id, _)| *id)
    }

    /// Fails every call: the process is gone. Who waits for one answer sees its channel closed; who reads a stream is told.
    pub(super) fn fail_all(&self) {
        let calls = std::mem::take(&mut *self.lock());
        for call in calls.into_values() {
            if matches!(call.reply, Reply::Stream(_)) {
                let body = ErrorBody::new(code::INTERNAL, PROCESS_ENDED).raw_id(Some(&call.id)).encode();
                call.answer(body.into());
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Call>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Call {
    /// Delivers the answer. Nobody may be waiting any more.
    pub(super) fn answer(self, message: Bytes) {
        match self.reply {
            Reply::Once(reply) => drop(reply.send(message)),
            Reply::Stream(stream) => drop(stream.try_send(message)),
        }
    }
}
