//! Texts of others in what is printed: on one line, short, and without what steers a terminal.

/// The longest text in a report, in characters.
const LONGEST: usize = 1000;

/// `text` as a report may show it, without `secrets`: they go before it is cut, or a part of one would stay.
pub(crate) fn clean(text: &str, secrets: &[String]) -> String {
    let mut hidden = text.to_owned();
    for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
        hidden = hidden.replace(secret.as_str(), "[redacted]");
    }
    let mut shown = hidden.chars().map(|c| if is_invisible(c) { ' ' } else { c });
    let mut short: String = shown.by_ref().take(LONGEST).collect();
    if shown.next().is_some() {
        short.push('…');
    }
    short
}

/// A part of what a server says, in quotation marks.
pub(crate) fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}

/// Control characters, and those by which a text runs in the other direction or hides parts of itself.
pub(crate) fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_text_stays_on_its_line_and_is_cut() {
        assert_eq!(clean("a\x1b[31m\r\nb\u{202e}c\u{61c}d", &[]), "a [31m  b c d");
        assert_eq!(clean(&"é".repeat(LONGEST + 5), &[]).chars().count(), LONGEST + 1);
    }

    #[test]
    fn no_part_of_a_secret_stays_where_a_text_is_cut() {
        let secrets = ["s3cret-s3cret".to_owned(), String::new()];
        let text = "x".repeat(LONGEST - 6) + "s3cret-s3cret";
        assert!(!clean(&text, &secrets).contains("s3c"), "{text}");
    }
}
