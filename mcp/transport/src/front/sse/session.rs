//! The sessions whose streams are open.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures::stream::BoxStream;
use mcp_http::BoxError;
use mcp_store::{Client, Principal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::mux::{Mux, Room};

/// More sessions than there can be connections on a port of the runner.
const MAX_SESSIONS: usize = 10_000;
/// How many requests of a session may wait for their answers.
const MAX_DUE: usize = 100;
/// What a request that waits takes beside what is kept of it, in bytes, about.
const OVERHEAD: usize = 4 << 10;

/// The answer to one request as a part of the session's stream: events about the request, and the answer as the last of them.
pub(super) type Answer = BoxStream<'static, Result<Bytes, BoxError>>;

/// The sessions by their ids.
#[derive(Debug, Default)]
pub(super) struct Sessions(Mutex<HashMap<Arc<str>, Session>>);

/// One session: where the answers of its requests go.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) id: Arc<str>,
    /// The only one who may use it.
    principal: Principal,
    due: Arc<Semaphore>,
    /// Bounded by `due`.
    answers: mpsc::UnboundedSender<Answer>,
}

/// The place of a request that waits for its answer. There is always one for the answer then: it is never lost on the way to its reader.
#[derive(Debug)]
pub(super) struct Place {
    _due: OwnedSemaphorePermit,
    _room: Room,
}

/// Goes with a stream (as an extension of the response) on which requests of other connections are answered: they should be before it is
/// ended.
#[derive(Clone, Debug)]
pub struct DueAnswers(Arc<Semaphore>);

impl DueAnswers {
    /// Whether any request still waits for its answer on the stream.
    pub fn any(&self) -> bool {
        self.0.available_permits() < MAX_DUE
    }
}

impl Sessions {
    /// Opens a session and returns the answers that come to it. `None` when there are too many.
    pub(super) fn open(&self, id: &str, principal: Principal) -> Option<(Session, mpsc::UnboundedReceiver<Answer>)> {
        let mut sessions = self.lock();
        if sessions.len() >= MAX_SESSIONS {
            return None;
        }
        let (answers, arriving) = mpsc::unbounded_channel();
        let session = Session { id: id.into(), principal, due: Arc::new(Semaphore::new(MAX_DUE)), answers };
        sessions.insert(Arc::clone(&session.id), session.clone());
        Some((session, arriving))
    }

    /// The session of this id, if it belongs to `principal`.
    pub(super) fn find(&self, id: &str, principal: &Principal) -> Option<Session> {
        self.lock().get(id).filter(|session| session.principal == *principal).cloned()
    }

    pub(super) fn close(&self, id: &str) {
        self.lock().remove(id);
    }

    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Session>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    /// A place for a request of which `bytes` are kept until it is answered. `None` when too many wait, or too much does for `client`.
    pub(super) fn place(&self, mux: &Mux, client: &Client, bytes: usize) -> Option<Place> {
        let due = Arc::clone(&self.due).try_acquire_owned().ok()?;
        Some(Place { _due: due, _room: mux.room(client, OVERHEAD + bytes)? })
    }

    /// Adds an answer to the stream. Returns whether that is still open: otherwise the answer is dropped.
    pub(super) fn answer(&self, answer: Answer) -> bool {
        self.answers.send(answer).is_ok()
    }

    /// Waits until the stream has ended, and the session with it.
    pub(super) async fn over(&self) {
        self.answers.closed().await;
    }

    pub(super) fn due_answers(&self) -> DueAnswers {
        DueAnswers(Arc::clone(&self.due))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_known_to_its_principal_alone_and_until_it_is_closed() {
        let sessions = Sessions::default();
        let (alice, bob) = (Principal::new("i", "alice"), Principal::new("i", "bob"));
        let (session, _answers) = sessions.open("s", alice.clone()).unwrap();
        assert_eq!(sessions.find("s", &alice).map(|found| found.id), Some(session.id));
        assert!(sessions.find("s", &bob).is_none() && sessions.find("t", &alice).is_none());
        sessions.close("s");
        assert!(sessions.find("s", &alice).is_none());
        assert_eq!(sessions.len(), 0);
    }
}
