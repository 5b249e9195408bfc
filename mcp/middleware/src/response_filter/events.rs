//! Server-sent events, filtered one by one.

use std::collections::VecDeque;
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
use super::{Judge, MAX_EVENT, NO_ROOM, Refusal, Verdict, Withheld};
use crate::bodies::{LONG, beside};

/// A stream of events, filtered. An event that is complete is passed at once.
pub(super) struct FilteredEvents<J> {
    body: Body,
    judge: Arc<J>,
    withheld: Withheld,
    events: Events,
    /// Keeps the events that are not filtered yet, and what could not be sent yet.
    share: Share,
    /// The number of its bytes that were sent.
    sent: usize,
    ended: bool,
}

/// Finds events in what is kept of a stream.
#[derive(Debug, Default)]
pub(super) struct Events {
    end: EventEnd,
    /// The lengths of those that are complete, with which what is kept begins.
    complete: VecDeque<usize>,
    /// The rest of an event is dropped that was too long or had no room.
    dropping: bool,
    /// Why there has to be an error behind those that are complete.
    error: Option<&'static str>,
}

/// Looks for the empty line that ends an event.
#[derive(Clone, Copy, Debug, Default)]
struct EventEnd {
    /// The number of bytes of the event that were scanned.
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

impl Events {
    /// Takes what came after `kept`, where no event is complete.
    pub(super) fn push(&mut self, kept: &mut BytesMut, mut piece: &[u8]) {
        if self.dropping {
            let end = self.end.find(piece);
            let Some(end) = end else {
                self.end.seen = 0;
                return;
            };
            (self.dropping, piece) = (false, &piece[end..]);
        }
        kept.extend_from_slice(piece);
        let mut start = 0;
        while let Some(length) = self.end.find(&kept[start..]) {
            self.complete.push_back(length);
            start += length;
        }
        if kept.len() - start > MAX_EVENT {
            kept.truncate(start);
            (self.end.seen, self.dropping, self.error) = (0, true, Some("an event is longer than 16 MiB"));
        }
    }

    /// The stream has ended; some clients read what is left as an event.
    pub(super) fn finish(&mut self, kept: &BytesMut) {
        self.complete.extend(Some(kept.len()).filter(|length| *length > 0));
    }

    /// All that was kept is lost: there has to be an error in its place.
    fn lose(&mut self) {
        self.complete.clear();
        self.dropping |= std::mem::take(&mut self.end.seen) > 0;
        self.error = Some(NO_ROOM);
    }

    /// Takes the next event that is complete out of `kept`.
    pub(super) fn next(&mut self, kept: &mut BytesMut) -> Option<Bytes> {
        let event = kept.split_to(self.complete.pop_front()?).freeze();
        if self.complete.is_empty() || event.len() >= LONG {
            // A memory of its own: what is left would keep all that went.
            *kept = BytesMut::from(&kept[..]);
        }
        Some(event)
    }

    fn is_next_long(&self) -> bool {
        self.complete.front().is_some_and(|length| *length >= LONG)
    }
}

impl<J: Judge> FilteredEvents<J> {
    pub(super) fn new(body: Body, judge: Arc<J>, withheld: Withheld, share: Share) -> Self {
        Self { body, judge, withheld, events: Events::default(), share, sent: 0, ended: false }
    }

    pub(super) fn into_body(self) -> Body {
        let pieces = stream::unfold(self, Self::next);
        Body::new(StreamBody::new(pieces.map(|piece| piece.map(Frame::data))))
    }

    /// The kept bytes; none where it had to give way.
    fn take(&mut self) -> Kept {
        self.share.take().unwrap_or_else(|NoRoom| self.lose())
    }

    fn lose(&mut self) -> Kept {
        self.share.clear();
        self.events.lose();
        Kept::default()
    }

