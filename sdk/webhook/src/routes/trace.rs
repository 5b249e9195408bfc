//! The trace that a call belongs to.

use std::fmt;

/// The trace id of a W3C `traceparent` header. The API server sends one when its tracing is on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct TraceId(u128);

impl TraceId {
    /// Reads `00-<trace id>-<parent id>-<flags>`. Any other text is no trace (W3C Trace Context §3.2.2.3); a
    /// later version may have more at its end.
    pub(crate) fn of_traceparent(header: &[u8]) -> Option<Self> {
        let lower_hex = |bytes: &[u8]| bytes.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let parts = [header.get(..2)?, header.get(3..35)?, header.get(36..52)?, header.get(53..55)?];
        let ends = header.len() == 55 || (header[..2] != *b"00" && header.get(55) == Some(&b'-'));
        let dashes = [2, 35, 52].iter().all(|at| header[*at] == b'-');
        if !ends || !dashes || !parts.into_iter().all(lower_hex) || parts[0] == b"ff" || parts[2] == [b'0'; 16] {
            return None;
        }
        let id = u128::from_str_radix(std::str::from_utf8(parts[1]).ok()?, 16).ok()?;
        (id != 0).then_some(Self(id))
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_names_its_trace_and_what_is_none_is_left() {
        let id = "0af7651916cd43dd8448eb211c80319c";
        let cases = [
            (format!("00-{id}-b7ad6b7169203331-01"), true),
            (format!("cc-{id}-b7ad6b7169203331-01-what-comes"), true),
            (format!("00-{id}-b7ad6b7169203331-01-more"), false),
            (format!("cc-{id}-b7ad6b7169203331-01.more"), false),
            (format!("ff-{id}-b7ad6b7169203331-01"), false),
            (format!("00-{}-b7ad6b7169203331-01", "0".repeat(32)), false),
            (format!("00-{id}-{}-01", "0".repeat(16)), false),
            (format!("00-{}-b7ad6b7169203331-01", id.to_uppercase()), false),
            (format!("00-{}-b7ad6b7169203331-01", id.replace("0af", "+af")), false),
            (format!("00-{id}-b7ad6b7169203331"), false),
            (format!("00_{id}-b7ad6b7169203331-01"), false),
            (String::new(), false),
        ];
        for (header, good) in cases {
            let found = TraceId::of_traceparent(header.as_bytes()).map(|id| id.to_string());
            assert_eq!(found.as_deref(), good.then_some(id), "{header}");
        }
    }
}
