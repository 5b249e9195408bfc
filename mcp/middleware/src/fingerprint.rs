//! Names of tokens.

use aws_lc_rs::digest::{SHA256, digest};

/// The name by which a token is known, or a use of it: a hash, so that memory holds no usable token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The fingerprint of `text`.
    pub fn of(text: &str) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
        Self(bytes)
    }

    /// The hash.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}
