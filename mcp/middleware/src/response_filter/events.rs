//! Server-sent events, filtered one by one.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::{Body as HttpBody, Frame};
use mcp_http::{Body, BoxError, Kept, NoRoom, Share};
use mcp_wire::escape_line_breaks;
use mcp_wire::sse::{Decoder, Event};
use serde::de::IgnoredAny;

use super::held::next_piece;
use super::{MAX_EVENT, NO_ROOM, ResponseFilter, Verdict, Withheld};

/// A stream of events, filtered. An event that is complete is passed at once.
pub(super) struct FilteredEvents<F> {
    body: Body,
    events: Events<F>,
    /// Keeps the event that is not complete, and what could not be sent yet.
    share: Share,
    /// How much of the latter was sent.
    sent: usize,
    ended: bool,
}

/// Filters events one by one.
pub(super) struct Events<F> {
    filter: Arc<F>,
    withheld: Withheld,
    end: EventEnd,
    /// The rest of an event that was too long is dropped.
    dropping: bool,
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

impl<F: ResponseFilter> Events<F> {
    pub(super) fn new(filter: Arc<F>, withheld: Withheld) -> Self {
        Self { filter, withheld, end: EventEnd::default(), dropping: false }
    }

    /// Takes what came after `event`, which is not complete, leaves there what is not complete now, and returns what may go.
    pub(super) fn take(&mut self, event: &mut BytesMut, piece: &[u8]) -> Bytes {
        event.extend_from_slice(piece);
        let (mut out, before) = (BytesMut::new(), event.len());
        while let Some(end) = self.end.find(event) {
            let event = event.split_to(end).freeze();
            if !std::mem::take(&mut self.dropping) {
                out.extend_from_slice(&filter_event(&*self.filter, event, &self.withheld));
            }
        }
        if event.len() > MAX_EVENT {
            out.extend_from_slice(&self.drop_event("an event is longer than 16 MiB"));
        }
        if self.dropping {
            event.clear();
            self.end.seen = 0;
        }
        if event.len() < before {
            // A memory of its own: what is left would keep all that went.
            *event = BytesMut::from(&event[..]);
        }
        out.freeze()
    }

    /// The stream has ended; some clients read what is left as an event.
    pub(super) fn finish(&mut self, event: &mut BytesMut) -> Bytes {
        let rest = std::mem::take(event).freeze();
        if self.dropping || rest.is_empty() { Bytes::new() } else { filter_event(&*self.filter, rest, &self.withheld) }
    }

    /// What goes in place of the event that is not complete, the rest of which is dropped.
    fn drop_event(&mut self, reason: &str) -> Bytes {
        let unfinished = std::mem::take(&mut self.end.seen) > 0;
        if self.dropping {
            return Bytes::new();
        }
        self.dropping = unfinished;
        error_event(Event::default(), &self.withheld, reason)
    }
}

impl<F: ResponseFilter> FilteredEvents<F> {
    pub(super) fn new(body: Body, filter: Arc<F>, withheld: Withheld, share: Share) -> Self {
        Self { body, events: Events::new(filter, withheld), share, sent: 0, ended: false }
    }

    /// What is held could not be kept.
    fn without_room(&mut self) -> Kept {
        self.share.clear();
        Kept { ready: self.events.drop_event(NO_ROOM), unfinished: BytesMut::new() }
    }

    fn next(&mut self, cx: &mut Context<'_>, kept: &mut Kept) -> Poll<Option<Result<Bytes, BoxError>>> {
        loop {
            if let Some(piece) = next_piece(&mut kept.ready, &mut self.sent) {
                return Poll::Ready(Some(Ok(piece)));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else { return Poll::Pending };
            self.ended = !matches!(frame, Some(Ok(_)));
            kept.ready = match frame {
                // Trailers say nothing to an MCP client.
                Some(Ok(frame)) => {
                    let piece = frame.into_data().unwrap_or_default();
                    self.events.take(&mut kept.unfinished, &piece)
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => self.events.finish(&mut kept.unfinished),
            };
            if self.share.resize(kept.size()).is_err() {
                *kept = self.without_room();
            }
        }
    }
}

impl<F: ResponseFilter> HttpBody for FilteredEvents<F> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let mut kept = match this.share.take() {
            Ok(kept) => kept,
            // A part of it was sent, so nothing can take its place.
            Err(NoRoom) if this.sent > 0 => {
                (this.sent, this.ended) = (0, true);
                this.share.clear();
                return Poll::Ready(Some(Err(NoRoom.into())));
            }
            Err(NoRoom) => this.without_room(),
        };
        let next = this.next(cx, &mut kept);
        if this.share.put(kept).is_err() {
            // To be told at once.
            cx.waker().wake_by_ref();
        }
        next.map(|piece| piece.map(|piece| piece.map(Frame::data)))
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
        Verdict::Withhold(reason) => {
            let withheld = withheld.in_place_of(data);
            error_event(event, &withheld, reason)
        }
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
