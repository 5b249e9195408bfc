//! Servers of the HTTP+SSE transport (MCP 2024-11-05): a GET opens a stream, whose first event says where to POST; answers come on the stream.

mod endpoint;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH};
use http::{Response, StatusCode, Uri, request::Parts};
use http_body::{Body as HttpBody, Frame};
use http_body_util::BodyExt as _;
use mcp_http::{Body, BoxError, is_type, text};
use mcp_store::{SessionRecord, SessionStore};
use mcp_wire::sse::{Decoder, Event, KEEP_ALIVE};

use self::endpoint::Base;
use super::{Inner, name_no_session, refusal};
use crate::ClientUrl;
use crate::sessions::{Renewal, Sender, unavailable};

/// The longest event of a stream.
const MAX_EVENT: usize = 16 << 20;
/// How long a server may take to say where to POST.
const ENDPOINT_TIMEOUT: Duration = Duration::from_secs(30);

impl Inner {
    /// Passes a GET on. Where it opens a stream, its session is bound to the sender before the client sees its id.
    pub(super) async fn open_stream(&self, client_url: &ClientUrl, mut parts: Parts) -> Response<Body> {
        name_no_session(&mut parts);
        // What is compressed cannot be read.
        parts.headers.remove(ACCEPT_ENCODING);
        let sender = Sender::of(&parts.extensions);
        let base = Base::of(client_url, &parts.headers);
        let target = parts.uri.clone();
        let outgoing = self.outgoing(parts, Bytes::new());
        let (mut response, from) = match self.upstream.send(&outgoing).await {
            Ok(answer) => answer,
            Err(error) => return refusal(&error, None),
        };
        if !is_type(response.headers(), "text/event-stream") {
            return response;
        }
        response.headers_mut().remove(CONTENT_LENGTH);
        let readable = !response.headers().contains_key(CONTENT_ENCODING);
        let Some(principal) = sender.principal.filter(|_| readable) else { return no_session() };
        let (head, body) = response.into_parts();
        let first = tokio::time::timeout(ENDPOINT_TIMEOUT, first_event(body)).await;
        let Some((event, rest, decoder, body)) = first.ok().flatten() else { return no_session() };
        let Some((id, url)) = endpoint_of(&event, &target, &base) else { return no_session() };
        let mut record = SessionRecord::new(&id, principal);
        record.backend_address = from;
        let record = Arc::new(record);
        match self.sessions.insert(SessionRecord::clone(&record), &sender.client).await {
            Ok(Some(_)) => {}
            Ok(None) => return no_session(),
            Err(error) => {
                tracing::error!(%error, "cannot keep a session");
                return unavailable();
            }
        }
        let session = Session { store: Arc::clone(&self.sessions), record: Arc::clone(&record) };
        let renewal = Renewal::new(Arc::clone(&self.sessions), record);
        let mut stream = Stream { body, decoder, renewal, session, target, base, ended: false };
        let mut begin = Event { data: Some(url), ..event }.encode();
        begin.push_str(&stream.shown(rest));
        Response::from_parts(head, Body::new(Begun { begin: Some(begin), stream }))
    }
}

fn no_session() -> Response<Body> {
    tracing::warn!("the MCP server opened no session of its own on its stream; the stream is closed");
    text(StatusCode::BAD_GATEWAY, "the MCP server opened no session of its own")
}

/// The first event, those that came with it, and the rest of the stream.
async fn first_event(mut body: Body) -> Option<(Event, Vec<Event>, Decoder, Body)> {
    let mut decoder = Decoder::new(MAX_EVENT);
    loop {
        let piece = body.frame().await?.ok()?.into_data().unwrap_or_default();
        let mut events = decoder.push(&piece).ok()?;
        if !events.is_empty() {
            return Some((events.remove(0), events, decoder, body));
        }
    }
}

fn endpoint_of(event: &Event, target: &Uri, base: &Base) -> Option<(String, String)> {
    let data = event.data.as_deref().filter(|_| event.event.as_deref() == Some("endpoint"))?;
    endpoint::read(data, target, base)
}

/// A session that is over when its stream is.
struct Session {
    store: Arc<dyn SessionStore>,
    record: Arc<SessionRecord>,
}

impl Drop for Session {
    fn drop(&mut self) {
        let (store, record) = (Arc::clone(&self.store), Arc::clone(&self.record));
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Err(error) = store.remove(&record.id, &record.principal).await {
                    tracing::warn!(%error, "cannot forget a session whose stream is over");
                }
            });
        }
    }
}

/// The stream behind its first event.
struct Stream {
    body: Body,
    decoder: Decoder,
    renewal: Renewal,
    session: Session,
    target: Uri,
    base: Base,
    ended: bool,
}

impl Stream {
    /// What the client sees of `events`. An endpoint of another session than the stream's ends it.
    fn shown(&mut self, events: Vec<Event>) -> String {
        let mut text = String::new();
        for event in events {
            if event.event.as_deref() != Some("endpoint") {
                text.push_str(&event.encode());
                continue;
            }
            let named = endpoint_of(&event, &self.target, &self.base);
            let Some((_, url)) = named.filter(|(id, _)| *id == *self.session.record.id) else {
                tracing::warn!("the MCP server named another session on an open stream; the stream is closed");
                self.ended = true;
                break;
            };
            text.push_str(&Event { data: Some(url), ..event }.encode());
        }
        text
    }
}

/// A [`Stream`] with what is to be shown first.
struct Begun {
    begin: Option<String>,
    stream: Stream,
}

impl HttpBody for Begun {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(begin) = self.begin.take() {
            return Poll::Ready(Some(Ok(Frame::data(begin.into()))));
        }
        let stream = &mut self.stream;
        loop {
            if stream.ended {
                return Poll::Ready(None);
            }
            let piece = match Pin::new(&mut stream.body).poll_frame(cx) {
                Poll::Pending => {
                    stream.renewal.poll(cx);
                    return Poll::Pending;
                }
                Poll::Ready(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
                Poll::Ready(other) => return Poll::Ready(other),
            };
            let events = match stream.decoder.push(&piece) {
                Ok(events) => events,
                Err(error) => return Poll::Ready(Some(Err(error.into()))),
            };
            let text = stream.shown(events);
            if !text.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(text.into()))));
            }
            // A comment, which keeps the stream open for those between, comes alone. Between events another one harms nobody.
            if piece.starts_with(b":") {
                return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(KEEP_ALIVE.as_bytes())))));
            }
        }
    }
}
