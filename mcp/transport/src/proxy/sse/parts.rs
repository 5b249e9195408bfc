//! A stream, taken apart as it comes: `endpoint` events are held until they are whole, all others pass without being kept.

use mcp_wire::sse::{Decoder, Event};

/// The most that is held of a stream: an `endpoint` event, or a line that names the type of an event.
const MAX_HELD: usize = 8 << 10;

/// What came of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Bytes of other events, as they came.
    Pass(Vec<u8>),
    /// An `endpoint` event.
    Endpoint(Event),
    /// Nothing more can be shown of the stream, and why.
    Broken(&'static str),
}

/// Takes a stream in pieces of any size. Its first event has to be an `endpoint`.
#[derive(Debug)]
pub(super) struct Parts {
    /// The event that is held, or the beginning of a line that may make it one.
    held: Vec<u8>,
    event: State,
    /// Whether the rest of the line passes.
    passes: bool,
    after_cr: bool,
}

/// What becomes of the event that comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It is held. The first one is, whatever it is.
    Held,
    /// It passes, unless it turns out to be an `endpoint`.
    Open,
    /// The same, and some of its data have passed: it must not become an `endpoint` any more.
    HasData,
    /// It was the last of which anything is shown.
    Broken,
}

impl Parts {
    pub(super) fn new() -> Self {
        Self { held: Vec::new(), event: State::Held, passes: false, after_cr: false }
    }

    /// Takes the next piece and returns what of the stream can be shown now.
    pub(super) fn push(&mut self, piece: &[u8]) -> Vec<Part> {
        let (mut parts, mut passed, mut rest) = (Vec::new(), Vec::new(), piece);
        while !rest.is_empty() && self.event != State::Broken {
            let end = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
            let (text, tail) = rest.split_at(end.unwrap_or(rest.len()));
            let second_half = std::mem::take(&mut self.after_cr) && text.is_empty() && tail.starts_with(b"\n");
            self.take(text, &mut passed);
            rest = tail;
            let mut part = None;
            if let Some((&end, tail)) = tail.split_first() {
                rest = tail;
                if second_half {
                    // Of one line break, the first of which may have ended the event that was held.
                    let to = if self.held.is_empty() { &mut passed } else { &mut self.held };
                    to.push(end);
                } else {
                    self.after_cr = end == b'\r';
                    part = self.end_line(end, &mut passed);
                }
            }
            if self.held.len() > MAX_HELD {
                part = Some(Part::Broken("an endpoint event, or the type of an event, is longer than 8 KiB"));
            }
            if let Some(part) = part {
                if matches!(part, Part::Broken(_)) {
                    self.event = State::Broken;
                }
                parts.extend(pass(&mut passed));
                parts.push(part);
            }
        }
        parts.extend(pass(&mut passed));
        parts
    }

    /// Takes a part of a line without its end.
    fn take(&mut self, text: &[u8], passed: &mut Vec<u8>) {
        if self.passes {
            passed.extend_from_slice(text);
            return;
        }
        self.held.extend_from_slice(text);
        if self.event != State::Held && !may_name_type(&self.held) {
            self.passes = true;
            if self.held.trim_ascii_start().starts_with(b"d") {
                self.event = State::HasData;
            }
            passed.append(&mut self.held);
        }
    }

    fn end_line(&mut self, end: u8, passed: &mut Vec<u8>) -> Option<Part> {
        if self.event == State::Held {
            let is_empty = matches!(self.held.last(), None | Some(b'\r' | b'\n'));
            self.held.push(end);
            return is_empty.then(|| self.end_event());
        }
        if !self.passes && names_endpoint(&self.held) {
            if self.event == State::HasData {
                return Some(Part::Broken("an event became an endpoint event behind its data"));
            }
            self.event = State::Held;
            self.held.push(end);
            return None;
        }
        if !self.passes && self.held.is_empty() {
            self.event = State::Open;
        }
        self.passes = false;
        passed.append(&mut self.held);
        passed.push(end);
        None
    }

    /// What became of the event that was held.
    fn end_event(&mut self) -> Part {
        let held = std::mem::take(&mut self.held);
        let event = Decoder::new(usize::MAX).push(&held).ok().and_then(|mut events| events.pop());
        match event {
            // Comments before the first event, or what says nothing but how to open the stream again.
            None | Some(Event { event: None, data: None, .. }) => Part::Pass(held),
            // Some readers drop all space around it.
            Some(event) if event.event.as_deref().is_some_and(|name| name.trim() == "endpoint") => {
                self.event = State::Open;
                Part::Endpoint(Event { event: Some("endpoint".to_owned()), ..event })
            }
            Some(_) => Part::Broken("its first event, or one that names several types, is no endpoint event"),
        }
    }
}

fn pass(passed: &mut Vec<u8>) -> Option<Part> {
    (!passed.is_empty()).then(|| Part::Pass(std::mem::take(passed)))
}

