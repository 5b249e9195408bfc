//! Servers of the HTTP+SSE transport (MCP 2024-11-05): a GET opens a stream, whose first event says where to POST; answers come on the stream.

mod endpoint;
mod parts;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH};
use http::request::Parts as Head;
use http::{Response, StatusCode};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt as _;
use mcp_http::{Body, BoxError, is_type, json, text};
use mcp_middleware::RequestContext;
use mcp_store::{SessionRecord, SessionStore};
use mcp_wire::sse::Event;
use mcp_wire::{ErrorBody, code};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use self::endpoint::{Base, Endpoint};
use self::parts::{Part, Parts};
use super::upstream::UpstreamError;
use super::{Inner, name_no_session, refusal};
use crate::ClientUrl;
use crate::carriers::Carried;
use crate::sessions::{Renewal, Sender, not_found, unavailable};

/// How long a server may take from the request for a stream until it has said where to POST.
const ENDPOINT_TIMEOUT: Duration = Duration::from_secs(30);

impl Inner {
    /// Passes a GET on. Where it opens a stream, its session is bound to the sender before the client sees its id.
    pub(super) async fn open_stream(&self, client_url: &ClientUrl, mut parts: Head) -> Response<Body> {
        name_no_session(&mut parts);
        // What is compressed cannot be read.
        parts.headers.remove(ACCEPT_ENCODING);
        let (sender, context) = (Sender::of(&parts.extensions), RequestContext::of(&parts.extensions).cloned());
        let base = Base::of(client_url, &parts.headers);
        let Some(principal) = sender.principal else {
            return text(
                StatusCode::UNAUTHORIZED,
                "a session belongs to an issuer's subject, and the token names none",
            );
        };
        let Some(stream) = self.upstream.url().target(&parts.uri) else {
            return refusal(&UpstreamError::TooLong, None);
        };
        let outgoing = self.outgoing(parts, Bytes::new());
        let deadline = Instant::now() + ENDPOINT_TIMEOUT;
        let (mut response, from) = match timeout_at(deadline, self.upstream.send(&outgoing)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return refusal(&error, None),
            Err(_) => return text(StatusCode::GATEWAY_TIMEOUT, "the MCP server did not answer in time"),
        };
        if !is_type(response.headers(), "text/event-stream") {
            return response;
        }
        response.headers_mut().remove(CONTENT_LENGTH);
        if response.headers().contains_key(CONTENT_ENCODING) {
            return no_session("the stream is compressed");
        }
        let (head, body) = response.into_parts();
        let first = timeout_at(deadline, first_endpoint(body)).await;
        let Ok(first) = first else { return no_session("no endpoint came in time") };
        let Some(First { named, rest, parts, body }) = first else {
            return no_session("the stream does not begin with an endpoint");
        };
        let endpoint = Endpoint::read(&named, stream.path(), self.upstream.url(), &base);
        let Some(Endpoint { id, place, shown }) = endpoint else {
            return no_session("its endpoint is no URL that names a session");
        };
        let mut record = SessionRecord::new(&id, principal);
        record.backend_address = from;
        record.messages = Some(place.as_str().into());
        let record = Arc::new(record);
        let Some(over) = self.streams.open(&id) else {
            return no_session("the session belongs to another stream");
        };
        let session = Session {
            store: Arc::clone(&self.sessions),
            record: Arc::clone(&record),
            streams: Arc::clone(&self.streams),
            over,
        };
        match self.sessions.insert(SessionRecord::clone(&record), &sender.client).await {
            Ok(Some(_)) => {}
            Ok(None) => return no_session("the session belongs to somebody else"),
            Err(error) => {
                tracing::debug!(%error, "cannot keep a session");
                return unavailable();
            }
        }
        if let Some(context) = context {
            context.in_session(&id);
        }
        let renewal = Renewal::new(Arc::clone(&self.sessions), record);
        let mut stream =
            Stream { body, parts, named, shown, ready: Vec::new(), ended: false, renewal, _session: session };
        stream.show(rest);
        Response::from_parts(head, Body::new(stream))
    }

    /// When the session that a request names is over. `None` where no stream of it is open here; to be asked before the store is: a session that is
    /// found after that has its stream elsewhere.
    pub(super) fn over(&self, parts: &Head) -> Option<CancellationToken> {
        self.sse.as_ref()?;
        match Carried::by(parts) {
            Carried::Id(id) => self.streams.over(&id),
            Carried::Nothing | Carried::Conflict => None,
        }
    }
}

/// Answers a client about its message `id` when the session has ended before the server's answer. The server may never give one, as some
/// forget to when they do not know the session any more, and there is no stream for what it would say.
pub(super) fn over(sent: bool, id: Option<&str>) -> Response<Body> {
    tracing::debug!(sent, "a session ended before a message of it was answered");
    if !sent {
        return not_found(id);
    }
    let error = ErrorBody::new(code::INTERNAL, "the session ended before the MCP server answered").raw_id(id);
    json(StatusCode::BAD_GATEWAY, error.encode())
}

