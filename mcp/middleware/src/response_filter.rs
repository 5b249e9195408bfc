//! Filters the messages in answers, and fails closed (toolhive-0.63 §4.4).
//!
//! Whatever a client could read as a message is shown to the [`ResponseFilter`]: a JSON answer as a whole, a stream of server-sent events
//! event by event, each as soon as it is complete. What cannot be shown to it as the client will read it (a content coding, another
//! character set, more bytes than are held) is withheld.
//!
//! What is held counts in the memory for answers until the connection has taken it, and gives way there: an answer that waits for its
//! client must not stop those of others.

mod content;
mod events;
mod held;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_LENGTH, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body::Body as _;
use mcp_http::{Body, ReadError, Share, json, read};
use mcp_wire::{ErrorBody, OwnedMessage, code};
use serde::Deserialize;
use serde_json::value::RawValue;

use self::content::Content;
use self::events::{FilteredEvents, filter_events};
use self::held::held;
use crate::bodies::{MAX_ANSWER, beside};
use crate::chain::Next;

/// The longest event that is held until it is complete, in bytes.
const MAX_EVENT: usize = 16 << 20;
/// How long the rest of any other body may take once its head is there.
const REST: Duration = Duration::from_mins(2);

/// What a middleware does to the messages in answers.
pub trait ResponseFilter: Send + Sync {
    /// Judges one text: the JSON of an answer, or the data of an event. It need not be valid JSON.
    fn filter(&self, text: &str) -> Verdict;
}

/// What becomes of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is passed on, byte for byte where all readers end its lines alike.
    Pass,
    /// This is passed on in its place.
    Replace(String),
    /// The client gets an internal error in its place. Why is for the log.
    Withhold(&'static str),
}

/// Runs the rest of the chain and filters its answer for the middleware of type `kind`.
///
/// The request goes on without the client's `Accept-Encoding`, so that the answer can be read. An answer that is withheld as a whole is a
/// [denial](crate::Denial); what is withheld of a stream shows only after this has returned, and is in the log alone.
pub async fn filter_response<F>(
    kind: &'static str,
    filter: &Arc<F>,
    mut request: Request<Body>,
    next: Next<'_>,
) -> Response<Body>
where
    F: ResponseFilter + 'static,
{
    let context = next.context();
    request.headers_mut().remove(ACCEPT_ENCODING);
    let response = next.call(request).await;
    let id = context.message().as_ref().and_then(OwnedMessage::id).map(|id| id.raw().into());
    let withheld = Withheld { id };
    filtered(filter, response, &withheld, context.answer()).await.unwrap_or_else(|reason| {
        context.deny(kind, reason);
        json(StatusCode::INTERNAL_SERVER_ERROR, withheld.body(reason))
    })
}

/// What a client is told in place of a message that is withheld.
#[derive(Clone, Debug)]
struct Withheld {
    /// The id of the request that opened the answer, as JSON text.
    id: Option<Arc<str>>,
}

impl Withheld {
    fn body(&self, reason: &str) -> Vec<u8> {
        tracing::warn!(reason, "withheld an answer of the MCP server that cannot be filtered");
        ErrorBody::new(code::INTERNAL, "internal error").raw_id(self.id.as_deref()).encode()
    }

    /// In place of `message`. On a stream that no request with an id has opened, that is the answer to another one, whose sender waits for it there.
    fn in_place_of(&self, message: &str) -> Self {
        #[derive(Deserialize)]
        struct Answer<'a> {
            #[serde(borrow)]
            id: &'a RawValue,
        }
        let answered = || {
            let Answer { id } = serde_json::from_str(message).ok()?;
            let id = id.get();
            id.starts_with(|c: char| c == '"' || c == '-' || c.is_ascii_digit()).then(|| id.into())
        };
        Self { id: self.id.clone().or_else(answered) }
    }
}

/// The answer as the client may see it; `Err` says why it is withheld.
async fn filtered<F>(
    filter: &Arc<F>,
    response: Response<Body>,
    withheld: &Withheld,
    mut share: Share,
) -> Result<Response<Body>, &'static str>
where
    F: ResponseFilter + 'static,
{
    if response.body().is_end_stream() {
        return Ok(response);
    }
    match Content::of(&response) {
        Content::Unread => Ok(response),
        Content::Unreadable(reason) => Err(reason),
        Content::Events => {
            let (mut head, body) = response.into_parts();
            head.headers.remove(CONTENT_LENGTH);
            let events = FilteredEvents::new(body, Arc::clone(filter), withheld.clone(), share);
            Ok(Response::from_parts(head, events.into_body()))
        }
        content @ (Content::Json | Content::Unknown) => {
            let (mut head, body) = response.into_parts();
            let body = read(body, MAX_ANSWER, REST, &mut share).await.map_err(|error| why(&error))?;
            let (length, filter, withheld) = (body.len(), Arc::clone(filter), withheld.clone());
            let may_be_events = content == Content::Unknown;
            // The share goes along: the body takes its memory until then, even if the client has left.
            let filtering = move || whole(&*filter, &body, may_be_events, &withheld).map(|body| (body, share));
            let (body, share) = beside(length, filtering).await?;
            head.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
            Ok(Response::from_parts(head, held(body, share).map_err(|_| NO_ROOM)?))
        }
    }
}

/// The client may not be told to ask again, as by a 503: the MCP server has acted on its request.
const NO_ROOM: &str = "other answers wait for their clients, and there is no room for it";

fn why(error: &ReadError) -> &'static str {
    match error {
        ReadError::TooLong => "it is longer than 100 MiB",
        ReadError::TooSlow => "the rest of it did not come within two minutes",
        ReadError::NoRoom => NO_ROOM,
        _ => "it broke off",
    }
}

/// Filters a whole body, as JSON and, where it `may_be_events`, as a stream that has ended; `Err` says why it is withheld.
fn whole(
    filter: &impl ResponseFilter,
    body: &Bytes,
    may_be_events: bool,
    withheld: &Withheld,
) -> Result<Bytes, &'static str> {
    // In UTF-16, which some clients detect, every other byte of a message is zero.
    let text = std::str::from_utf8(body).ok().filter(|text| !text.contains('\0')).ok_or("it is not UTF-8")?;
    match filter.filter(text.strip_prefix('\u{FEFF}').unwrap_or(text)) {
        Verdict::Pass if may_be_events => Ok(filter_events(filter, body, withheld)),
        Verdict::Pass => Ok(body.clone()),
        Verdict::Replace(text) => Ok(text.into()),
        Verdict::Withhold(reason) => Err(reason),
    }
}

#[cfg(test)]
mod tests;
