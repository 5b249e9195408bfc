//! What a body may not contain, because two JSON parsers could read it differently or be felled by it.

use std::borrow::Cow;
use std::cmp::Ordering;

use memchr::memchr2;

/// Deepest nesting of objects and arrays that is accepted: what typed JSON parsers commonly stop at.
pub const MAX_DEPTH: usize = 128;

/// A text that is JSON, and yet not one message to every reader.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Ambiguity {
    /// An object has two members of one name: parsers differ in which one counts (RFC 8259 §4, RFC 7493 §2.3).
    #[error("duplicate member `{0}`; name each member once")]
    Duplicate(String),
    /// A member's name differs from one that MCP reserves only in case: a case-insensitive parser would take it for that.
    #[error("member `{0}` differs from `{1}` only in case; spell it `{1}`")]
    Case(String, &'static str),
    /// Objects and arrays are nested deeper than [`MAX_DEPTH`].
    #[error("nesting is deeper than {MAX_DEPTH}; flatten the message")]
    TooDeep,
    /// A string has one half of a surrogate pair without the other: it is no text, and parsers refuse it, replace it or keep it (RFC 7493 §2.1).
    #[error("a string has half of a surrogate pair; escape whole characters")]
    LoneSurrogate,
    /// A string has a NUL, where readers in C end it.
    #[error("a string has a NUL; leave `\\u0000` out")]
    Nul,
    /// The method differs from one that MCP knows only in case or blanks: a lenient server would take it for that.
    #[error("method {0:?} differs from `{1}` only in case or blanks; spell it `{1}`")]
    Method(String, &'static str),
    /// A number is beyond a 64-bit float: parsers refuse it, or read infinity.
    #[error("number `{0}` is out of range; write it as a string")]
    Number(String),
}

/// Checks the structure of `json`, which must be syntactically valid: depth, and that no object at any level has two
/// members of one name, however they are escaped.
///
/// One pass and no recursion; the only memory is the names of the objects that are open.
pub fn check_structure(json: &str) -> Result<(), Ambiguity> {
    scan(json, false)
}

/// Checks the structure of a message that a policy judges: as [`check_structure`], and names that differ only in case count as
/// one but in [`FREE`], every number fits a 64-bit float, and every string is text.
pub(crate) fn check_message(json: &str) -> Result<(), Ambiguity> {
    scan(json, true)
}

/// Members in which not MCP but a tool, a prompt or a client's vendor chooses the names: `Path` beside `path` is usual there.
const FREE: [&str; 3] = ["arguments", "content", "experimental"];

/// An object or an array that has begun.
#[derive(Clone, Copy)]
struct Open {
    /// Where its names start in the list of names; `None` for an array.
    names: Option<usize>,
    /// Whether it is in one of [`FREE`].
    free: bool,
}

fn scan(json: &str, message: bool) -> Result<(), Ambiguity> {
    let bytes = json.as_bytes();
    let mut open: Vec<Open> = Vec::new();
    let mut names: Vec<Cow<'_, str>> = Vec::new();
    // Whether the last name is one of the free ones.
    let mut begins_free = false;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'{' | b'[' => {
                if open.len() == MAX_DEPTH {
                    return Err(Ambiguity::TooDeep);
                }
                let outer = open.last().copied().unwrap_or(Open { names: None, free: !message });
                let free = outer.free || outer.names.is_some() && begins_free;
                open.push(Open { names: (byte == b'{').then_some(names.len()), free });
            }
            b'}' | b']' => {
                if let Some(Open { names: Some(start), free }) = open.pop() {
                    unique(&mut names, start, free)?;
                }
            }
            b'"' => {
                let (end, escapes) = string_end(bytes, at);
                let quoted = &json[at..end];
                if escapes && message {
                    check_escapes(quoted)?;
                }
                let next = bytes.get(end..).unwrap_or_default().iter().find(|b| !b.is_ascii_whitespace());
                // A string followed by a colon is a name; elsewhere a colon cannot follow a string.
                if next == Some(&b':') {
                    let name = name(quoted)?;
                    begins_free = message && FREE.contains(&&*name);
                    names.push(name);
                }
                at = end;
                continue;
            }
            b'-' | b'0'..=b'9' if message => {
                let rest = &json[at..];
                let length = rest.find(|c: char| !matches!(c, '0'..='9' | '+' | '-' | '.' | 'e' | 'E'));
                let number = &rest[..length.unwrap_or(rest.len())];
                check_number(number)?;
                at += number.len();
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    Ok(())
}

fn check_number(number: &str) -> Result<(), Ambiguity> {
    // The largest float has 309 digits; a shorter number is larger only with an exponent.
    let may_overflow = number.len() > 308 || number.contains(['e', 'E']);
    if may_overflow && number.parse::<f64>().is_ok_and(f64::is_infinite) {
        return Err(Ambiguity::Number(number.chars().take(64).collect()));
    }
    Ok(())
}

/// The position after the closing quote of the string that opens at `start`, and whether there is an escape in it.
fn string_end(bytes: &[u8], start: usize) -> (usize, bool) {
    let (mut at, mut escapes) = (start + 1, false);
    // A body is mostly text, of which this search looks at many bytes at a time.
    while let Some(found) = bytes.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += found;
        if bytes[at] == b'"' {
            return (at + 1, escapes);
        }
        escapes = true;
        at += 2;
    }
    (bytes.len(), escapes)
}

/// Refuses a surrogate that is escaped in `quoted` without its other half, and a NUL.
fn check_escapes(quoted: &str) -> Result<(), Ambiguity> {
    // The position behind a high surrogate: the low one must stand there.
    let mut wanted = None;
    let mut at = 0;
    while let Some(found) = quoted.get(at..).and_then(|rest| rest.find('\\')) {
        let escape = at + found;
        let unit = quoted.get(escape + 1..escape + 6).and_then(|text| text.strip_prefix('u'));
        let unit = unit.and_then(|digits| u16::from_str_radix(digits, 16).ok());
        if unit == Some(0) {
            return Err(Ambiguity::Nul);
        }
        at = escape + if unit.is_some() { 6 } else { 2 };
        let is_low = matches!(unit, Some(0xDC00..=0xDFFF));
        if is_low != (wanted == Some(escape)) || wanted.is_some_and(|wanted| wanted != escape) {
            return Err(Ambiguity::LoneSurrogate);
        }
        wanted = matches!(unit, Some(0xD800..=0xDBFF)).then_some(at);
    }
    if wanted.is_some() { Err(Ambiguity::LoneSurrogate) } else { Ok(()) }
}

fn name(quoted: &str) -> Result<Cow<'_, str>, Ambiguity> {
    let inner = quoted.strip_prefix('"').and_then(|q| q.strip_suffix('"')).unwrap_or_default();
    if inner.contains('\\') {
        serde_json::from_str(quoted).map(Cow::Owned).map_err(|_| Ambiguity::LoneSurrogate)
    } else {
        Ok(Cow::Borrowed(inner))
    }
}

