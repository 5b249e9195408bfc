//! White space out of JSON, for transports that end a message at a newline.

use std::borrow::Cow;

/// `json` without the white space between its tokens; borrowed when there is none.
///
/// Numbers, strings and the order of members stay as they are. `json` must be syntactically valid.
pub fn compact(json: &[u8]) -> Cow<'_, [u8]> {
    let mut out: Option<Vec<u8>> = None;
    let (mut in_string, mut escaped) = (false, false);
    for (at, &byte) in json.iter().enumerate() {
        if !in_string && matches!(byte, b' ' | b'\t' | b'\r' | b'\n') {
            out.get_or_insert_with(|| {
                let mut copy = Vec::with_capacity(json.len());
                copy.extend_from_slice(json.get(..at).unwrap_or_default());
                copy
            });
            continue;
        }
        match (in_string, byte) {
            _ if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => in_string = !in_string,
            _ => {}
        }
        if let Some(out) = &mut out {
            out.push(byte);
        }
    }
    out.map_or(Cow::Borrowed(json), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_white_space_between_tokens_goes() {
        for (json, expected) in [
            (r#"{"a":1}"#, r#"{"a":1}"#),
            ("{ \"a b\" :\r\n\t[ 1.0 , \"\\\" x\\\\\" ] }\n", "{\"a b\":[1.0,\"\\\" x\\\\\"]}"),
        ] {
            assert_eq!(compact(json.as_bytes()), expected.as_bytes());
        }
        assert!(matches!(compact(b"{}"), Cow::Borrowed(_)));
    }
}
