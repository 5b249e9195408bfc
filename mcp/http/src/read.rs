//! Reading a body whole, within limits of length, time and memory.

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
    #[error("the body is too long")]
    TooLong,
    /// It did not arrive in time.
    #[error("the body arrives too slowly")]
    TooSlow,
    /// Too many bytes of bodies are held already.
    #[error("no room for another body")]
    NoRoom,
    /// The sender went away or broke the framing.
    #[error("the body ended early: {0}")]
    Broken(BoxError),
}

/// The sender takes too long, as whoever passes on a body finds: an error that a body may end with.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the body arrives too slowly")]
pub struct TooSlow;

impl ReadError {
    /// The answer to the client. The contract (toolhive-0.63 §4.1) has 413, and 400 for what cannot be read; 408 and 503 say that a bound of
    /// the proxy ended it, so that the client may send it again.
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
            Some(Err(error)) if error.is::<TooSlow>() => return Err(ReadError::TooSlow),
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
            // No more than is to come, where that is known: what is reserved counts.
            let to_come = body.size_hint().upper().and_then(|bytes| usize::try_from(bytes).ok());
            let most = to_come.map_or(limit, |bytes| length.saturating_add(bytes).min(limit));
            let capacity = length.max(2 * read.capacity()).min(most);
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
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use futures::{StreamExt as _, stream};
    use http_body::{Frame, SizeHint};
    use http_body_util::StreamBody;
    use mcp_store::Client;

    use super::*;
    use crate::{Bounds, Budget, full};

    const CLIENT: Client = Client::Network(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST));
    const TIME: Duration = Duration::from_secs(30);

    fn half(total: usize) -> Bounds {
        Bounds { total, client: total / 2, free: 0 }
    }

    fn pieces(pieces: &'static [&'static str], ends: bool) -> Body {
        let frames = stream::iter(pieces.iter().map(|piece| Ok(Frame::data(Bytes::from_static(piece.as_bytes())))));
        let rest = if ends { stream::empty().left_stream() } else { stream::pending().right_stream() };
        StreamBody::new(frames.chain(rest)).boxed_unsync()
    }

    /// A body of which it is known how much is to come.
    struct Announced {
        body: Body,
        left: u64,
    }

    impl http_body::Body for Announced {
        type Data = Bytes;
        type Error = BoxError;

        fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
            let frame = Pin::new(&mut self.body).poll_frame(cx);
            if let Poll::Ready(Some(Ok(frame))) = &frame {
                self.left -= frame.data_ref().map_or(0, |data| data.len() as u64);
            }
            frame
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(self.left)
        }
    }

    #[tokio::test]
    async fn a_body_is_read_whole_and_one_in_one_piece_is_not_copied() {
        let budget = Budget::new(half(1 << 20));
        let bytes = Bytes::from_static(b"whole");
        let mut share = budget.share(CLIENT);
        let read_back = read(full(bytes.clone()), 5, TIME, &mut share).await.unwrap();
        assert_eq!(read_back.as_ptr(), bytes.as_ptr());
        assert_eq!(budget.used(), 5);
        drop(share);
        let mut share = budget.share(CLIENT);
        assert_eq!(read(pieces(&["a", "", "bc"], true), 3, TIME, &mut share).await.unwrap(), "abc");
        // As long as it is announced, and not twice as long.
        let (before, mut share) = (budget.used(), budget.share(CLIENT));
        let announced = Announced { body: pieces(&["abcdefgh", "ij", "k"], true), left: 11 };
        assert_eq!(read(Body::new(announced), 100, TIME, &mut share).await.unwrap(), "abcdefghijk");
        assert_eq!(budget.used(), before + 11);
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
            let budget = Budget::new(half(total));
            let error = read(body, limit, TIME, &mut budget.share(CLIENT)).await.unwrap_err();
            assert_eq!(error.answer().status(), status, "{error}");
            assert_eq!(budget.used(), 0);
        }
    }

    #[tokio::test]
    async fn a_slow_upload_ends_when_another_request_needs_its_room() {
        let budget = Budget::new(half(20));
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
