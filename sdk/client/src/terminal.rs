//! Untrusted text on a terminal.

/// Escapes control characters and changes of the text direction, since names, messages and logs come from anyone who
/// may write to the cluster. Line ends and tabs are kept.
pub fn escape_control(text: &str) -> String {
    let steers = |c: char| {
        (c.is_control() && !matches!(c, '\n' | '\t')) || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        if steers(c) {
            plain.extend(c.escape_unicode());
        } else {
            plain.push(c);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_steers_a_terminal_is_left() {
        for (text, expected) in [
            ("a\x1b[31mb", "a\\u{1b}[31mb"),
            ("a\rb\x08\u{9b}2J", "a\\u{d}b\\u{8}\\u{9b}2J"),
            ("a\u{202e}b", "a\\u{202e}b"),
            ("zwei\n\tZeilen, äöü 日本", "zwei\n\tZeilen, äöü 日本"),
        ] {
            assert_eq!(escape_control(text), expected);
        }
    }
}
