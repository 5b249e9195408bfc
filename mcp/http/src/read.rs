//! Reading a request's body whole, within limits of length, time and memory.

use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt;
use mcp_wire::{ErrorBody, code};
use tokio::time::{Instant, timeout_at};

use crate::answer::{json_error, text};
use crate::body::{Body, BoxError, is_length_limit};
use crate::budget::{NoRoom, Share};

/// Why a body was not read to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// It is longer than allowed.
    #[error("the request body is too long")]
    TooLong,
    /// It did not arrive in time.
    #[error("the request body arrives too slowly")]
    TooSlow,
    /// Too many bytes of bodies are held already.
    #[error("no room for another request body")]
    NoRoom,
    /// The sender went away or broke the framing.
    #[error("the request body ended early: {0}")]
    Broken(BoxError),
}

impl ReadError {
    /// The answer to the client (toolhive-0.63 §4.1).
    pub fn answer(&self) -> Response<Body> {
        match self {
            Self::TooLong => text(StatusCode::PAYLOAD_TOO_LARGE, "Request Entity Too Large"),
            Self::TooSlow => text(StatusCode::REQUEST_TIMEOUT, "Request Timeout"),
            Self::NoRoom => text(StatusCode::SERVICE_UNAVAILABLE, "Too Many Request Bodies"),
            Self::Broken(_) => {
                let error = ErrorBody::new(code::INVALID_REQUEST, "Failed to read request body");
                json_error(StatusCode::BAD_REQUEST, &error)
            }
        }
    }
}

impl From<NoRoom> for ReadError {
    fn from(NoRoom: NoRoom) -> Self {
        Self::NoRoom
    }
}

/// Reads `body` to its end: at most `limit` bytes, within `time`, counted in `share`. A body that is one piece is not copied.
///
/// # Errors
/// The limit that it exceeds, or how it ended early.
pub async fn read(mut body: Body, limit: usize, time: Duration, share: &mut Share) -> Result<Bytes, ReadError> {
    if body.size_hint().lower() > limit as u64 {
        return Err(ReadError::TooLong);
    }
    let deadline = Instant::now() + time;
    let mut read = Vec::new();
    loop {
        let frame = tokio::select! {
            biased;
            () = share.ended() => return Err(ReadError::NoRoom),
            frame = timeout_at(deadline, body.frame()) => frame.map_err(|_| ReadError::TooSlow)?,
        };
        let piece = match frame {
            None => break,
            // Trailers go no further.
            Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
            Some(Err(error)) if is_length_limit(&*error) => return Err(ReadError::TooLong),
            Some(Err(error)) => return Err(ReadError::Broken(error)),
        };
        let length = read.len() + piece.len();
        if length > limit {
            return Err(ReadError::TooLong);
        }
        if read.is_empty() && body.is_end_stream() {
            share.grow(length)?;
            share.arrived()?;
            return Ok(piece);
        }
        // Copied even where it may turn out to be all: the piece keeps the whole buffer of the connection.
        if length > read.capacity() {
            let capacity = length.max(2 * read.capacity()).min(limit);
            share.grow(capacity - read.capacity())?;
            read.reserve_exact(capacity - read.len());
        }
        read.extend_from_slice(&piece);
    }
    share.arrived()?;
    Ok(read.into())
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use futures::{StreamExt as _, stream};
    use http_body::Frame;
    use http_body_util::StreamBody;

    use super::*;
    use crate::{Budget, full};

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const TIME: Duration = Duration::from_secs(30);

    fn pieces(pieces: &'static [&'static str], ends: bool) -> Body {
        let frames = stream::iter(pieces.iter().map(|piece| Ok(Frame::data(Bytes::from_static(piece.as_bytes())))));
        let rest = if ends { stream::empty().left_stream() } else { stream::pending().right_stream() };
        StreamBody::new(frames.chain(rest)).boxed_unsync()
    }

    #[tokio::test]
    async fn a_body_is_read_whole_and_one_in_one_piece_is_not_copied() {
        let budget = Budget::new(1 << 20);
        let bytes = Bytes::from_static(b"whole");
        let mut share = budget.share(CLIENT);
        let read_back = read(full(bytes.clone()), 5, TIME, &mut share).await.unwrap();
        assert_eq!(read_back.as_ptr(), bytes.as_ptr());
        assert_eq!(budget.used(), 5);
        drop(share);
        let mut share = budget.share(CLIENT);
        assert_eq!(read(pieces(&["a", "", "bc"], true), 3, TIME, &mut share).await.unwrap(), "abc");
        assert_eq!(read(crate::empty(), 0, TIME, &mut budget.share(CLIENT)).await.unwrap(), "");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_is_too_long_too_slow_or_without_room_is_refused_each_in_its_way() {
        for (body, limit, total, status) in [
            (full("abcd"), 3, 100, 413),
            (pieces(&["ab", "cd"], true), 3, 100, 413),
            (pieces(&["ab"], false), 3, 100, 408),
            (full("abcd"), 9, 7, 503),
        ] {
            let budget = Budget::new(total);
            let error = read(body, limit, TIME, &mut budget.share(CLIENT)).await.unwrap_err();
            assert_eq!(error.answer().status(), status, "{error}");
            assert_eq!(budget.used(), 0);
        }
    }

    #[tokio::test]
    async fn a_slow_upload_ends_when_another_request_needs_its_room() {
        let budget = Budget::new(20);
        let mut share = budget.share(CLIENT);
        let slow = read(pieces(&["12345678"], false), 10, TIME, &mut share);
        let quick = async {
            while budget.used() == 0 {
                tokio::task::yield_now().await;
            }
            read(full("quick"), 10, TIME, &mut budget.share(CLIENT)).await
        };
        let (slow, quick) = tokio::join!(slow, quick);
        assert!(matches!(slow, Err(ReadError::NoRoom)), "{slow:?}");
        assert_eq!(quick.unwrap(), "quick");
    }
}
