//! The requests that the MCP server has open at its clients, such as elicitations: a client's answer passes to no other one.
//!
//! A request is seen on its way to the client, in the answer to a call or on a stream of the client's session. A server that needs no session has
//! none open here, and neither has one of the stateless era, which asks in the results of calls.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mcp_authz::Denial;
use mcp_middleware::RequestContext;
use mcp_store::{Bound, Client, Principal, Share, Shares};
use mcp_wire::{Id, OwnedMessage};
use serde_json::Value;

/// The denial of an answer of a client.
const NOT_ASKED: Denial = Denial::Refused("it answers no request that the server has open in this session");

/// The most requests that one session has open; one more lets go of the oldest.
const OF_SESSION: usize = 64;
/// The requests that are open in all, and at one client. One more is not kept, so that no answer to it passes.
const LIMIT: usize = 16_384;
const LIMIT_OF_CLIENT: usize = 1_024;
/// The time after which a request is open no more: somebody may have to be asked.
const OPEN: Duration = Duration::from_hours(1);
/// The longest id of a request or a session that is kept, in bytes.
const LONGEST: usize = 512;
/// The time between two searches for requests that are open no more.
const BETWEEN: Duration = Duration::from_secs(1);

/// A session, by its owner and its id. Nobody but the owner can answer in it.
pub(super) type Session = (Principal, Arc<str>);

/// The requests of the MCP server that are open, by the session of the client that they went to.
pub(super) struct OpenRequests {
    sessions: Mutex<Sessions>,
    shares: Arc<Shares>,
}

#[derive(Default)]
struct Sessions {
    open: HashMap<Session, VecDeque<Open>>,
    /// The time of the last search.
    searched: Option<Instant>,
}

struct Open {
    id: Value,
    since: Instant,
    _share: Share,
}

impl OpenRequests {
    pub(super) fn new() -> Self {
        Self { sessions: Mutex::default(), shares: Shares::new(LIMIT, LIMIT_OF_CLIENT) }
    }

    pub(super) fn bound(&self) -> Bound {
        self.shares.bound("server_requests")
    }

    /// Judges an answer of the client: it passes where the MCP server has the request open in the client's session, and closes that.
    pub(super) fn judge(&self, context: &RequestContext, answer: &OwnedMessage) -> Result<(), Denial> {
        let session = context.owner().zip(context.session()).zip(answer.id());
        let is_asked = session.is_some_and(|(session, id)| self.close(&session, id));
        if is_asked { Ok(()) } else { Err(NOT_ASKED) }
    }

    /// Records a request on its way to a client.
    pub(super) fn open(&self, session: Session, client: &Client, id: Id<'_>) {
        let Some(id) = read(id).filter(|_| session.1.len() <= LONGEST) else { return };
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = sessions.open.get_mut(&session) {
            open.retain(|request| request.id != id);
            if open.len() == OF_SESSION {
                open.pop_front();
            }
        }
        let share = self.shares.take(client, 1).or_else(|| {
            sessions.forget_old();
            self.shares.take(client, 1)
        });
        let Some(share) = share else {
            tracing::debug!("no answer to a request of the MCP server will pass: its client has too many open");
            return;
        };
        let request = Open { id, since: Instant::now(), _share: share };
        sessions.open.entry(session).or_default().push_back(request);
    }

    /// Closes the request that a client of this session answers, and returns whether it was open.
    fn close(&self, session: &Session, id: Id<'_>) -> bool {
        let Some(id) = read(id) else { return false };
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(open) = sessions.open.get_mut(session) else { return false };
        let found = open.iter().position(|request| request.id == id).and_then(|at| open.remove(at));
        if open.is_empty() {
            sessions.open.remove(session);
        }
        found.is_some_and(|request| request.since.elapsed() < OPEN)
    }
}

impl Sessions {
    fn forget_old(&mut self) {
        if self.searched.is_some_and(|searched| searched.elapsed() < BETWEEN) {
            return;
        }
        self.searched = Some(Instant::now());
        self.open.retain(|_, open| {
            open.retain(|request| request.since.elapsed() < OPEN);
            !open.is_empty()
        });
    }
}

/// The value of an id: clients may write a text with other escapes than the server.
fn read(id: Id<'_>) -> Option<Value> {
    Some(id.raw()).filter(|raw| raw.len() <= LONGEST).and_then(|raw| serde_json::from_str(raw).ok())
}

#[cfg(test)]
mod tests {
    use mcp_wire::Message;

    use super::*;

    fn session(name: &str) -> Session {
        (Principal::new("i", "ann"), name.into())
    }

    fn with_id<T>(id: &str, ask: impl FnOnce(Id<'_>) -> T) -> T {
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
        ask(Message::parse(text.as_bytes()).unwrap().id().unwrap())
    }

    fn open(requests: &OpenRequests, session: Session, id: &str) {
        let client = Client::Principal(session.0.clone());
        with_id(id, |id| requests.open(session, &client, id));
    }

    fn closes(requests: &OpenRequests, session: &Session, id: &str) -> bool {
        with_id(id, |id| requests.close(session, id))
    }

    #[test]
    fn a_request_is_answered_once_in_its_session() {
        let requests = OpenRequests::new();
        for id in ["1", r#""1""#, r#""a\u0062""#] {
            open(&requests, session("a"), id);
        }
        let bob = (Principal::new("i", "bob"), "a".into());
        assert!(!closes(&requests, &session("b"), "1") && !closes(&requests, &bob, "1"));
        for (id, is_open) in [("1", true), ("1", false), (r#""1""#, true), (r#""ab""#, true), ("2", false)] {
            assert_eq!(closes(&requests, &session("a"), id), is_open, "{id}");
        }
        assert_eq!((requests.bound().used, requests.sessions.lock().unwrap().open.len()), (0, 0));
    }

    #[test]
    fn a_session_and_a_client_have_a_bounded_number_of_requests_open() {
        let requests = OpenRequests::new();
        for id in 0..=OF_SESSION {
            open(&requests, session("a"), &id.to_string());
        }
        assert!(!closes(&requests, &session("a"), "0") && closes(&requests, &session("a"), "1"));
        for name in 0..=LIMIT_OF_CLIENT {
            open(&requests, session(&name.to_string()), "1");
        }
        assert_eq!(requests.bound().used, LIMIT_OF_CLIENT);
        let bob = (Principal::new("i", "bob"), Arc::from("a"));
        open(&requests, bob.clone(), "1");
        assert!(closes(&requests, &bob, "1"), "another client has a share of its own");
        open(&requests, bob.clone(), &format!("\"{}\"", "x".repeat(LONGEST)));
        assert_eq!(requests.bound().used, LIMIT_OF_CLIENT, "a long id is not kept");
    }
}
