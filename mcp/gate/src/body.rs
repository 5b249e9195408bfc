//! The one body type of requests and responses.

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};

/// Any error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A body that may be in memory or still arriving.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// A body that is in memory.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A body without bytes.
pub fn empty() -> Body {
    full(Bytes::new())
}
