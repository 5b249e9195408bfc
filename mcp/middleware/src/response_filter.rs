//! Filters the lists in answers of the MCP server, and fails closed (toolhive-0.63 §4.4).
//!
//! Whatever a client could read as a message is shown to the [`Filters`]: a JSON answer as a whole, a stream of
//! server-sent events event by event, each as soon as it is complete. What cannot be shown to them as the client will
//! read it (a content coding, another character set, more bytes than are held) is withheld.
//!
//! What is held counts in the memory for answers until the connection has taken it, and gives way there: an answer that
//! waits for its client must not stop those of others.

mod content;
mod events;
mod filters;
mod held;
mod looked;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, HeaderValue};
use http::{Response, StatusCode};
use http_body::Body as _;
use mcp_http::{Body, NoRoom, ReadError, Share, json, read};
use mcp_wire::{ErrorBody, code};
use serde::Deserialize;
use serde_json::value::RawValue;

use self::content::Content;
use self::events::{FilteredEvents, may_have_data};
pub(crate) use self::filters::Filters;
pub use self::filters::ListFilter;
use self::held::held;
pub(crate) use self::looked::looked_at;
pub use self::looked::{Look, Missed};
use crate::bodies::{MAX_ANSWER, beside};

/// The longest event that is held until it is complete, in bytes.
const MAX_EVENT: usize = 16 << 20;
/// The time that the rest of any other body may take after its head.
const REST: Duration = Duration::from_mins(2);

/// Judges texts: each is the JSON of an answer or the data of an event, and need not be valid JSON.
pub(crate) trait Judge: Send + Sync + 'static {
    /// Judges one. Work on it takes `share` along: the text takes its memory until then, even if the client has left.
    fn judge(self: &Arc<Self>, text: Bytes, share: Share) -> impl Future<Output = (Verdict, Share)> + Send;
}

/// The outcome for a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is passed on, byte for byte where all readers end its lines alike.
    Pass,
    /// This is passed on in its place, which is UTF-8.
    Replace(Bytes),
    /// The client gets an internal error in its place.
    Withhold(Refusal),
}

/// A text that is withheld, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The type of the middleware whose filter withholds it.
    pub(crate) middleware: &'static str,
    /// Why.
    pub(crate) reason: &'static str,
}

/// Is told why a message is withheld, in place of the log.
type Told = Arc<dyn Fn(&'static str) + Send + Sync>;

/// The answer to a client in place of a message that is withheld.
#[derive(Clone)]
struct Withheld {
    /// The id of the request that opened the answer, as JSON text.
    id: Option<Arc<str>>,
    /// The type of the middleware in whose name a message is withheld that cannot be shown to its filter.
    middleware: &'static str,
    /// Is told of it; the log where there is none.
    told: Option<Told>,
}

impl Withheld {
    fn because(&self, reason: &'static str) -> Refusal {
        Refusal { middleware: self.middleware, reason }
    }

    fn body(&self, Refusal { middleware, reason }: Refusal) -> Vec<u8> {
        match &self.told {
            Some(told) => told(reason),
            None => {
                tracing::warn!(middleware, reason, "withheld an answer of the MCP server that cannot be filtered");
            }
        }
        ErrorBody::new(code::INTERNAL, "internal error").raw_id(self.id.as_deref()).encode()
    }

    /// In place of `message`. On a stream that no request with an id has opened, that is the answer to another one,
    /// whose sender waits for it there.
    fn in_place_of(&self, message: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct Answer<'a> {
            #[serde(borrow)]
            id: &'a RawValue,
        }
        let answered = || {
            let Answer { id } = serde_json::from_slice(message).ok()?;
            let id = id.get();
            id.starts_with(|c: char| c == '"' || c == '-' || c.is_ascii_digit()).then(|| id.into())
        };
        Self { id: self.id.clone().or_else(answered), ..self.clone() }
    }
}

