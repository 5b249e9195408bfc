//! Server-sent events: one codec for both directions (WHATWG HTML §9.2).

use std::fmt::Write as _;

/// One event. A field that did not occur is `None`; an event with an id and no data is an MCP priming event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// `event:`, the type; absent means `message`.
    pub event: Option<String>,
    /// `id:`.
    pub id: Option<String>,
    /// `retry:` in milliseconds.
    pub retry: Option<u64>,
    /// `data:` lines joined by newlines.
    pub data: Option<String>,
}

/// A comment that keeps a stream open.
pub const KEEP_ALIVE: &str = ": keep-alive\n\n";

impl Event {
    /// An event of type `message` with `data`.
    pub fn message(data: impl Into<String>) -> Self {
        Self { event: Some("message".to_owned()), data: Some(data.into()), ..Self::default() }
    }

    /// The bytes of the event. Line breaks in `data` become several `data:` lines; in other fields they are dropped.
    pub fn encode(&self) -> String {
        let mut out = String::with_capacity(self.data.as_ref().map_or(0, String::len) + 64);
        let single = |text: &str| text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect::<String>();
        for (name, value) in [("event", &self.event), ("id", &self.id)] {
            if let Some(value) = value {
                // Writing to a String cannot fail.
                let _ = writeln!(out, "{name}: {}", single(value));
            }
        }
        if let Some(retry) = self.retry {
            let _ = writeln!(out, "retry: {retry}");
        }
        if let Some(data) = &self.data {
            for line in data.replace("\r\n", "\n").split(['\r', '\n']) {
                let _ = writeln!(out, "data: {line}");
            }
        }
        out.push('\n');
        out
    }

    fn size(&self) -> usize {
        [&self.event, &self.id, &self.data].into_iter().flatten().map(String::len).sum()
    }
}

/// The stream holds a line or an event longer than the decoder was told to accept. End the stream: it cannot be resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("server-sent event is longer than {limit} bytes")]
pub struct TooLong {
    /// The limit in bytes.
    pub limit: usize,
}

/// Takes a stream in pieces of any size and gives its events.
#[derive(Debug)]
pub struct Decoder {
    limit: usize,
    line: Vec<u8>,
    event: Event,
    after_cr: bool,
    at_start: bool,
    broken: bool,
}

impl Decoder {
    /// A decoder that holds at most `limit` bytes of one line, and of one event.
    pub fn new(limit: usize) -> Self {
        Self { limit, line: Vec::new(), event: Event::default(), after_cr: false, at_start: true, broken: false }
    }

    /// Takes the next piece and returns the events that it completes. After an error every further piece is an error.
    pub fn push(&mut self, piece: &[u8]) -> Result<Vec<Event>, TooLong> {
        if self.broken {
            return Err(TooLong { limit: self.limit });
        }
        let mut events = Vec::new();
        let mut rest = piece;
        while !rest.is_empty() {
            if std::mem::take(&mut self.after_cr) && rest.first() == Some(&b'\n') {
                rest = rest.get(1..).unwrap_or_default();
                continue;
            }
            let end = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
            let (line, tail) = rest.split_at(end.unwrap_or(rest.len()));
            if self.line.len() + line.len() + self.event.size() > self.limit {
                self.broken = true;
                return Err(TooLong { limit: self.limit });
            }
            self.line.extend_from_slice(line);
            rest = tail;
            if let Some((&end, tail)) = tail.split_first() {
                self.after_cr = end == b'\r';
                rest = tail;
                events.extend(self.end_line());
            }
        }
        Ok(events)
    }

    fn end_line(&mut self) -> Option<Event> {
        let line = std::mem::take(&mut self.line);
        let mut line: &[u8] = &line;
        if std::mem::take(&mut self.at_start) {
            line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
        }
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            return (event != Event::default()).then_some(event);
        }
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let (field, value) = line.split_at(colon);
        let value = value.strip_prefix(b":").unwrap_or_default();
        let value = String::from_utf8_lossy(value.strip_prefix(b" ").unwrap_or(value));
        match field {
            b"event" => self.event.event = Some(value.into_owned()),
            b"id" if !value.contains('\0') => self.event.id = Some(value.into_owned()),
            b"retry" if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) => {
                self.event.retry = value.parse().ok().or(self.event.retry);
            }
            b"data" => match &mut self.event.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(&value);
                }
                none => *none = Some(value.into_owned()),
            },
            // Comments have an empty field name; unknown fields are ignored.
            _ => {}
        }
        None
    }
}
