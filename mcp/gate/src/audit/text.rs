//! Texts of somebody else's, as they stand in events.

/// The most bytes of a text of somebody else's.
const LONGEST: usize = 256;

/// The beginning of a text of somebody else's.
pub(super) fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(LONGEST)).unwrap_or(text)
}
