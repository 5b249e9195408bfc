//! A reader that finds where the members of a JSON object are, and looks at nothing else.
//!
//! It trusts that the text is JSON, which whoever made the [`RawValue`](serde_json::value::RawValue) has checked. What
//! is not JSON gives None or a wrong slice, never a panic.

use std::borrow::Cow;

use portcullis_review::{after_nested, after_string};

/// A member of an object, as it came.
#[derive(Clone, Debug)]
pub(crate) struct Member<'a> {
    pub(crate) key: Cow<'a, str>,
    /// The member as it came, with its key.
    pub(crate) whole: &'a str,
    /// The value as it came.
    pub(crate) value: &'a str,
}

pub(crate) struct Scan<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scan<'a> {
    pub(crate) fn of(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// The members of the object that starts here. Calls `inner` at each value, with the key; where that returns
    /// false it has read nothing, and the value is passed over.
    pub(crate) fn members(&mut self, mut inner: impl FnMut(&mut Self, &str) -> bool) -> Option<Vec<Member<'a>>> {
        let mut members = Vec::with_capacity(12);
        self.expect(b'{')?;
        loop {
            match self.peek()? {
                b'}' => break,
                b',' => self.at += 1,
                b'"' => {
                    let start = self.at;
                    let key = text(self.string()?)?;
                    self.expect(b':')?;
                    self.peek()?;
                    let from = self.at;
                    if !inner(self, &key) {
                        self.value()?;
                    }
                    let (whole, value) = (self.text.get(start..self.at)?, self.text.get(from..self.at)?);
                    members.push(Member { key, whole, value });
                }
                _ => return None,
            }
        }
        self.at += 1;
        Some(members)
    }

    pub(crate) fn at_object(&self) -> bool {
        self.text.as_bytes().get(self.at) == Some(&b'{')
    }

    /// The next byte that is not white space.
    fn peek(&mut self) -> Option<u8> {
        loop {
            let byte = *self.text.as_bytes().get(self.at)?;
            if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return Some(byte);
            }
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// Passes over a string and gives it with its quotes.
    fn string(&mut self) -> Option<&'a str> {
        let start = self.at;
        self.at = after_string(self.text.as_bytes(), start + 1)?;
        self.text.get(start..self.at)
    }

    /// Passes over a value.
    fn value(&mut self) -> Option<()> {
        let bytes = self.text.as_bytes();
        match bytes.get(self.at)? {
            b'"' => self.at = after_string(bytes, self.at + 1)?,
            b'{' | b'[' => self.at = after_nested(bytes, self.at)?,
            _ => {
                let rest = bytes.get(self.at..)?;
                let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t');
                self.at += rest.iter().position(ends).unwrap_or(rest.len());
            }
        }
        Some(())
    }
}

/// How deep arrays and objects are nested in a text, and how many of them and of commas there are: at least as many as
/// values, but for one in each.
pub(crate) fn extent(text: &str) -> (usize, usize) {
    let bytes = text.as_bytes();
    let (mut at, mut depth, mut deepest, mut values) = (0, 0_usize, 0, 0);
    while let Some(byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'"' => at = after_string(bytes, at).unwrap_or(bytes.len()),
            b'{' | b'[' => {
                depth += 1;
                values += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' => values += 1,
            _ => {}
        }
    }
    (deepest, values)
}

/// The text of a string that is given with its quotes.
pub(crate) fn text(string: &str) -> Option<Cow<'_, str>> {
    let inner = string.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        return serde_json::from_str(string).ok().map(Cow::Owned);
    }
    Some(Cow::Borrowed(inner))
}
