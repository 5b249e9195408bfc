//! What a body may not contain, because two JSON parsers could read it differently or be felled by it.

use std::borrow::Cow;

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
    /// A member's name is not text (a lone surrogate).
    #[error("a member's name is not valid Unicode; escape whole characters")]
    Name,
}

/// Checks the structure of `json`, which must be syntactically valid: depth, and that no object at any level has two
/// members of one name, however they are escaped.
///
/// One pass and no recursion; the only memory is the names of the objects that are open.
pub fn check_structure(json: &str) -> Result<(), Ambiguity> {
    let bytes = json.as_bytes();
    // Where the names of each open object start in `names`; `None` for an array.
    let mut open: Vec<Option<usize>> = Vec::new();
    let mut names: Vec<Cow<'_, str>> = Vec::new();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'{' | b'[' => {
                if open.len() == MAX_DEPTH {
                    return Err(Ambiguity::TooDeep);
                }
                open.push((byte == b'{').then_some(names.len()));
            }
            b'}' | b']' => {
                if let Some(Some(start)) = open.pop() {
                    unique(&mut names, start)?;
                }
            }
            b'"' => {
                let end = string_end(bytes, at);
                let next = bytes.get(end..).unwrap_or_default().iter().find(|b| !b.is_ascii_whitespace());
                // A string followed by a colon is a name; elsewhere a colon cannot follow a string.
                if next == Some(&b':') {
                    names.push(name(&json[at..end])?);
                }
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    Ok(())
}

/// The position after the closing quote of the string that opens at `start`.
fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn name(quoted: &str) -> Result<Cow<'_, str>, Ambiguity> {
    let inner = quoted.strip_prefix('"').and_then(|q| q.strip_suffix('"')).unwrap_or_default();
    if inner.contains('\\') {
        serde_json::from_str(quoted).map(Cow::Owned).map_err(|_| Ambiguity::Name)
    } else {
        Ok(Cow::Borrowed(inner))
    }
}

/// Drops the names from `start` on, which are one object's.
fn unique(names: &mut Vec<Cow<'_, str>>, start: usize) -> Result<(), Ambiguity> {
    let object = names.get_mut(start..).unwrap_or_default();
    // Sorting bounds the work for an object with a great many members.
    object.sort_unstable();
    if let Some(pair) = object.windows(2).find(|pair| pair[0] == pair[1]) {
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
    match reserved.iter().find(|exact| folds_to(name, exact)) {
        Some(exact) => Err(Ambiguity::Case(name.to_owned(), exact)),
        None => Ok(()),
    }
}

/// Go folds two characters beyond ASCII onto ASCII letters: U+017F to `s` and U+212A to `k`.
fn folds_to(name: &str, exact: &str) -> bool {
    let fold = |c: char| match c {
        '\u{17F}' => 's',
        '\u{212A}' => 'k',
        c => c.to_ascii_lowercase(),
    };
    name.chars().map(fold).eq(exact.chars().map(fold))
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
    fn nesting_is_accepted_up_to_the_limit_and_no_deeper() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(check_structure(&nested(MAX_DEPTH)), Ok(()));
        assert_eq!(check_structure(&nested(MAX_DEPTH + 1)), Err(Ambiguity::TooDeep));
        assert_eq!(check_structure(&nested(100_000)), Err(Ambiguity::TooDeep));
    }

    #[test]
    fn a_name_that_is_half_a_character_is_refused_and_a_value_is_not() {
        assert_eq!(check_structure(r#"{"\ud800":1}"#), Err(Ambiguity::Name));
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
