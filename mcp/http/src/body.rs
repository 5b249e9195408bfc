//! The one body type of requests and answers: making small bodies, reading whole ones.

use std::error::Error;

use bytes::{Bytes, BytesMut};
use http_body::Body as _;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError};

/// Any error that a body may end with.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// A body that is in memory or still arriving.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// Why a body was not read to its end.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// It is longer than allowed: answer 413.
    #[error("body is longer than {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// The sender went away or broke the framing: answer 400, if anyone still listens.
    #[error("body ended early: {0}")]
    Broken(BoxError),
}

/// A body of these bytes.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A body without bytes.
pub fn empty() -> Body {
    full(Bytes::new())
}

/// Reads `body` to its end, or up to `limit` bytes. A body that is one piece already is not copied.
///
/// A limit that another layer put on the body counts as [`CollectError::TooLarge`] too.
pub async fn collect(mut body: Body, limit: usize) -> Result<Bytes, CollectError> {
    if body.size_hint().lower() > limit as u64 {
        return Err(CollectError::TooLarge { limit });
    }
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let data = match frame {
            Ok(frame) => frame.into_data().unwrap_or_default(),
            Err(error) if is_length_limit(&*error) => return Err(CollectError::TooLarge { limit }),
            Err(error) => return Err(CollectError::Broken(error)),
        };
        if first.len() + rest.len() + data.len() > limit {
            return Err(CollectError::TooLarge { limit });
        }
        if first.is_empty() && rest.is_empty() {
            first = data;
        } else {
            if rest.is_empty() {
                rest.extend_from_slice(&std::mem::take(&mut first));
            }
            rest.extend_from_slice(&data);
        }
    }
    Ok(if rest.is_empty() { first } else { rest.freeze() })
}

/// Whether a layer that bounds the body ended it.
pub fn is_length_limit(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<LengthLimitError>() {
            return true;
        }
        cause = error.source();
    }
    false
}
