//! Many clients on one pipe: ids and progress tokens are rewritten on the way in and restored on the way out, the handshake is the
//! multiplexer's own and its result given to each client, subscriptions are counted.
//!
//! What cannot be told apart on a shared pipe is refused (requests of the server to its client) or dropped (log messages). When the
//! pipe ends, calls under way fail and others wait, it is opened again after a pause, and the handshake and the subscriptions are repeated. After
//! six pipes in a row that answered nothing the multiplexer gives up.

mod backlog;
mod calls;
mod dispatch;
mod handshake;
mod ids;
mod listeners;
mod outlet;
mod queue;
pub(crate) mod rewrite;
mod running;
mod subscriptions;
mod supervisor;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use mcp_middleware::beside;
use mcp_store::{Bound, Client};
use mcp_wire::{Message as Envelope, OwnedMessage, escape_line_breaks};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use self::calls::{Call, Calls, Reply};
use self::handshake::Handshake;
use self::listeners::Listeners;
use self::queue::{Line, Queue};
use self::rewrite::{Params, request_line};
use self::subscriptions::Subscriptions;

pub(crate) use self::backlog::{Message, Room};
pub(crate) use self::calls::{ENDED, Origin};
pub(crate) use self::handshake::Outcome;
pub(crate) use self::running::Running;

/// How a pipe is shared.
#[derive(Clone, Copy, Debug)]
pub struct MuxConfig {
    /// How long an answer may take. Default: 60 s.
    pub answer_timeout: Duration,
    /// How long a server may be asked and silent before that is told. Default: 10 s, no longer than between two checks of a server that speaks HTTP.
    pub notice: Duration,
}

impl Default for MuxConfig {
    fn default() -> Self {
        Self { answer_timeout: Duration::from_mins(1), notice: Duration::from_secs(10) }
    }
}

/// Everything that clients and the pipe share.
#[derive(Debug)]
pub(crate) struct Mux {
    pub(crate) subscriptions: Subscriptions,
    pub(crate) listeners: Listeners,
    pub(crate) answer_timeout: Duration,
    notice: Duration,
    calls: Calls,
    handshake: Handshake,
    queue: Queue,
    tasks: TaskTracker,
    answered: AtomicBool,
}

/// A call that waits. Closed when it is dropped: then nobody waits for it any more.
///
/// In the Modern era leaving is cancelling, so the server is told; in the Legacy era only `notifications/cancelled` is, and the answer
/// is dropped when it comes. A call that took too long is cancelled in both, and so is one whose session is over.
#[derive(Debug)]
pub(crate) struct Waiting {
    mux: Arc<Mux>,
    number: u64,
    pub(crate) leaving_cancels: bool,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.mux.calls.close(self.number).is_some_and(|call| call.written) && self.leaving_cancels {
            let id = self.number;
            self.mux.queue.push(Line::of_ours(format!(
                "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{{\"requestId\":{id},\"reason\":\"nobody waits for the answer\"}}}}"
            )));
        }
    }
}

/// A call of the multiplexer's own.
struct Open<'a> {
    calls: &'a Calls,
    number: u64,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.calls.close(self.number);
    }
}

impl Mux {
    /// Passes a client's request on; its answer goes to the one who waits on the channel. `None` when the pipe is given up or does not
    /// take it in time.
    pub(crate) async fn call(
        self: &Arc<Self>,
        request: Request<'_>,
        leaving_cancels: bool,
    ) -> (Waiting, oneshot::Receiver<Message>, Sent) {
        let (reply, answer) = oneshot::channel();
        let (waiting, sent) = self.send_call(request, leaving_cancels, Reply::Once(reply)).await;
        (waiting, answer, sent)
    }

    /// The bounds that clients share here.
    pub(crate) fn bounds(&self) -> Vec<Bound> {
        vec![self.subscriptions.bound(), self.queue.bound(), self.calls.bound()]
    }

    /// Counts `bytes` that are kept for `client` among what waits for it; `None` when too much does already.
    pub(crate) fn room(&self, client: &Client, bytes: usize) -> Option<Room> {
        self.calls.room(client, bytes)
    }

    /// As [`Mux::call`], with the notifications about the call before its answer.
    pub(crate) async fn stream(
        self: &Arc<Self>,
        request: Request<'_>,
        leaving_cancels: bool,
    ) -> (Waiting, mpsc::Receiver<Message>, Sent) {
        let (reply, messages) = mpsc::channel(calls::QUEUE);
        let (waiting, sent) = self.send_call(request, leaving_cancels, Reply::Stream(reply)).await;
        (waiting, messages, sent)
    }

    async fn send_call(self: &Arc<Self>, request: Request<'_>, leaving_cancels: bool, reply: Reply) -> (Waiting, Sent) {
        let Request { message, origin } = request;
        let client = origin.as_ref().map(|origin| origin.client.clone());
        let number = self.calls.fresh();
        let bytes = self.request_line(message, number).await;
        let params = Params::of(message.message()).ok();
        let token = params.and_then(|params| params.meta?.progress_token).map(|token| token.get().into());
        let id = message.id().map(|id| id.raw()).unwrap_or_default();
        self.calls.open(number, Call { id: id.into(), token, origin, reply, written: false });
        let waiting = Waiting { mux: Arc::clone(self), number, leaving_cancels };
        let sent = self.send(bytes, Some(number), client.as_ref()).await;
        (waiting, sent)
    }

