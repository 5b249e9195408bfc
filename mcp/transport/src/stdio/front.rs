//! The HTTP side: what a client asks becomes a line, what the process answers becomes an answer.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use mcp_http::{Body, BoxService};
use mcp_wire::Message;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use tower::service_fn;

use super::StdioConfig;
use super::calls::{Call, Calls, QUEUE, Reply};
use super::handshake::Handshake;
use super::rewrite::{Params, request_line};
use crate::sessions::Sessions;

mod answer;
mod post;
mod stream;

/// Subscriptions to more resources than this are refused.
const MAX_SUBSCRIPTIONS: usize = 10_000;

/// A line for the process.
#[derive(Debug)]
pub(super) struct Line {
    /// With its line break.
    pub(super) bytes: Bytes,
    /// The call that it opens; it is not written once nobody waits for that.
    pub(super) call: Option<u64>,
}

impl Line {
    /// A message of the front's own.
    pub(super) fn of_ours(message: impl Into<Vec<u8>>) -> Self {
        let mut bytes = message.into();
        bytes.push(b'\n');
        Self { bytes: bytes.into(), call: None }
    }
}

/// A client with a session.
#[derive(Debug, Default)]
pub(super) struct Client {
    stream: Mutex<Option<mpsc::Sender<Bytes>>>,
}

impl Client {
    /// Ends the client's stream.
    fn close(&self) {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Puts a message into the client's stream; dropped when there is none or its reader is behind.
    pub(super) fn push(&self, message: &Bytes) {
        if let Some(stream) = &*self.stream.lock().unwrap_or_else(PoisonError::into_inner)
            && stream.try_send(message.clone()).is_err()
        {
            tracing::debug!("dropped a notification: its reader is gone or behind");
        }
    }
}

/// Everything that the requests and the process share.
#[derive(Debug)]
pub(super) struct Front {
    pub(super) calls: Calls,
    pub(super) sessions: Sessions<Client>,
    pub(super) handshake: Handshake,
    pub(super) subscriptions: Subscriptions,
    pub(super) tasks: TaskTracker,
    lines: mpsc::Sender<Line>,
    answered: AtomicBool,
    answer_timeout: Duration,
    max_body_bytes: usize,
    strict_versions: bool,
}

impl Front {
    pub(super) fn new(config: &StdioConfig, tasks: TaskTracker) -> (Self, mpsc::Receiver<Line>) {
        let (lines, queue) = mpsc::channel(QUEUE);
        let front = Self {
            calls: Calls::default(),
            sessions: Sessions::new(config.session_ttl, config.max_sessions),
            handshake: Handshake::default(),
            subscriptions: Subscriptions::default(),
            tasks,
            lines,
            answered: AtomicBool::new(false),
            answer_timeout: config.answer_timeout,
            max_body_bytes: config.max_body_bytes,
            strict_versions: config.strict_versions,
        };
        (front, queue)
    }

    /// The process has answered something, so it works.
    pub(super) fn note_answer(&self) {
        self.answered.store(true, Ordering::Relaxed);
    }

    /// Whether it has since this was asked last.
    pub(super) fn take_answered(&self) -> bool {
        self.answered.swap(false, Ordering::Relaxed)
    }

    /// Queues a line that nobody waits for; dropped when the process is behind.
    pub(super) fn write(&self, line: Line) {
        if self.lines.try_send(line).is_err() {
            tracing::warn!("dropped a message to the MCP server's process: it is behind");
        }
    }

    /// Asks the process and waits for its answer, which carries the client's id. `None` when none came.
    pub(super) async fn ask(&self, body: &Bytes) -> Option<Bytes> {
        let message = Message::parse(body).ok()?;
        let params = Params::read(message.params()).ok()?;
        let (reply, answer) = oneshot::channel();
        let id = self.calls.fresh_id();
        let line = Line { bytes: request_line(body, &message, &params, id), call: Some(id) };
        let client_id = message.id()?.raw();
        self.calls.open(id, Call { id: client_id.into(), token: None, session: None, reply: Reply::Once(reply) });
        let asked = async {
            self.lines.send(line).await.ok()?;
            answer.await.ok()
        };
        let answer = timeout(self.answer_timeout, asked).await.ok().flatten();
        self.calls.close(id);
        answer
    }

    /// A `resources/subscribe` or `resources/unsubscribe` of the front's own, whose answer nobody waits for.
    pub(super) fn subscription_line(&self, method: &str, uri: &str) -> Bytes {
        let (id, uri) = (self.calls.fresh_id(), serde_json::Value::from(uri));
        let message =
            format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{{\"uri\":{uri}}}}}");
        Line::of_ours(message).bytes
    }

    /// Lets go of what a session that is over subscribed to.
    fn forget(&self, session: &str) {
        for uri in self.subscriptions.leave(session) {
            let bytes = self.subscription_line("resources/unsubscribe", &uri);
            self.write(Line { bytes, call: None });
        }
    }
}

/// The front as a service.
pub(super) fn service(front: Arc<Front>) -> BoxService {
    BoxService::new(service_fn(move |request: Request<Body>| {
        let front = Arc::clone(&front);
        async move { Ok::<Response<Body>, Infallible>(post::handle(&front, request).await) }
    }))
}

/// Who wants to hear of which resource. The process is asked once for each.
#[derive(Debug, Default)]
pub(super) struct Subscriptions(Mutex<BTreeMap<String, BTreeSet<String>>>);

impl Subscriptions {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, BTreeSet<String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a subscriber when the process watches the resource already.
    fn join(&self, uri: &str, session: &str) -> bool {
        self.lock().get_mut(uri).map(|sessions| sessions.insert(session.to_owned())).is_some()
    }

    fn is_full(&self) -> bool {
        self.lock().len() >= MAX_SUBSCRIPTIONS
    }

    fn add(&self, uri: String, session: &str) {
        self.lock().entry(uri).or_default().insert(session.to_owned());
    }

    /// Removes a subscriber; whether it was the last.
    fn part(&self, uri: &str, session: &str) -> bool {
        let mut all = self.lock();
        let Some(sessions) = all.get_mut(uri) else { return true };
        sessions.remove(session);
        let last = sessions.is_empty();
        if last {
            all.remove(uri);
        }
        last
    }

    /// Removes a session everywhere and returns the resources that nobody wants to hear of any more.
    fn leave(&self, session: &str) -> Vec<String> {
        let mut all = self.lock();
        let mut unwanted = Vec::new();
        all.retain(|uri, sessions| {
            let was = sessions.remove(session);
            if was && sessions.is_empty() {
                unwanted.push(uri.clone());
            }
            !sessions.is_empty()
        });
        unwanted
    }

    pub(super) fn subscribers(&self, uri: &str) -> Vec<String> {
        self.lock().get(uri).map(|sessions| sessions.iter().cloned().collect()).unwrap_or_default()
    }

    pub(super) fn uris(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }
}
