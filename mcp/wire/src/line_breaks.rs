//! Line breaks that only some readers see.

/// What Unicode counts as a line break beside the ASCII ones, in UTF-8: U+0085, U+2028, U+2029.
const LINE_BREAKS: [(&[u8], &[u8]); 3] =
    [(b"\xC2\x85", b"\\u0085"), (b"\xE2\x80\xA8", b"\\u2028"), (b"\xE2\x80\xA9", b"\\u2029")];

/// `json` with them escaped. JSON allows them in strings only, and readers that see lines as their language does (Python's `codecs` and
/// `splitlines`) would take what follows for another line.
pub fn escape_line_breaks(json: Vec<u8>) -> Vec<u8> {
    let found =
        |at: usize| LINE_BREAKS.iter().find(|(plain, _)| json.get(at..).is_some_and(|rest| rest.starts_with(plain)));
    let is_lead = |byte: u8| matches!(byte, 0xC2 | 0xE2);
    if !(0..json.len()).any(|at| json.get(at).copied().is_some_and(is_lead) && found(at).is_some()) {
        return json;
    }
    let mut out = Vec::with_capacity(json.len() + 64);
    let mut at = 0;
    while let Some(&byte) = json.get(at) {
        if let Some((plain, escaped)) = found(at).filter(|_| is_lead(byte)) {
            out.extend_from_slice(escaped);
            at += plain.len();
        } else {
            out.push(byte);
            at += 1;
        }
    }
    out
}