/// Filters an answer of the MCP server to the request `id`; `share` is for what is held of it, and `told` hears of each text that is withheld.
///
/// What is withheld of a stream shows only later, and is in the log alone. An answer that is withheld as a whole is a
/// refusal.
pub(crate) async fn filter_response(
    filters: Filters,
    response: Response<Body>,
    id: Option<Arc<str>>,
    share: Share,
    told: Option<Told>,
) -> (Response<Body>, Option<Refusal>) {
    let withheld = Withheld { id, middleware: filters.innermost(), told };
    let filters = Arc::new(filters);
    match filtered(&filters, response, &withheld, share).await {
        Ok(mut response) => {
            if filters.is_private() && response.status().is_success() {
                response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
            }
            (response, None)
        }
        Err(refusal) => (json(StatusCode::INTERNAL_SERVER_ERROR, withheld.body(refusal)), Some(refusal)),
    }
}

/// The answer as the client may see it.
async fn filtered<J: Judge>(
    judge: &Arc<J>,
    response: Response<Body>,
    withheld: &Withheld,
    mut share: Share,
) -> Result<Response<Body>, Refusal> {
    if response.body().is_end_stream() {
        return Ok(response);
    }
    let content = match Content::of(&response) {
        Content::Unread => return Ok(response),
        Content::Unreadable(reason) => return Err(withheld.because(reason)),
        content => content,
    };
    let (mut head, body) = response.into_parts();
    head.headers.remove(CONTENT_LENGTH);
    let events = |body, share| FilteredEvents::new(body, Arc::clone(judge), withheld.clone(), share).into_body();
    if content == Content::Events {
        return Ok(Response::from_parts(head, events(body, share)));
    }
    let body = read(body, MAX_ANSWER, REST, &mut share).await.map_err(|error| withheld.because(why(&error)))?;
    let (whole, is_unknown) = (body.clone(), content == Content::Unknown);
    // The share goes along: the body takes its memory until then, even if the client has left.
    let (shown, share) = beside(body.len(), move || (Shown::of(&whole, is_unknown), share)).await;
    let Shown { text, is_events } = shown.map_err(|reason| withheld.because(reason))?;
    let (verdict, share) = judge.judge(text, share).await;
    let no_room = |NoRoom| withheld.because(NO_ROOM);
    let body = match verdict {
        Verdict::Pass if is_events => {
            let another = share.another();
            let body = held(body, share).map_err(no_room)?;
            return Ok(Response::from_parts(head, events(body, another)));
        }
        Verdict::Pass => body,
        Verdict::Replace(text) => text,
        Verdict::Withhold(refusal) => return Err(refusal),
    };
    head.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    Ok(Response::from_parts(head, held(body, share).map_err(no_room)?))
}

/// The client may not be told to ask again, as by a 503: the MCP server has acted on its request.
const NO_ROOM: &str = "other answers wait for their clients, and there is no room for it";

/// The answer has no end.
const BROKEN: &str = "it broke off";

fn why(error: &ReadError) -> &'static str {
    match error {
        ReadError::TooLong => "it is longer than 100 MiB",
        ReadError::TooSlow => "the rest of it did not come within two minutes",
        ReadError::NoRoom => NO_ROOM,
        _ => BROKEN,
    }
}

/// A whole body as its client reads it.
struct Shown {
    text: Bytes,
    /// Whether the client may find events with data in it.
    is_events: bool,
}

impl Shown {
    fn of(body: &Bytes, is_unknown: bool) -> Result<Self, &'static str> {
        // In UTF-16, which some clients detect, every other byte of a message is zero.
        let text = std::str::from_utf8(body).ok().filter(|text| !text.contains('\0')).ok_or("it is not UTF-8")?;
        let mark = if text.starts_with('\u{FEFF}') { '\u{FEFF}'.len_utf8() } else { 0 };
        Ok(Self { text: body.slice(mark..), is_events: is_unknown && may_have_data(text) })
    }
}

#[cfg(test)]
mod tests;
