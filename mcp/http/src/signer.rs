//! The signature of what the MCP server gets.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;

/// Signs requests to the MCP server.
pub trait Sign: Send + Sync + 'static {
    /// Adds the signature of a request that is sent as it is: with its `Host`, and with the path and the query alone for its URI.
    ///
    /// # Errors
    /// A sentence about what cannot be signed.
    fn sign(&self, head: &mut Parts, body: &Bytes) -> Result<(), String>;
}

/// Signs all that is sent to the MCP server for the sake of one request. A middleware leaves it among the extensions of the request; the transport,
/// which alone knows the path, the headers and the body of what it sends, has every attempt signed, and its own messages in the session.
#[derive(Clone)]
pub struct Signer(Arc<dyn Sign>);

impl Signer {
    /// Signs as `sign` does.
    pub fn new(sign: impl Sign) -> Self {
        Self(Arc::new(sign))
    }

    /// Signs a request: see [`Sign::sign`].
    ///
    /// # Errors
    /// A sentence about what cannot be signed.
    pub fn sign(&self, head: &mut Parts, body: &Bytes) -> Result<(), String> {
        self.0.sign(head, body)
    }
}

/// Without what it signs with.
impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").finish_non_exhaustive()
    }
}
