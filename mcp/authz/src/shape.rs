//! Bounds on policies. Cedar's parser calls itself for each level of one, and would end the process where its stack ends, or the memory: it takes about a
//! kilobyte for each word and sign, and a copy of a whole text for each of its escapes that is none.

/// The most brackets in brackets.
const BRACKETS: usize = 64;
/// The most operators, attributes and calls: each may be a level.
const STEPS: usize = 4_000;
/// The most words and signs of all policies together.
const TOKENS: usize = 100_000;
/// The most bytes that copies of a policy's texts take, were each escape in them none.
const COPIES: usize = 16 << 20;
/// The steps that the stack of every thread has room for.
const SHALLOW: usize = 500;
/// The stack for what may be deeper, in bytes. What of it is not used costs nothing.
const STACK: usize = 128 << 20;

/// The size of policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shape {
    /// The steps of the one that has most.
    steps: usize,
    tokens: usize,
}

/// The position from which on a policy is too large, and why.
pub(crate) type TooLarge = (usize, &'static str);

impl Shape {
    /// Counts one more policy, in the words and signs that Cedar finds in it.
    ///
    /// # Errors
    /// It is too large, or all of them are.
    pub(crate) fn add(&mut self, policy: &str) -> Result<(), TooLarge> {
        let bytes = policy.as_bytes();
        let (mut at, mut depth, mut steps, mut copies) = (0, 0_usize, 0, 0);
        while let Some(&byte) = bytes.get(at) {
            let rest = &bytes[at..];
            let run = |is: fn(&u8) -> bool| rest.iter().take_while(|byte| is(byte)).count();
            let length = match byte {
                b'"' => string(rest),
                b'/' if rest.starts_with(b"//") => run(|byte| !matches!(byte, b'\n' | b'\r')),
                b'&' | b'|' | b':' => rest.iter().take(2).take_while(|next| **next == byte).count(),
                b'0'..=b'9' => run(u8::is_ascii_digit),
                b'_' | b'a'..=b'z' | b'A'..=b'Z' => run(|byte| byte.is_ascii_alphanumeric() || *byte == b'_'),
                _ => 1,
            };
            let token = &rest[..length];
            match token {
                b"(" | b"[" | b"{" => (depth, steps) = (depth + 1, steps + 1),
                b")" | b"]" | b"}" => depth = depth.saturating_sub(1),
                b"&&" | b"||" | b"+" | b"-" | b"*" | b"." => steps += 1,
                b"if" => steps += 2,
                [b'"', ..] => copies += escapes(token) * length,
                _ => {}
            }
            self.tokens += usize::from(!byte.is_ascii_whitespace() && !token.starts_with(b"//"));
            if depth > BRACKETS || steps > STEPS {
                return Err((at, "it is too deep; write several policies"));
            }
            if copies > COPIES {
                return Err((at, "its texts have too many escapes; write shorter ones"));
            }
            if self.tokens > TOKENS {
                return Err((at, "the policies have more than 100,000 words and signs; write fewer"));
            }
            at += length;
        }
        self.steps = self.steps.max(steps);
        Ok(())
    }

    /// Whether decisions need more stack than a thread has.
    pub(crate) fn is_deep(self) -> bool {
        self.steps > SHALLOW
    }
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

/// The escapes in a string, and the other characters that Cedar takes for wrong ones.
fn escapes(string: &[u8]) -> usize {
    string.iter().filter(|byte| matches!(byte, b'\\' | b'\r')).count()
}

/// Runs `work` with room for the deepest policy.
pub(crate) fn with_stack<T>(work: impl FnOnce() -> T) -> T {
    stacker::grow(STACK, work)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(policy: &str) -> Result<(usize, usize), TooLarge> {
        let mut shape = Shape::default();
        shape.add(policy).map(|()| (shape.steps, shape.tokens))
    }

    #[test]
    fn steps_and_tokens_are_counted_outside_of_texts_and_comments() {
        for (policy, steps, tokens) in [
            ("", 0, 0),
            ("permit(principal, action, resource);", 1, 9),
            (r#"resource == Tool::"a.b && (c" || true"#, 1, 8),
            (r#""\"" && "\\" && 1"#, 2, 5),
            ("// a && b ||\n1 + 2 * 3", 2, 5),
            ("// a && b ||\r1 + 2 * 3", 2, 5),
            ("a.b.c[1](2)", 4, 11),
            ("if a then b else c", 2, 6),
            ("iff.thenif", 1, 3),
            ("if_.a_if._if", 2, 5),
            ("12if 1", 2, 3),
            ("\"unfinished", 0, 1),
            ("\"unfinished\\", 0, 1),
        ] {
            assert_eq!(shape(policy), Ok((steps, tokens)), "{policy}");
        }
    }

    #[test]
    fn what_is_too_large_is_found_at_its_position() {
        let at = |policy: &str| shape(policy).map_or_else(|(at, _)| Some(at), |_| None);
        for (policy, expected) in [
            ("(".repeat(64), None),
            ("(".repeat(65), Some(64)),
            ("()".repeat(4_000), None),
            ("()".repeat(4_001), Some(8_000)),
            (")(".repeat(100), None),
            (", ".repeat(100_000), None),
            (", ".repeat(100_001), Some(200_000)),
            (format!("a \"{}\"", r"\q".repeat(2_800)), None),
            (format!("a \"{}\"", r"\q".repeat(2_900)), Some(2)),
            (format!("a \"{}\"", "\r".repeat(4_100)), Some(2)),
            (format!("a \"{}\"", "x".repeat(1 << 20)), None),
        ] {
            assert_eq!(at(&policy), expected, "{}", policy.get(..8).unwrap());
        }
        let mut all = Shape::default();
        assert_eq!(all.add(&",".repeat(60_000)), Ok(()));
        assert_eq!(all.add(&",".repeat(60_000)).unwrap_err().0, 40_000);
    }
}
