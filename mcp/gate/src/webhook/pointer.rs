//! JSON Pointer (RFC 6901).

use std::borrow::Cow;

/// The reference tokens of `pointer`, unescaped; `None` when it is not a pointer to a part of a document.
pub(crate) fn tokens(pointer: &str) -> Option<Vec<Cow<'_, str>>> {
    pointer.strip_prefix('/')?.split('/').map(unescape).collect()
}

fn unescape(token: &str) -> Option<Cow<'_, str>> {
    if !token.contains('~') {
        return Some(Cow::Borrowed(token));
    }
    let mut text = String::with_capacity(token.len());
    let mut rest = token.chars();
    while let Some(c) = rest.next() {
        text.push(match c {
            '~' => match rest.next()? {
                '0' => '~',
                '1' => '/',
                _ => return None,
            },
            c => c,
        });
    }
    Some(Cow::Owned(text))
}

/// The position that `token` names in an array of `len`; a negative one counts from the end, as ToolHive allows.
pub(crate) fn index(token: &str, len: usize) -> Option<usize> {
    let (negative, digits) = token.strip_prefix('-').map_or((false, token), |digits| (true, digits));
    let canonical = digits == "0" || !digits.starts_with('0');
    if !canonical || digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: usize = digits.parse().ok()?;
    let index = if negative { len.checked_sub(number)? } else { number };
    (index < len).then_some(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_read_as_the_rfc_says() {
        for (pointer, expected) in [
            ("/a/b", Some(vec!["a", "b"])),
            ("/", Some(vec![""])),
            ("/a~1b/m~0n/~01", Some(vec!["a/b", "m~n", "~1"])),
            ("", None),
            ("a", None),
            ("/a~", None),
            ("/a~2", None),
        ] {
            let expected = expected.map(|tokens| tokens.into_iter().map(Cow::from).collect());
            assert_eq!(tokens(pointer), expected, "{pointer:?}");
        }
        for (token, expected) in [
            ("0", Some(0)),
            ("2", Some(2)),
            ("3", None),
            ("-1", Some(2)),
            ("-3", Some(0)),
            ("-4", None),
            ("01", None),
            ("", None),
            ("-", None),
            ("+1", None),
            ("-0", None),
        ] {
            assert_eq!(index(token, 3), expected, "{token:?}");
        }
    }
}