/// Whether a line that begins like this may say what the type of its event is, to the most lenient of readers.
fn may_name_type(line: &[u8]) -> bool {
    const FIELD: &[u8] = b"event";
    line.trim_ascii_start().iter().zip(FIELD).all(|(byte, expected)| byte.eq_ignore_ascii_case(expected))
}

fn names_endpoint(line: &[u8]) -> bool {
    let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
    let (field, value) = line.split_at(colon);
    let is = |text: &[u8], expected: &[u8]| text.trim_ascii().eq_ignore_ascii_case(expected);
    is(field, b"event") && is(value.strip_prefix(b":").unwrap_or_default(), b"endpoint")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "event: endpoint\ndata: /m?sessionId=x\n\n";

    /// What is shown of a stream that comes in pieces of `size` bytes: an endpoint as `<data>`, the end as `!`.
    fn shown(stream: &str, size: usize) -> String {
        let mut parts = Parts::new();
        let mut text = String::new();
        for part in stream.as_bytes().chunks(size).flat_map(|piece| parts.push(piece)) {
            match part {
                Part::Pass(bytes) => text.push_str(std::str::from_utf8(&bytes).unwrap()),
                Part::Endpoint(event) => text.extend(["<", &event.data.unwrap_or_default(), ">"]),
                Part::Broken(_) => text.push('!'),
            }
        }
        text
    }

    #[test]
    fn all_but_endpoints_pass_byte_for_byte_however_the_stream_is_cut() {
        for (stream, expected) in [
            ("data: a\n\n: ping - 1\r\n\r\n", "data: a\n\n: ping - 1\r\n\r\n"),
            ("id: 1\revent: message\rdata: a\r\rretry: 5\n\n", "id: 1\revent: message\rdata: a\r\rretry: 5\n\n"),
            ("eve: 1\nevents: 2\nevent\n\nevent:\ndata\n\n", "eve: 1\nevents: 2\nevent\n\nevent:\ndata\n\n"),
            ("data: event: endpoint\ndata: /n\n\n", "data: event: endpoint\ndata: /n\n\n"),
            ("data: a\n\nevent: endpoint\ndata: /n\n\ndata: b\n\n", "data: a\n\n</n>data: b\n\n"),
            ("id: 1\nevent:endpoint\r\ndata:/n\r\n\r\ndata: b\n\n", "id: 1\n</n>\ndata: b\n\n"),
            ("event:  endpoint \ndata: /n\n\n", "</n>"),
            ("event: Endpoint\ndata: /n\n\ndata: a\n\n", "!"),
            (" event: endpoint\ndata: /n\n\n", "!"),
            ("event: endpoint\nevent: message\ndata: /n\n\n", "!"),
            ("data: /n\nevent: endpoint\n\n", "data: /n\n!"),
            ("event: message\ndata: /n\nevent: endpoint\n\n", "event: message\ndata: /n\n!"),
            ("event: message\nevent: endpoint\ndata: /n\n\n", "event: message\n</n>"),
        ] {
            for size in [1, 2, 3, 7, 1000] {
                let shown = shown(&format!("{FIRST}{stream}"), size);
                // The second half of a line break ends an empty line where the first has ended the event.
                assert_eq!(shown, format!("</m?sessionId=x>{expected}"), "{stream:?} in pieces of {size}");
            }
        }
    }

    #[test]
    fn a_stream_begins_with_its_endpoint_behind_comments_alone() {
        for (stream, expected) in [
            ("\u{FEFF}event: endpoint\ndata: /m\n\n", "</m>"),
            (": hello\n\n:\n\nevent: endpoint\ndata: /m\n\n", ": hello\n\n:\n\n</m>"),
            ("data: /m\nid: 1\nevent: endpoint\n\n", "</m>"),
            ("event: message\ndata: {}\n\nevent: endpoint\ndata: /m\n\n", "!"),
            ("retry: 5\n\nevent: endpoint\ndata: /m\n\n", "retry: 5\n\n</m>"),
        ] {
            for size in [1, 5, 1000] {
                assert_eq!(shown(stream, size), expected, "{stream:?} in pieces of {size}");
            }
        }
    }

    #[test]
    fn no_more_is_held_than_an_endpoint_may_be_long_and_a_message_never() {
        let long = "x".repeat(MAX_HELD);
        for stream in [format!("event: endpoint\ndata: /m?{long}"), format!("{FIRST}event: {long}")] {
            assert!(shown(&stream, 1000).ends_with('!'), "{stream:.60}");
        }
        let mut parts = Parts::new();
        parts.push(FIRST.as_bytes());
        for piece in ["event: message\ndata: ", &long, &long] {
            assert_eq!(parts.push(piece.as_bytes()), [Part::Pass(piece.as_bytes().to_vec())]);
            assert!(parts.held.is_empty());
        }
    }
}
