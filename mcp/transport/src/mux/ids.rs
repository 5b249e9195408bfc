//! The ids under which a server knows calls.
//!
//! Ids are JSON numbers: some servers take no strings for ids. Nobody can guess one, they differ after a restart and between proxies,
//! and every number type that is usual for JSON holds them.

use uuid::Uuid;

/// Integers up to this many bits are the same in floating point (RFC 8259 §6).
const BITS: u32 = 53;

/// A random id.
pub(super) fn random() -> u64 {
    // The variant of the UUID is in bits above these.
    Uuid::new_v4().as_u64_pair().1 & ((1 << BITS) - 1)
}

/// Reads an id of ours as the server has written it; `None` when it is none. A server that holds numbers in floating point may
/// write `7.0` for `7`.
pub(super) fn read(raw: &str) -> Option<u64> {
    if !raw.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    if let Ok(id) = raw.parse() {
        return Some(id).filter(|id| id >> BITS == 0);
    }
    let id: f64 = raw.parse().ok()?;
    let is_integer = id.fract() == 0.0 && id < 2_f64.powi(BITS.cast_signed());
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is such an integer")]
    is_integer.then_some(id as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_however_a_server_writes_the_number() {
        for (raw, id) in [
            ("7", Some(7)),
            ("7.0", Some(7)),
            ("7.5", None),
            ("1.5e1", Some(15)),
            ("9007199254740991", Some((1 << 53) - 1)),
            ("9.007199254740991e15", Some((1 << 53) - 1)),
            ("9007199254740992", None),
            ("9.007199254740992e15", None),
            ("1e400", None),
            ("-7", None),
            ("\"7\"", None),
            ("null", None),
            ("inf", None),
        ] {
            assert_eq!(read(raw), id, "{raw}");
        }
        let (one, two) = (random(), random());
        assert_eq!(read(&one.to_string()), Some(one));
        assert_ne!(one, two);
    }
}
