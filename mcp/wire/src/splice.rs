//! Replacing a few values of a message and leaving every other byte as it is.

/// `text` with each of the values in `edits`, which are slices of `text` in their order, replaced.
pub fn splice(text: &[u8], edits: &[(&str, &str)]) -> Vec<u8> {
    let longer: usize = edits.iter().map(|(_, new)| new.len()).sum();
    // One more, for the line break that a pipe needs.
    let mut out = Vec::with_capacity(text.len() + longer + 1);
    let mut at = 0;
    for (old, new) in edits {
        let start = (old.as_ptr() as usize).wrapping_sub(text.as_ptr() as usize);
        // A slice of another text would lie outside or before; then it is left alone.
        if let Some(before) = text.get(at..start).filter(|_| start + old.len() <= text.len()) {
            out.extend_from_slice(before);
            out.extend_from_slice(new.as_bytes());
            at = start + old.len();
        }
    }
    out.extend_from_slice(text.get(at..).unwrap_or_default());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_edited_keeps_its_bytes() {
        let text = "ab cd ef";
        assert_eq!(splice(text.as_bytes(), &[(&text[0..2], "x"), (&text[6..8], "yyy")]), b"x cd yyy");
        assert_eq!(splice(text.as_bytes(), &[("cd", "x")]), text.as_bytes(), "a slice of another text");
        assert_eq!(splice(text.as_bytes(), &[]), text.as_bytes());
    }
}
