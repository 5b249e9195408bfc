//! Finds the members of a JSON object in its text, without parsing the values. It is for the crates of this SDK, and no
//! stable API.
//!
//! It trusts that the text is JSON: a caller that has it as a [`RawValue`](serde_json::value::RawValue), has decoded it
//! or has written it knows that. Other text gives fewer members or wrong ones, and never a panic. Nothing here
//! recurses.

use std::borrow::Cow;

/// A member of an object.
#[derive(Clone, Debug)]
pub struct Member<'a> {
    /// The name.
    pub key: Cow<'a, str>,
    /// The value as it is written.
    pub value: &'a str,
    /// The member as it is written, with its key.
    pub whole: &'a str,
    /// The offset at which the member begins, in the text of the object.
    pub from: usize,
}

/// The members of the object that `text` is; none if it is no object.
pub fn members(text: &str) -> Members<'_> {
    let mut scan = Scan::of(text);
    // Past the end there is nothing to find.
    scan.at = if scan.peek() == Some(b'{') { scan.at + 1 } else { text.len() };
    Members { scan }
}

/// The value of a member, the last one of that name as JSON readers have it.
pub fn member<'a>(text: &'a str, key: &str) -> Option<Member<'a>> {
    members(text).filter(|member| member.key == key).last()
}

/// Iterates over the members of an object.
#[derive(Debug)]
pub struct Members<'a> {
    scan: Scan<'a>,
}

impl<'a> Iterator for Members<'a> {
    type Item = Member<'a>;

    fn next(&mut self) -> Option<Member<'a>> {
        if self.scan.peek()? == b',' {
            self.scan.at += 1;
            self.scan.peek()?;
        }
        self.scan.member(|_, _| false)
    }
}

impl<'a> Members<'a> {
    /// The unread rest.
    pub fn rest(&self) -> &'a str {
        self.scan.text.get(self.scan.at..).unwrap_or_default()
    }

    /// Passes over what comes before the end of a member, which is known to be there.
    pub fn go_on_from(&mut self, end: usize) {
        self.scan.at = end;
    }
}

impl Member<'_> {
    /// The offset at which the member ends, in the text of the object.
    pub fn to(&self) -> usize {
        self.from + self.whole.len()
    }
}

/// A place in a text: reads an object and those inside it in one pass.
#[derive(Debug)]
pub struct Scan<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scan<'a> {
    /// The beginning of the text.
    pub fn of(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// The members of the object that starts here. Calls `inner` at each value, with the key; where that returns
    /// false it has read nothing, and the value is passed over.
    pub fn members(&mut self, mut inner: impl FnMut(&mut Self, &str) -> bool) -> Option<Vec<Member<'a>>> {
        let mut members = Vec::with_capacity(12);
        if self.peek()? != b'{' {
            return None;
        }
        self.at += 1;
        loop {
            match self.peek()? {
                b'}' => break,
                b',' => self.at += 1,
                _ => members.push(self.member(&mut inner)?),
            }
        }
        self.at += 1;
        Some(members)
    }

    /// Whether an object starts here.
    pub fn at_object(&self) -> bool {
        self.byte() == Some(b'{')
    }

    /// The member whose key starts here.
    fn member(&mut self, inner: impl FnOnce(&mut Self, &str) -> bool) -> Option<Member<'a>> {
        let from = self.at;
        if self.byte()? != b'"' {
            return None;
        }
        self.at = after_string(self.text.as_bytes(), self.at + 1)?;
        let key = unquoted(self.text.get(from..self.at)?)?;
        if self.peek()? != b':' {
            return None;
        }
        self.at += 1;
        self.peek()?;
        let value = self.at;
        if !inner(self, &key) {
            self.value()?;
        }
        Some(Member { key, value: self.text.get(value..self.at)?, whole: self.text.get(from..self.at)?, from })
    }

    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// The next byte that is no white space.
    fn peek(&mut self) -> Option<u8> {
        while let b' ' | b'\n' | b'\r' | b'\t' = self.byte()? {
            self.at += 1;
        }
        self.byte()
    }

    /// Goes past a value.
    fn value(&mut self) -> Option<()> {
        let bytes = self.text.as_bytes();
        self.at = match bytes.get(self.at)? {
            b'"' => after_string(bytes, self.at + 1)?,
            b'{' | b'[' => after_nested(bytes, self.at)?,
            _ => {
                let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t');
                self.at + bytes.get(self.at..)?.iter().position(ends)?
            }
        };
        Some(())
    }
}

/// The text of a string that is given with its quotes.
pub fn unquoted(string: &str) -> Option<Cow<'_, str>> {
    let inner = string.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        return serde_json::from_str(string).ok().map(Cow::Owned);
    }
    Some(Cow::Borrowed(inner))
}

/// The depth to which arrays and objects are nested in a text, and their number plus that of commas: at least the
/// number of values, but for one in each.
pub fn extent(text: &str) -> (usize, usize) {
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

/// The offset behind the closing bracket of the object or array that begins at `at`.
fn after_nested(bytes: &[u8], mut at: usize) -> Option<usize> {
    let mut depth = 0_usize;
    loop {
        match bytes.get(at)? {
            b'"' => {
                at = after_string(bytes, at + 1)?;
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            return Some(at);
        }
    }
}

/// The offset behind the closing quote of the string whose text begins at `at`. It reads eight bytes at a time, since
/// strings are most of an object.
fn after_string(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        if let Some(eight) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
            let word = u64::from_le_bytes(*eight);
            let found = first_equal(word, b'"') | first_equal(word, b'\\');
            // Eight without either leave no bit, and are all passed over.
            at += found.trailing_zeros() as usize / 8;
            if found == 0 {
                continue;
            }
        }
        match *bytes.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// The high bit of the first byte of `word` that equals `byte`; bits of later bytes may be set without reason.
fn first_equal(word: u64, byte: u8) -> u64 {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    let differing = word ^ (ONES * u64::from(byte));
    differing.wrapping_sub(ONES) & !differing & (ONES << 7)
}
