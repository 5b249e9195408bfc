//! Server-sent events, filtered one by one.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::{Body as HttpBody, Frame};
use mcp_http::{Body, BoxError};
use mcp_wire::escape_line_breaks;
use mcp_wire::sse::{Decoder, Event};
use serde::de::IgnoredAny;

use super::{MAX_EVENT, ResponseFilter, Verdict, Withheld};

/// A stream of events, filtered. An event that is complete is passed at once.
pub(super) struct FilteredEvents<F> {
    body: Body,
    filter: Arc<F>,
    withheld: Withheld,
    /// What came of the event that is not complete yet.
    pub(super) event: BytesMut,
    end: EventEnd,
    /// The rest of an event that is too long is dropped.
    dropping: bool,
    ended: bool,
}

/// Looks for the empty line that ends an event.
#[derive(Debug, Default)]
struct EventEnd {
    /// How much of the event was looked at.
    seen: usize,
    /// Whether the line has any bytes so far.
    in_line: bool,
    after_cr: bool,
}

impl EventEnd {
    /// Where the event that `bytes` begins with ends, past the line break of its empty line.
    fn find(&mut self, bytes: &[u8]) -> Option<usize> {
        while let Some(&byte) = bytes.get(self.seen) {
            self.seen += 1;
            let pair = std::mem::replace(&mut self.after_cr, byte == b'\r') && byte == b'\n';
            match byte {
                // The second half of a line break.
                b'\n' if pair => {}
                b'\r' | b'\n' => {
                    if !std::mem::take(&mut self.in_line) {
                        // The other half of its line break, where it is there already.
                        let half = byte == b'\r' && bytes.get(self.seen) == Some(&b'\n');
                        let end = self.seen + usize::from(half);
                        *self = Self { after_cr: byte == b'\r' && !half, ..Self::default() };
                        return Some(end);
                    }
                }
                _ => self.in_line = true,
            }
        }
        None
    }
}

impl<F: ResponseFilter> FilteredEvents<F> {
    pub(super) fn new(body: Body, filter: Arc<F>, withheld: Withheld) -> Self {
        let (event, end) = (BytesMut::new(), EventEnd::default());
        Self { body, filter, withheld, event, end, dropping: false, ended: false }
    }

    /// Takes what came and returns what may go.
    pub(super) fn take(&mut self, piece: &[u8]) -> Bytes {
        self.event.extend_from_slice(piece);
        let mut out = BytesMut::new();
        while let Some(end) = self.end.find(&self.event) {
            let event = self.event.split_to(end).freeze();
            if !std::mem::take(&mut self.dropping) {
                out.extend_from_slice(&filter_event(&*self.filter, event, &self.withheld));
            }
        }
        if self.event.len() > MAX_EVENT {
            if !std::mem::replace(&mut self.dropping, true) {
                out.extend_from_slice(&error_event(Event::default(), &self.withheld, "an event is longer than 16 MiB"));
            }
            self.event.clear();
            self.end.seen = 0;
        }
        out.freeze()
    }

    /// The stream has ended; some clients read what is left as an event.
    pub(super) fn finish(&mut self) -> Bytes {
        let rest = self.event.split().freeze();
        if self.dropping || rest.is_empty() { Bytes::new() } else { filter_event(&*self.filter, rest, &self.withheld) }
    }
}

impl<F: ResponseFilter> HttpBody for FilteredEvents<F> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        while !this.ended {
            match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                // Trailers say nothing to an MCP client.
                Some(Ok(frame)) => {
                    let out = frame.into_data().map_or_else(|_| Bytes::new(), |piece| this.take(&piece));
                    if !out.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::data(out))));
                    }
                }
                Some(Err(error)) => {
                    this.ended = true;
                    return Poll::Ready(Some(Err(error)));
                }
                None => {
                    this.ended = true;
                    let out = this.finish();
                    if !out.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::data(out))));
                    }
                }
            }
        }
        Poll::Ready(None)
    }
}

