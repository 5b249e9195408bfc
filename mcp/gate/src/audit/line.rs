//! A line of JSON, written member by member.

use serde::Serialize;

/// A line under way. Serde would look for what must be escaped in each name of a member and each word of ours: that is half of what a
/// line costs.
pub(super) struct Line<'a>(&'a mut Vec<u8>);

impl<'a> Line<'a> {
    /// Begins a line at the end of `text`.
    pub(super) fn begin(text: &'a mut Vec<u8>) -> Self {
        text.push(b'{');
        Self(text)
    }

    /// Ends the line.
    pub(super) fn end(self) {
        self.0.extend_from_slice(b"}\n");
    }

    /// Adds an object, with the members that `fill` adds.
    pub(super) fn object(&mut self, name: &'static str, fill: impl FnOnce(&mut Self)) {
        self.name(name);
        self.0.push(b'{');
        fill(self);
        self.0.push(b'}');
    }

    /// Adds a list of objects, each with the members that `fill` adds.
    pub(super) fn list<T>(&mut self, name: &'static str, items: &[T], fill: impl Fn(&mut Self, &T)) {
        self.name(name);
        let mut before = b'[';
        for item in items {
            self.0.extend([before, b'{']);
            fill(self, item);
            self.0.push(b'}');
            before = b',';
        }
        self.0.push(b']');
    }

    /// Adds a text that needs no escapes, such as a word of ours.
    pub(super) fn word(&mut self, name: &'static str, word: &str) {
        self.name(name);
        self.quoted(word);
    }

    /// Adds a text.
    pub(super) fn text(&mut self, name: &'static str, text: &str) {
        // Counting all of them takes many bytes at a time, unlike a search that may stop.
        let to_escape = text.bytes().filter(|byte| *byte < b' ' || matches!(byte, b'"' | b'\\')).count();
        if to_escape == 0 {
            self.word(name, text);
        } else {
            self.json(name, &text);
        }
    }

    /// Adds a text, where there is one.
    pub(super) fn text_if_any(&mut self, name: &'static str, text: Option<&str>) {
        if let Some(text) = text {
            self.text(name, text);
        }
    }

    /// Adds what always serializes: numbers, texts, and JSON that was checked.
    pub(super) fn json(&mut self, name: &'static str, value: &impl Serialize) {
        self.name(name);
        let written = serde_json::to_writer(&mut *self.0, value);
        debug_assert!(written.is_ok(), "{name}: {written:?}");
    }

    /// Adds what serializes, where it is there.
    pub(super) fn json_if_any(&mut self, name: &'static str, value: Option<&impl Serialize>) {
        if let Some(value) = value {
            self.json(name, value);
        }
    }

    fn name(&mut self, name: &'static str) {
        if self.0.last() != Some(&b'{') {
            self.0.push(b',');
        }
        self.quoted(name);
        self.0.push(b':');
    }

    fn quoted(&mut self, word: &str) {
        self.0.push(b'"');
        self.0.extend_from_slice(word.as_bytes());
        self.0.push(b'"');
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_line_reads_back_as_what_was_put_in() {
        for text in ["", "plain", "a\"b", "a\\b", "a\nb\u{1}", "\u{7f}é\u{2028}"] {
            let mut written = Vec::new();
            let mut line = Line::begin(&mut written);
            line.text("text", text);
            line.text_if_any("none", None);
            line.object("empty", |_| {});
            line.list("list", &[1, 2], |item, number| item.json("number", number));
            line.end();
            assert_eq!(written.iter().position(|byte| *byte == b'\n'), Some(written.len() - 1), "{text:?}");
            let expected = json!({"text": text, "empty": {}, "list": [{"number": 1}, {"number": 2}]});
            assert_eq!(serde_json::from_slice::<Value>(&written).unwrap(), expected);
        }
    }
}
