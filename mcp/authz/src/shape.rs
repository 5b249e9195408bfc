//! A bound on how deep a policy is. Cedar's parser calls itself for each level, and would end the process where its stack ends.

/// The most brackets in brackets.
const BRACKETS: usize = 64;
/// The most operators, attributes and calls: each may be a level.
const STEPS: usize = 4_000;
/// The steps that the stack of every thread has room for.
const SHALLOW: usize = 500;
/// The stack for what may be deeper, in bytes. What of it is not used costs nothing.
const STACK: usize = 128 << 20;

/// Counts the steps of a policy.
///
/// # Errors
/// The position from which on it is too deep.
pub(crate) fn steps(policy: &str) -> Result<usize, usize> {
    let bytes = policy.as_bytes();
    let (mut at, mut depth, mut steps) = (0, 0_usize, 0);
    while let Some(&byte) = bytes.get(at) {
        let rest = &bytes[at..];
        let length = match byte {
            b'"' => string(rest),
            b'/' if rest.starts_with(b"//") => rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()),
            b'&' | b'|' | b':' => rest.iter().take(2).take_while(|next| **next == byte).count(),
            _ if byte.is_ascii_alphabetic() => rest.iter().take_while(|byte| byte.is_ascii_alphanumeric()).count(),
            _ => 1,
        };
        match &rest[..length] {
            b"(" | b"[" | b"{" => (depth, steps) = (depth + 1, steps + 1),
            b")" | b"]" | b"}" => depth = depth.saturating_sub(1),
            b"&&" | b"||" | b"+" | b"-" | b"*" | b"." => steps += 1,
            b"if" => steps += 2,
            _ => {}
        }
        if depth > BRACKETS || steps > STEPS {
            return Err(at);
        }
        at += length;
    }
    Ok(steps)
}

/// The length of the string at the beginning, with its quotes.
fn string(bytes: &[u8]) -> usize {
    let mut at = 1;
    while let Some(&byte) = bytes.get(at) {
        at += if byte == b'\\' { 2 } else { 1 };
        if byte == b'"' {
            break;
        }
    }
    at.min(bytes.len())
}

/// Whether policies with so many steps need more stack than a thread has.
pub(crate) fn is_deep(steps: usize) -> bool {
    steps > SHALLOW
}

/// Runs `work` with room for the deepest policy.
pub(crate) fn with_stack<T>(work: impl FnOnce() -> T) -> T {
    stacker::grow(STACK, work)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_counted_outside_of_texts_and_comments() {
        for (policy, expected) in [
            ("", 0),
            ("permit(principal, action, resource);", 1),
            (r#"resource == Tool::"a.b && (c" || true"#, 1),
            (r#""\"" && "\\" && 1"#, 2),
            ("// a && b ||\n1 + 2 * 3", 2),
            ("a.b.c[1](2)", 4),
            ("if a then b else c", 2),
            ("iff.thenif", 1),
            ("\"unfinished", 0),
            ("\"unfinished\\", 0),
        ] {
            assert_eq!(steps(policy), Ok(expected), "{policy}");
        }
    }

    #[test]
    fn what_is_too_deep_is_found_at_its_position() {
        assert_eq!(steps(&"(".repeat(64)), Ok(64));
        assert_eq!(steps(&"(".repeat(65)), Err(64));
        assert_eq!(steps(&"()".repeat(4_000)), Ok(4_000));
        assert_eq!(steps(&"()".repeat(4_001)), Err(8_000));
        assert_eq!(steps(&")(".repeat(100)), Ok(100));
    }
}
