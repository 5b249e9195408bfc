//! Digests: of documents, which anyone may read, and of Secret values, which nobody may guess from their digest.

use std::fmt::{self, Write as _};

use aws_lc_rs::{
    digest::{SHA256, digest as hash},
    hmac,
};
use serde::Serialize;

/// Length of a short digest: enough to tell two values apart, short enough to read.
const SHORT: usize = 16;

/// The key of the digests of Secret values.
///
/// A plain hash of a short value can be guessed by trying, and whoever may read pods sees the annotation it stands in.
#[derive(Clone)]
pub struct DigestKey(hmac::Key);

impl DigestKey {
    /// A key from its bytes.
    pub fn new(bytes: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    /// HMAC-SHA256 of `bytes` in lower-case hex.
    pub fn digest(&self, bytes: &[u8]) -> String {
        hex(hmac::sign(&self.0, bytes).as_ref())
    }
}

impl fmt::Debug for DigestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DigestKey")
    }
}

/// SHA-256 in lower-case hex.
pub fn digest(bytes: &[u8]) -> String {
    hex(hash(&SHA256, bytes).as_ref())
}

/// The start of the digest of a value. Members serialize in the order of their declaration: equal values give equal digests.
pub fn short_digest(value: &impl Serialize) -> String {
    short_digest_of(&serde_json::to_vec(value).unwrap_or_default())
}

/// The start of the digest of bytes.
pub fn short_digest_of(bytes: &[u8]) -> String {
    let mut digest = digest(bytes);
    digest.truncate(SHORT);
    digest
}

/// FNV-1a over the text as Go's dump of a string shows it: the names ToolHive gives to the same files.
pub fn short_hash(text: &str) -> String {
    let hash = "(string)"
        .bytes()
        .chain(text.bytes())
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{hash:x}")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut hex, byte| {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}