/// Filters a stream that has ended.
pub(super) fn filter_events(filter: &impl ResponseFilter, body: &Bytes, withheld: &Withheld) -> Bytes {
    let (mut end, mut rest, mut out) = (EventEnd::default(), body.clone(), BytesMut::new());
    while let Some(at) = end.find(&rest) {
        out.extend_from_slice(&filter_event(filter, rest.split_to(at), withheld));
    }
    if !rest.is_empty() {
        out.extend_from_slice(&filter_event(filter, rest, withheld));
    }
    out.freeze()
}

/// What goes in place of `raw`, one event with or without the empty line that ends it.
fn filter_event(filter: &impl ResponseFilter, raw: Bytes, withheld: &Withheld) -> Bytes {
    let error = |reason| error_event(Event::default(), withheld, reason);
    // The line break is added where the stream broke off; one too many is not an event.
    let mut decoder = Decoder::new(usize::MAX);
    let events = decoder.push(&raw).and_then(|mut events| {
        events.extend(decoder.push(b"\n\n")?);
        Ok(events)
    });
    let (event, None) = (match events {
        Ok(events) => {
            let mut events = events.into_iter();
            let first = events.next().unwrap_or_default();
            (first, events.next())
        }
        Err(_) => return error("an event cannot be decoded"),
    }) else {
        return error("an event can be read as two");
    };
    let text = String::from_utf8_lossy(&raw);
    if has_marked_line(&text) {
        return if may_have_data(&text) { error("a line of an event begins with a byte order mark") } else { raw };
    }
    let breaks = text.contains(is_other_break);
    let event = if breaks && may_have_data(&text) { without_other_breaks(event) } else { Some(event) };
    let Some(event) = event else { return error("some readers end a line of an event where others do not") };
    let Some(data) = &event.data else { return raw };
    match filter.filter(data) {
        // Readers differ in whether a carriage return alone ends a line.
        Verdict::Pass if breaks || has_lone_return(&raw) => event.encode().into(),
        Verdict::Pass => raw,
        Verdict::Replace(data) => Event { data: Some(data), ..event }.encode().into(),
        Verdict::Withhold(reason) => error_event(event, withheld, reason),
    }
}

/// The byte order mark. Some readers drop it at the start of a stream, and to others it is part of a field's name.
const MARK: char = '\u{FEFF}';

fn has_marked_line(event: &str) -> bool {
    event.split(['\r', '\n']).any(|line| line.starts_with(MARK))
}

/// Whether some reader may find data in `event`.
fn may_have_data(event: &str) -> bool {
    let is_break = |c| matches!(c, '\r' | '\n') || is_other_break(c);
    event.split(is_break).any(|line| line.trim_start_matches(MARK).starts_with("data"))
}

/// Whether some readers (those that use Python's `splitlines`) end a line at `c`, which is not a line break of server-sent events.
fn is_other_break(c: char) -> bool {
    matches!(c, '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// `event` as every reader reads it once it is encoded; `None` where its data is not JSON, or another field has such a character.
fn without_other_breaks(event: Event) -> Option<Event> {
    let data = event.data.as_deref()?;
    serde_json::from_str::<IgnoredAny>(data).ok()?;
    if [&event.id, &event.event].into_iter().flatten().any(|field| field.contains(is_other_break)) {
        return None;
    }
    // The other characters are not JSON unescaped, so that these are all.
    let data = String::from_utf8(escape_line_breaks(data.as_bytes().to_vec())).ok();
    data.map(|data| Event { data: Some(data), ..event })
}

fn error_event(event: Event, withheld: &Withheld, reason: &str) -> Bytes {
    let data = String::from_utf8(withheld.body(reason)).ok();
    Event { data, ..event }.encode().into()
}

fn has_lone_return(raw: &[u8]) -> bool {
    raw.iter().enumerate().any(|(at, byte)| *byte == b'\r' && raw.get(at + 1) != Some(&b'\n'))
}
