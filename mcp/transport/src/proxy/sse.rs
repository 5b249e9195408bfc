//! Servers of the HTTP+SSE transport (MCP 2024-11-05): a GET opens a stream, whose first event says where to POST; answers come on the stream.

mod endpoint;
mod parts;

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH};
use http::request::Parts as Head;
use http::{Response, StatusCode};
use http_body::{Body as HttpBody, Frame};
use http_body_util::BodyExt as _;
use mcp_http::{Body, BoxError, is_type, text};
use mcp_store::{SessionRecord, SessionStore};
use mcp_wire::sse::Event;
use tokio::time::{Instant, timeout_at};

use self::endpoint::{Base, Endpoint};
use self::parts::{Part, Parts};
use super::upstream::UpstreamError;
use super::{Inner, name_no_session, refusal};
use crate::ClientUrl;
use crate::sessions::{Renewal, Sender, unavailable};

/// How long a server may take from the request for a stream until it has said where to POST.
const ENDPOINT_TIMEOUT: Duration = Duration::from_secs(30);

impl Inner {
    /// Passes a GET on. Where it opens a stream, its session is bound to the sender before the client sees its id.
    pub(super) async fn open_stream(&self, client_url: &ClientUrl, mut parts: Head) -> Response<Body> {
        name_no_session(&mut parts);
        // What is compressed cannot be read.
        parts.headers.remove(ACCEPT_ENCODING);
        let sender = Sender::of(&parts.extensions);
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
        if !self.streams.open(&id) {
            return no_session("the session belongs to another stream");
        }
        let session = Session {
            store: Arc::clone(&self.sessions),
            record: Arc::clone(&record),
            streams: Arc::clone(&self.streams),
        };
        match self.sessions.insert(SessionRecord::clone(&record), &sender.client).await {
            Ok(Some(_)) => {}
            Ok(None) => return no_session("the session belongs to somebody else"),
            Err(error) => {
                tracing::error!(%error, "cannot keep a session");
                return unavailable();
            }
        }
        let renewal = Renewal::new(Arc::clone(&self.sessions), record);
        let mut stream =
            Stream { body, parts, named, shown, ready: Vec::new(), ended: false, renewal, _session: session };
        stream.show(rest);
        Response::from_parts(head, Body::new(stream))
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

/// The ids of the sessions whose streams are open here. All callers who have not logged in are one principal, which may own an id again: whose
/// stream the server would answer on, nobody could tell.
#[derive(Debug, Default)]
pub(super) struct Streams(Mutex<HashSet<Box<str>>>);

impl Streams {
    /// Whether the session has no other stream.
    fn open(&self, id: &str) -> bool {
        self.lock().insert(id.into())
    }

    fn close(&self, id: &str) {
        self.lock().remove(id);
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<Box<str>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A session that is over when its stream is.
struct Session {
    store: Arc<dyn SessionStore>,
    record: Arc<SessionRecord>,
    streams: Arc<Streams>,
}

impl Drop for Session {
    fn drop(&mut self) {
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