/// `body`, broken off when its session is `over`.
pub(super) fn until(body: Body, over: CancellationToken) -> Body {
    if body.is_end_stream() { body } else { Body::new(Until { body, over: Box::pin(over.cancelled_owned()) }) }
}

struct Until {
    body: Body,
    over: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl HttpBody for Until {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if frame.is_pending() && self.over.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Some(Err("the session ended before the whole answer was there".into())));
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

fn no_session(reason: &'static str) -> Response<Body> {
    tracing::warn!(reason, "closed the stream of the MCP server: it opened no session of its own");
    text(StatusCode::BAD_GATEWAY, "the MCP server opened no session of its own")
}

/// A stream whose endpoint has come.
struct First {
    /// The URL in it.
    named: String,
    /// What came with it, itself at the beginning.
    rest: Vec<Part>,
    parts: Parts,
    body: Body,
}

async fn first_endpoint(mut body: Body) -> Option<First> {
    let mut parts = Parts::new();
    loop {
        let piece = body.frame().await?.ok()?.into_data().unwrap_or_default();
        // What passes before the endpoint is comments. The head of the answer has not gone out yet, and is no use without an endpoint.
        let mut rest = parts.push(&piece).into_iter().skip_while(|part| matches!(part, Part::Pass(_))).peekable();
        match rest.peek() {
            None => {}
            Some(Part::Endpoint(Event { data: Some(url), .. })) => {
                return Some(First { named: url.clone(), rest: rest.collect(), parts, body });
            }
            Some(_) => return None,
        }
    }
}

/// The sessions whose streams are open here, by their ids, and when each is over. All callers who have not logged in are one principal, which may own an id again: whose
/// stream the server would answer on, nobody could tell.
#[derive(Debug, Default)]
pub(super) struct Streams(Mutex<HashMap<Box<str>, CancellationToken>>);

impl Streams {
    /// `None` where the session has a stream already.
    fn open(&self, id: &str) -> Option<CancellationToken> {
        match self.lock().entry(id.into()) {
            Entry::Occupied(_) => None,
            Entry::Vacant(free) => Some(free.insert(CancellationToken::new()).clone()),
        }
    }

    fn over(&self, id: &str) -> Option<CancellationToken> {
        self.lock().get(id).cloned()
    }

    fn close(&self, id: &str) {
        self.lock().remove(id);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, CancellationToken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A session that is over when its stream is.
struct Session {
    store: Arc<dyn SessionStore>,
    record: Arc<SessionRecord>,
    streams: Arc<Streams>,
    over: CancellationToken,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.over.cancel();
        let (store, record, streams) = (Arc::clone(&self.store), Arc::clone(&self.record), Arc::clone(&self.streams));
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Err(error) = store.remove(&record.id, &record.principal).await {
                    tracing::warn!(%error, "cannot forget a session whose stream is over");
                }
                // Not before: the record of the next stream would go.
                streams.close(&record.id);
            });
        }
    }
}

/// The stream as its client sees it.
struct Stream {
    body: Body,
    parts: Parts,
    /// The URL that the server tells its client to POST to, and what the client is shown in its place.
    named: String,
    shown: String,
    /// What is to be sent next.
    ready: Vec<u8>,
    ended: bool,
    renewal: Renewal,
    _session: Session,
}

impl Stream {
    /// Makes `parts` ready. An endpoint that is not the one of the session ends the stream.
    fn show(&mut self, parts: Vec<Part>) {
        for part in parts {
            let problem = match part {
                Part::Pass(bytes) if self.ready.is_empty() => {
                    self.ready = bytes;
                    continue;
                }
                Part::Pass(bytes) => {
                    self.ready.extend(bytes);
                    continue;
                }
                Part::Endpoint(event) if event.data.as_ref() == Some(&self.named) => {
                    let shown = Event { data: Some(self.shown.clone()), ..event };
                    self.ready.extend(shown.encode().into_bytes());
                    continue;
                }
                Part::Endpoint(_) => "it names another endpoint than at its beginning",
                Part::Broken(problem) => problem,
            };
            tracing::warn!(problem, "the stream of an MCP server is closed");
            self.ended = true;
            return;
        }
    }
}

impl HttpBody for Stream {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        loop {
            if !self.ready.is_empty() {
                let ready = std::mem::take(&mut self.ready);
                return Poll::Ready(Some(Ok(Frame::data(ready.into()))));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            let piece = match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Pending => {
                    self.renewal.poll(cx);
                    return Poll::Pending;
                }
                Poll::Ready(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
                Poll::Ready(other) => return Poll::Ready(other),
            };
            let parts = self.parts.push(&piece);
            self.show(parts);
        }
    }
}