    /// The next piece for the client, and the stream behind it. What is held lies in the share while this waits, so
    /// that it can give way.
    async fn next(mut self) -> Option<(Result<Bytes, BoxError>, Self)> {
        loop {
            let mut kept = match self.share.take() {
                Ok(kept) => kept,
                // A part of it was sent, so nothing can take its place.
                Err(NoRoom) if self.sent > 0 => {
                    (self.sent, self.ended, self.events) = (0, true, Events::default());
                    self.share.clear();
                    return Some((Err(NoRoom.into()), self));
                }
                Err(NoRoom) => self.lose(),
            };
            if let Some(piece) = next_piece(&mut kept.ready, &mut self.sent) {
                // Where there is no room, the next round finds out.
                let _ = self.share.put(kept);
                return Some((Ok(piece), self));
            }
            if !self.events.complete.is_empty() || self.events.error.is_some() {
                self = self.filter(kept).await;
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
            let mut kept = self.take();
            match frame {
                // Trailers say nothing to an MCP client.
                Some(Ok(frame)) => self.events.push(&mut kept.unfinished, &frame.into_data().unwrap_or_default()),
                Some(Err(error)) => return Some((Err(error), self)),
                None => self.events.finish(&kept.unfinished),
            }
            // Where there is no room, the next round finds out.
            let _ = self.share.put(kept);
        }
    }

    /// Filters the events that are complete, a long one alone, and leaves in the share what may go.
    async fn filter(mut self, mut kept: Kept) -> Self {
        let mut ready = BytesMut::new();
        while kept.ready.is_empty() && (ready.is_empty() || !self.events.is_next_long()) {
            let Some(event) = self.events.next(&mut kept.unfinished) else { break };
            let length = event.len();
            // It does not give way meanwhile: its memory is in use, even if the client has left.
            let counted = self.share.resize(kept.size() + ready.len() + length);
            if counted.and_then(|()| self.share.arrived()).is_err() {
                (kept, ready) = (self.lose(), BytesMut::new());
                break;
            }
            let (filtered, share) = filter_event(&self.judge, event, &self.withheld, self.share).await;
            self.share = share;
            if length >= LONG {
                kept.ready = filtered;
            } else {
                ready.extend_from_slice(&filtered);
            }
        }
        if kept.ready.is_empty()
            && self.events.complete.is_empty()
            && let Some(reason) = self.events.error.take()
        {
            ready.extend_from_slice(&error_event(Event::default(), &self.withheld, self.withheld.because(reason)));
        }
        if !ready.is_empty() {
            kept.ready = ready.freeze();
        }
        // Where there is no room, the next round finds out.
        let _ = self.share.put(kept);
        self
    }
}

/// An event as its client reads it.
struct Shown {
    /// Without its data.
    event: Event,
    data: Bytes,
    /// Its bytes, where all readers read them alike.
    raw: Option<Bytes>,
}

/// Filters one event with or without the empty line that ends it: what goes in its place.
async fn filter_event<J: Judge>(judge: &Arc<J>, raw: Bytes, withheld: &Withheld, share: Share) -> (Bytes, Share) {
    let (length, refuse) = (raw.len(), withheld.clone());
    let (shown, share) = beside(length, move || (Shown::of(raw, &refuse), share)).await;
    let shown = match shown {
        Ok(shown) => shown,
        Err(instead) => return (instead, share),
    };
    let (verdict, share) = judge.judge(shown.data.clone(), share).await;
    let withheld = withheld.clone();
    beside(length, move || (shown.judged(verdict, &withheld), share)).await
}

impl Shown {
    /// `Err` holds what goes in place of an event that no filter is shown.
    fn of(raw: Bytes, withheld: &Withheld) -> Result<Self, Bytes> {
        let error = |reason| Err(error_event(Event::default(), withheld, withheld.because(reason)));
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
            return if may_have_data(&text) {
                error("a line of an event begins with a byte order mark")
            } else {
                Err(raw)
            };
        }
        let breaks = text.contains(is_other_break);
        let event = if breaks && may_have_data(&text) { without_other_breaks(event) } else { Some(event) };
        let Some(mut event) = event else { return error("some readers end a line of an event where others do not") };
        if text.split(['\r', '\n']).any(|line| is_data(line) && field(line) != "data") {
            return error("some readers find data in a line of an event where others do not");
        }
        let Some(data) = event.data.take() else { return Err(raw) };
        // Readers differ in whether a carriage return alone ends a line.
        let is_clear = !breaks && !has_lone_return(&raw);
        Ok(Self { event, data: data.into(), raw: Some(raw).filter(|_| is_clear) })
    }

    fn judged(self, verdict: Verdict, withheld: &Withheld) -> Bytes {
        let Self { event, data, raw } = self;
        let data = match (verdict, raw) {
            (Verdict::Pass, Some(raw)) => return raw,
            (Verdict::Pass, None) => data,
            (Verdict::Replace(text), _) => text,
            (Verdict::Withhold(refusal), _) => return error_event(event, &withheld.in_place_of(&data), refusal),
        };
        Event { data: String::from_utf8(data.into()).ok(), ..event }.encode().into()
    }
}

/// The byte order mark. Some readers drop it at the start of a stream, and to others it is part of a field's name.
const MARK: char = '\u{FEFF}';

fn has_marked_line(event: &str) -> bool {
    event.split(['\r', '\n']).any(|line| line.starts_with(MARK))
}

/// Whether some reader may find data in `event`.
pub(super) fn may_have_data(event: &str) -> bool {
    event.split(|c| matches!(c, '\r' | '\n') || is_other_break(c)).any(is_data)
}

/// The name of the field in a line.
fn field(line: &str) -> &str {
    line.split(':').next().unwrap_or_default()
}

/// Whether some reader may take the field in a line for `data`: readers differ in whether case and blanks around a name
/// count.
fn is_data(line: &str) -> bool {
    field(line).trim_matches(|c: char| c == MARK || c.is_whitespace()).eq_ignore_ascii_case("data")
}

/// Whether some readers (those that use Python's `splitlines`) end a line at `c`, which is not a line break of
/// server-sent events.
fn is_other_break(c: char) -> bool {
    matches!(c, '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// `event` as every reader reads it once it is encoded; `None` where its data is not JSON, or another field has such a
/// character.
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

fn error_event(event: Event, withheld: &Withheld, refusal: Refusal) -> Bytes {
    let data = String::from_utf8(withheld.body(refusal)).ok();
    Event { data, ..event }.encode().into()
}

fn has_lone_return(raw: &[u8]) -> bool {
    raw.iter().enumerate().any(|(at, byte)| *byte == b'\r' && raw.get(at + 1) != Some(&b'\n'))
}
