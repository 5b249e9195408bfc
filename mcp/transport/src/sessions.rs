//! What the transports ask of the store of sessions.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderValue, RETRY_AFTER};
use http::request::Parts;
use http::{Extensions, Response, StatusCode};
use http_body::{Body as HttpBody, Frame, SizeHint};
use mcp_http::{Body, BoxError, collect, json, text};
use mcp_middleware::{RequestContext, client_network, read_message};
use mcp_store::{Client, Principal, SessionRecord, SessionStore};
use mcp_wire::{ErrorBody, MessageError, OwnedMessage, code};
use tokio::time::{Instant, Sleep};

use crate::carriers::Carried;

/// Who sends a request.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    /// To whom the sessions that it opens belong, and whose it may use. `None` for an identity without issuer or subject: it has none.
    pub(crate) principal: Option<Principal>,
    /// The holder of everything that it makes the proxy keep.
    pub(crate) client: Client,
}

impl Sender {
    pub(crate) fn of(extensions: &Extensions) -> Self {
        let context = RequestContext::of(extensions);
        let principal = context.map_or_else(|| Some(Principal::unauthenticated()), |context| context.owner());
        let client = context.map_or_else(|| Client::Network(client_network(None)), |context| context.client());
        Self { principal, client }
    }
}

/// The session that a request names.
#[derive(Debug)]
pub(crate) enum Named {
    /// It names none.
    Nothing,
    /// One that is open and belongs to the sender.
    Known(Arc<SessionRecord>),
    /// One that is not, or not any more.
    Unknown,
    /// The store did not say.
    Unavailable,
}

impl Named {
    /// Looks up the session that a request names, and renews it. A request that names two, in its header and its query, names none that
    /// is known.
    pub(crate) async fn by(store: &dyn SessionStore, parts: &Parts) -> Self {
        let id = match Carried::by(parts) {
            Carried::Nothing => return Self::Nothing,
            Carried::Id(id) => id,
            Carried::Conflict => return Self::Unknown,
        };
        let Some(principal) = Sender::of(&parts.extensions).principal else { return Self::Unknown };
        match store.load(&id, &principal).await {
            Ok(Some(record)) => Self::Known(record),
            Ok(None) => Self::Unknown,
            Err(error) => {
                tracing::debug!(%error, "cannot look up a session");
                Self::Unavailable
            }
        }
    }
}

/// The body of a request. The chain has read it, within its limits, so this is no more than its one piece.
pub(crate) async fn whole(body: Body) -> Result<Bytes, Response<Body>> {
    collect(body, usize::MAX).await.map_err(|_| text(StatusCode::BAD_REQUEST, "Invalid request body"))
}

/// The message in the body of a POST: the one that a middleware has read already, else read now.
pub(crate) async fn message(extensions: &Extensions, body: Bytes) -> Result<OwnedMessage, MessageError> {
    let context = RequestContext::of(extensions);
    let read = context.and_then(|context| context.message());
    match read.filter(|message| message.body().as_ptr() == body.as_ptr() && message.body().len() == body.len()) {
        Some(message) => Ok(message),
        // The context has the body's share of the memory.
        None => read_message(body, context.cloned()).await.map(|(message, _)| message),
    }
}

/// Answers a client whose session is unknown about its request `id`, which is JSON text: it must initialize again (MCP 2025-11-25, Session Management).
pub(crate) fn not_found(id: Option<&str>) -> Response<Body> {
    let error = ErrorBody::new(code::SESSION_NOT_FOUND, "Session not found").raw_id(id);
    json(StatusCode::NOT_FOUND, error.encode())
}

/// What a client is told while nobody knows whether its session exists.
pub(crate) fn unavailable() -> Response<Body> {
    let mut response = text(StatusCode::SERVICE_UNAVAILABLE, "Session store unavailable");
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// Renews a session while a stream of it is open.
pub(crate) struct Renewal {
    store: Arc<dyn SessionStore>,
    record: Arc<SessionRecord>,
    pause: Duration,
    /// `None` before the stream has to wait for the first time: most answers are there at once.
    sleep: Option<Pin<Box<Sleep>>>,
    running: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Renewal {
    pub(crate) fn new(store: Arc<dyn SessionStore>, record: Arc<SessionRecord>) -> Self {
        let pause = (store.ttl() / 3).clamp(Duration::from_millis(10), Duration::from_mins(5));
        Self { store, record, pause, sleep: None, running: None }
    }

    /// Renews when it is time; to be called whenever the stream has to wait.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) {
        loop {
            if let Some(running) = &mut self.running {
                if running.as_mut().poll(cx).is_pending() {
                    return;
                }
                self.running = None;
            }
            let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.pause)));
            if sleep.as_mut().poll(cx).is_pending() {
                return;
            }
            sleep.as_mut().reset(Instant::now() + self.pause);
            let (store, record) = (Arc::clone(&self.store), Arc::clone(&self.record));
            self.running = Some(Box::pin(async move {
                if let Err(error) = store.load(&record.id, &record.principal).await {
                    tracing::warn!(%error, "cannot renew a session whose stream is open");
                }
            }));
        }
    }
}

/// A body that keeps its session from expiring for as long as it is read.
pub(crate) struct Renewing {
    pub(crate) body: Body,
    pub(crate) renewal: Renewal,
}

impl HttpBody for Renewing {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if frame.is_pending() {
            self.renewal.poll(cx);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