    async fn request_line(&self, message: &OwnedMessage, number: u64) -> Bytes {
        let (asked, id) = (message.clone(), number.to_string());
        beside(message.body().len(), move || request_line(&asked, &id)).await
    }

    /// Passes a notification of `client`, or of the multiplexer, on.
    pub(crate) async fn notify(&self, line: Bytes, client: Option<&Client>) -> Sent {
        self.send(line, None, client).await
    }

    async fn send(&self, bytes: Bytes, call: Option<u64>, client: Option<&Client>) -> Sent {
        match timeout(self.answer_timeout, self.queue.send(Line { bytes, call }, client)).await {
            Ok(true) => Sent::Queued,
            Ok(false) => Sent::Ended,
            Err(_) => Sent::TooSlow,
        }
    }

    /// The id under which the server knows the client's call `id` of `session`, as JSON text.
    pub(crate) fn find(&self, session: &str, id: &str) -> Option<String> {
        self.calls.find(session, id).map(|number| number.to_string())
    }

    /// The result of the handshake for a client whose `initialize` this is, made when it is the first.
    pub(crate) async fn greet(self: &Arc<Self>, initialize: &Envelope<'_>) -> Outcome {
        let wanted = initialize.param("protocolVersion").ok().flatten();
        let wanted: Option<String> = wanted.and_then(|wanted| serde_json::from_str(wanted.get()).ok());
        handshake::make(self, wanted.as_deref()).await
    }

    /// Makes the handshake where it was not made.
    pub(crate) async fn ensure_greeted(self: &Arc<Self>) {
        if self.handshake.version().is_none() {
            handshake::make(self, None).await;
        }
    }

    /// Whether the process serves the Modern era, once it was greeted and asked. `None` when it does not say in time.
    pub(crate) async fn serves_modern(self: &Arc<Self>) -> Option<bool> {
        if let Some(known) = self.handshake.serves_modern() {
            return Some(known);
        }
        let asked = async {
            self.ensure_greeted().await;
            handshake::serves_modern(self).await
        };
        timeout(self.answer_timeout, asked).await.ok()
    }

    /// Asks the server for `client`, or for all of them, and waits for its answer, which carries the client's id. `None` when none came.
    pub(crate) async fn ask(&self, message: &OwnedMessage, client: Option<&Client>) -> Option<Bytes> {
        timeout(self.answer_timeout, self.ask_patiently(message, client, Reply::Once)).await.ok().flatten()
    }

    /// As [`Mux::ask`], for as long as the caller and the process want to wait.
    async fn ask_patiently(
        &self,
        message: &OwnedMessage,
        client: Option<&Client>,
        reply: impl FnOnce(oneshot::Sender<Message>) -> Reply,
    ) -> Option<Bytes> {
        let (sender, answer) = oneshot::channel();
        let number = self.calls.fresh();
        let bytes = self.request_line(message, number).await;
        let id = message.id()?.raw().into();
        let call = Call { id, token: None, origin: None, reply: reply(sender), written: false };
        self.calls.open(number, call);
        // Whoever asks may leave before the answer.
        let _open = Open { calls: &self.calls, number };
        self.queue.send(Line { bytes, call: Some(number) }, client).await.then_some(())?;
        answer.await.ok().map(Message::into_bytes)
    }

    /// Lets go of what a session that is over listened and subscribed to.
    pub(crate) fn forget(&self, session: &str) {
        self.listeners.close(session);
        self.unsubscribe(self.subscriptions.leave(session));
    }

    /// Tells the server that nobody wants to hear of these resources any more.
    pub(crate) fn unsubscribe(&self, uris: Vec<Arc<str>>) {
        for uri in uris {
            self.queue.push(Line { bytes: self.subscription_line("resources/unsubscribe", &uri), call: None });
        }
    }

    /// A `resources/subscribe` or `resources/unsubscribe` of the multiplexer's own, whose answer nobody waits for.
    fn subscription_line(&self, method: &str, uri: &str) -> Bytes {
        let (id, uri) = (self.calls.fresh(), serde_json::Value::from(uri));
        let message =
            format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{{\"uri\":{uri}}}}}");
        Line::of_ours(escape_line_breaks(message.into_bytes())).bytes
    }

    /// A `server/discover` whose answer nobody waits for.
    fn discover_line(&self) -> Bytes {
        let id = self.calls.fresh().to_string();
        handshake::discovery().map(|discover| request_line(&discover, &id)).unwrap_or_default()
    }

    /// A `ping` whose answer nobody waits for.
    fn ping_line(&self) -> Bytes {
        let id = self.calls.fresh();
        Line::of_ours(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"ping\"}}")).bytes
    }

    /// The server has answered something, so it works.
    fn note_answer(&self) {
        self.answered.store(true, Ordering::Relaxed);
    }

    /// Whether it has since the pipe was opened.
    fn has_answered(&self) -> bool {
        self.answered.load(Ordering::Relaxed)
    }

    /// The same, for the last time of this pipe.
    fn take_answered(&self) -> bool {
        self.answered.swap(false, Ordering::Relaxed)
    }
}

/// A client's request.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) message: &'a OwnedMessage,
    pub(crate) origin: Option<Origin>,
}

/// What came of sending a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// It is on its way.
    Queued,
    /// The pipe was given up.
    Ended,
    /// The server took no more in time.
    TooSlow,
}

impl Origin {
    pub(crate) fn new(session: Option<&str>, client: Client) -> Self {
        Self { session: session.map(Into::into), client }
    }
}