/// Drops the names from `start` on, which are one object's. Those that differ only in case are the same, unless they are `free`.
fn unique(names: &mut Vec<Cow<'_, str>>, start: usize, free: bool) -> Result<(), Ambiguity> {
    let order = |a: &str, b: &str| if free { a.cmp(b) } else { compare(a, b) };
    let object = names.get_mut(start..).unwrap_or_default();
    // Sorting bounds the work for an object with a great many members.
    object.sort_unstable_by(|a, b| order(a, b).then_with(|| a.cmp(b)));
    if let Some(pair) = object.windows(2).find(|pair| order(&pair[0], &pair[1]).is_eq()) {
        return Err(Ambiguity::Duplicate(pair[0].chars().take(64).collect()));
    }
    names.truncate(start);
    Ok(())
}

/// Refuses `name` when it is not in `reserved` but a case-insensitive parser (Go's, for one) would match it there.
pub(crate) fn check_case(name: &str, reserved: &[&'static str]) -> Result<(), Ambiguity> {
    if reserved.contains(&name) {
        return Ok(());
    }
    match reserved.iter().find(|exact| compare(name, exact).is_eq()) {
        Some(exact) => Err(Ambiguity::Case(name.to_owned(), exact)),
        None => Ok(()),
    }
}

/// Whether a case-insensitive parser takes one name of a member for the other.
pub fn same_name(a: &str, b: &str) -> bool {
    compare(a, b).is_eq()
}

/// Orders names so that those of which a case-insensitive parser takes one for the other are equal.
fn compare(a: &str, b: &str) -> Ordering {
    if a.is_ascii() && b.is_ascii() {
        return a.bytes().map(|byte| byte.to_ascii_lowercase()).cmp(b.bytes().map(|byte| byte.to_ascii_lowercase()));
    }
    a.chars().map(fold).cmp(b.chars().map(fold))
}

/// The character that stands for all that differ from `c` only in case (Unicode's simple folding, as Go has it): U+017F and `S`
/// become `s`, U+212A becomes `k`.
fn fold(c: char) -> char {
    // It has a capital, and yet differs from `i`.
    if c == 'ı' {
        return c;
    }
    let upper = only(c.to_uppercase()).unwrap_or(c);
    only(upper.to_lowercase()).unwrap_or(upper)
}

fn only(mut characters: impl Iterator<Item = char>) -> Option<char> {
    characters.next().filter(|_| characters.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_occurs_twice_in_one_object_is_refused_at_any_level() {
        for (json, duplicate) in [
            (r#"{"a":1,"a":2}"#, Some("a")),
            (r#"{"a":1,"b":{"c":1,"d":[{"c":1,"x":2,"c":3}]}}"#, Some("c")),
            (r#"{"method":1,"m\u0065thod":2}"#, Some("method")),
            (r#"{"a":{"a":{"a":"a"}},"b":["a","a"],"c":":\"a\":"}"#, None),
            (r#"[{"a":1},{"a":1}]"#, None),
            (r#"{"a" : 1, "b": "\\", "a"	:2}"#, Some("a")),
            (r#""a:a""#, None),
        ] {
            let expected = duplicate.map_or(Ok(()), |name| Err(Ambiguity::Duplicate(name.into())));
            assert_eq!(check_structure(json), expected, "{json}");
        }
    }

    #[test]
    fn names_that_differ_only_in_case_are_one_name_in_a_message_and_two_elsewhere() {
        for (json, duplicate) in [
            (r#"{"a":{"Path":1,"path":2}}"#, true),
            (r#"{"K":1,"\u212a":2}"#, true),
            (r#"{"É":1,"é":2}"#, true),
            (r#"{"Σ":1,"ς":2}"#, true),
            (r#"{"ı":1,"i":2,"İ":3}"#, false),
            (r#"{"a":{"A":1},"b":["B","b"]}"#, false),
            (r#"{"params":{"arguments":{"env":[{"HTTP_PROXY":1,"http_proxy":2}],"n":3,"N":4}}}"#, false),
            (r#"{"params":{"ar\u0067uments":{"n":3,"N":4}}}"#, false),
            (r#"{"result":{"content":{"n":3,"N":4}}}"#, false),
            (r#"{"params":{"arguments":{"n":3},"name":4,"Name":5}}"#, true),
            (r#"{"params":{"arguments":{"arguments":[{}]},"x":{"n":3,"N":4}}}"#, true),
            (r#"{"params":{"arguments":3,"x":["arguments",{"n":3,"N":4}]}}"#, true),
        ] {
            assert_eq!(matches!(check_message(json), Err(Ambiguity::Duplicate(_))), duplicate, "{json}");
            assert_eq!(check_structure(json), Ok(()), "{json}");
        }
    }

    #[test]
    fn a_number_that_some_parsers_read_as_infinity_is_refused_in_a_message() {
        let digits = |count: usize| format!(r#"{{"a":[{}]}}"#, "9".repeat(count));
        for (json, refused) in [
            (r#"{"a":1e1000}"#.to_owned(), true),
            (r#"{"a":[-1.5E+400 ,2]}"#.to_owned(), true),
            (r#"{"a":1e308,"b":1e-1000,"c":-0.0,"d":12345678901234567890123}"#.to_owned(), false),
            (r#"{"1e1000":"1e1000"}"#.to_owned(), false),
            (digits(308), false),
            (digits(309), true),
        ] {
            assert_eq!(matches!(check_message(&json), Err(Ambiguity::Number(_))), refused, "{json}");
            assert_eq!(check_structure(&json), Ok(()), "{json}");
        }
    }

    #[test]
    fn nesting_is_accepted_up_to_the_limit_and_no_deeper() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(check_structure(&nested(MAX_DEPTH)), Ok(()));
        assert_eq!(check_structure(&nested(MAX_DEPTH + 1)), Err(Ambiguity::TooDeep));
        assert_eq!(check_structure(&nested(100_000)), Err(Ambiguity::TooDeep));
    }

    #[test]
    fn half_a_surrogate_pair_and_a_nul_are_refused_in_a_message() {
        for (json, lone) in [
            (r#"{"a":"\ud800"}"#, true),
            (r#"{"a":["\uDC00"]}"#, true),
            (r#"["\ud83d \ude00"]"#, true),
            (r#"["\ud83d\n\ude00"]"#, true),
            (r#"["\ud83d\ud83d\ude00"]"#, true),
            (r#"["\ude00\ud83d"]"#, true),
            (r#"["\ud83d\\ude00"]"#, true),
            (r#"["\ud83dé"]"#, true),
            (r#"{"\ud800":1}"#, true),
            (r#"["\ud83d\uDE00\uD83D\ude00", "\u00e9\n", "\\ud800", "\uffff", "😀"]"#, false),
            (r#"{"\ud83d\ude00":1}"#, false),
        ] {
            let expected = if lone { Err(Ambiguity::LoneSurrogate) } else { Ok(()) };
            assert_eq!(check_message(json), expected, "{json}");
        }
        for json in [r#"{"method\u0000":1}"#, r#"["tools/call\u0000x"]"#] {
            assert_eq!(check_message(json), Err(Ambiguity::Nul), "{json}");
        }
        assert_eq!(check_message(r#"["\\u0000"]"#), Ok(()));
        // Elsewhere a value is its reader's affair.
        assert_eq!(check_structure(r#"{"\ud800":1}"#), Err(Ambiguity::LoneSurrogate));
        assert_eq!(check_structure(r#"{"a":"\ud800"}"#), Ok(()));
    }

    #[test]
    fn a_name_that_a_case_insensitive_parser_would_match_is_refused() {
        for (name, exact) in [("Method", "method"), ("param\u{17F}", "params"), ("ID", "id")] {
            assert_eq!(
                check_case(name, &["id", "method", "params"]),
                Err(Ambiguity::Case(name.into(), exact)),
                "{name}"
            );
        }
        assert_eq!(check_case("method", &["method"]), Ok(()));
        assert_eq!(check_case("methods", &["method"]), Ok(()));
    }
}
