//! Server-sent events, filtered one by one.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::{StreamExt as _, stream};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use mcp_http::{Body, BoxError, Kept, NoRoom, Share};
use mcp_wire::escape_line_breaks;
use mcp_wire::sse::{Decoder, Event};
use serde::de::IgnoredAny;

use super::held::next_piece;
use super::{MAX_EVENT, NO_ROOM, ResponseFilter, Verdict, Withheld};
use crate::bodies::{LONG, beside};

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
    /// A long event that is complete, and has to be filtered next.
    long: Option<Long>,
}

/// A long event at the beginning of what is kept.
struct Long {
    /// Where it ends.
    end: usize,
    /// Whether an event that is not complete is kept behind it.
    is_followed: bool,
}

/// Looks for the empty line that ends an event.
#[derive(Clone, Copy, Debug, Default)]
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

    /// Whether an event begins in `bytes` that does not end there.
    fn leaves_part(mut self, mut bytes: &[u8]) -> bool {
        while let Some(end) = self.find(bytes) {
            bytes = bytes.get(end..).unwrap_or_default();
        }
        self.seen > 0
    }
}

impl<F: ResponseFilter> Events<F> {
    pub(super) fn new(filter: Arc<F>, withheld: Withheld) -> Self {
        Self { filter, withheld, end: EventEnd::default(), dropping: false, long: None }
    }

    /// Takes what came after `event`, which is not complete, leaves there what is not complete now, and returns what may go. A long event stays
    /// there with all behind it: [`take_long`](Self::take_long) has to follow.
    pub(super) fn take(&mut self, event: &mut BytesMut, piece: &[u8]) -> Bytes {
        event.extend_from_slice(piece);
        let (mut out, before) = (BytesMut::new(), event.len());
        while let Some(end) = self.end.find(event) {
            if end >= LONG && !self.dropping {
                self.long = Some(Long { end, is_followed: self.end.leaves_part(&event[end..]) });
                break;
            }
            let event = event.split_to(end).freeze();
            if !std::mem::take(&mut self.dropping) {
                out.extend_from_slice(&filter_event(&*self.filter, event, &self.withheld));
            }
        }
        if self.long.is_none() && event.len() > MAX_EVENT {
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
        if event.len() >= LONG && !self.dropping {
            self.long = Some(Long { end: event.len(), is_followed: false });
            return Bytes::new();
        }
        let rest = std::mem::take(event).freeze();
        if self.dropping || rest.is_empty() { Bytes::new() } else { filter_event(&*self.filter, rest, &self.withheld) }
    }

    /// The long event that [`take`](Self::take) or [`finish`](Self::finish) left in `kept`.
    fn take_long(&mut self, kept: &mut BytesMut) -> Option<(Bytes, Long)> {
        let long = self.long.take()?;
        let event = kept.split_to(long.end).freeze();
        *kept = BytesMut::from(&kept[..]);
        Some((event, long))
    }

    /// The event in place of the one that is not complete, the rest of which is dropped, or of a long one.
    fn drop_event(&mut self, reason: &str) -> Bytes {
        let seen = std::mem::take(&mut self.end.seen) > 0;
        let unfinished = self.long.take().map_or(seen, |long| long.is_followed);
        if self.dropping {
            return Bytes::new();
        }
        self.dropping = unfinished;
        error_event(Event::default(), &self.withheld, reason)
    }
}

impl<F: ResponseFilter + 'static> FilteredEvents<F> {
    pub(super) fn new(body: Body, filter: Arc<F>, withheld: Withheld, share: Share) -> Self {
        Self { body, events: Events::new(filter, withheld), share, sent: 0, ended: false }
    }

    pub(super) fn into_body(self) -> Body {
        let pieces = stream::unfold(self, Self::next);
        Body::new(StreamBody::new(pieces.map(|piece| piece.map(Frame::data))))
    }

    /// What is held could not be kept.
    fn without_room(&mut self) -> Kept {
        self.share.clear();
        Kept { ready: self.events.drop_event(NO_ROOM), unfinished: BytesMut::new() }
    }

    /// The next piece for the client, and the stream behind it. What is held lies in the share while this waits, so that it can give way.
    async fn next(mut self) -> Option<(Result<Bytes, BoxError>, Self)> {
        loop {
            let mut kept = match self.share.take() {
                Ok(kept) => kept,
                // A part of it was sent, so nothing can take its place.
                Err(NoRoom) if self.sent > 0 => {
                    (self.sent, self.ended) = (0, true);
                    self.share.clear();
                    return Some((Err(NoRoom.into()), self));
                }
                Err(NoRoom) => self.without_room(),
            };
            if let Some(piece) = next_piece(&mut kept.ready, &mut self.sent) {
                // Where there is no room, the next round finds out.
                let _ = self.share.put(kept);
                return Some((Ok(piece), self));
            }
            if let Some((event, long)) = self.events.take_long(&mut kept.unfinished) {
                self = self.filter_long(event, long, kept).await;
                continue;
            }
            if self.ended {
                return None;
            }
            if self.share.put(kept).is_err() {
                continue;
            }
            let frame = tokio::select! {
                biased;
                () = self.share.ended() => continue,
                frame = self.body.frame() => frame,
            };
            self.ended = !matches!(frame, Some(Ok(_)));
            let mut kept = self.share.take().unwrap_or_else(|NoRoom| self.without_room());
            let ready = match frame {
                // Trailers say nothing to an MCP client.
                Some(Ok(frame)) => self.events.take(&mut kept.unfinished, &frame.into_data().unwrap_or_default()),
                Some(Err(error)) => return Some((Err(error), self)),
                None => self.events.finish(&mut kept.unfinished),
            };
            kept.ready = joined(kept.ready, ready);
            // Where there is no room, the next round finds out.
            let _ = self.share.put(kept);
        }
    }

    /// Filters a long event beside the thread that serves other clients, and leaves in the share what may go.
    async fn filter_long(mut self, event: Bytes, long: Long, mut kept: Kept) -> Self {
        // It does not give way meanwhile: its memory is in use, even if the client has left.
        let counted = self.share.resize(kept.size() + event.len());
        if counted.and_then(|()| self.share.arrived()).is_err() {
            self.events.long = Some(long);
            kept = self.without_room();
        } else {
            let (share, filter, withheld) = (self.share, Arc::clone(&self.events.filter), self.events.withheld.clone());
            let length = event.len();
            let filtering = move || (share, filter_event(&*filter, event, &withheld));
            let (share, ready) = beside(length, filtering).await;
            self.share = share;
            kept.ready = joined(ready, self.events.take(&mut kept.unfinished, &[]));
        }
        // Where there is no room, the next round finds out.
        let _ = self.share.put(kept);
        self
    }
}

fn joined(first: Bytes, second: Bytes) -> Bytes {
    match (first.is_empty(), second.is_empty()) {
        (true, _) => second,
        (_, true) => first,
        _ => [first, second].concat().into(),
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
