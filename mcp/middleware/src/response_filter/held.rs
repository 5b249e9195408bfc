//! Bytes that were filtered, on their way to a client that may be slow.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::{Body as HttpBody, Frame, SizeHint};
use mcp_http::{Body, BoxError, Kept, NoRoom, Share, full};

/// The largest write to the connection, in bytes. The connection holds a few times as much of any body.
const PIECE: usize = 64 << 10;

/// The body of these bytes, which count in `share` until they are sent.
pub(super) fn held(bytes: Bytes, mut share: Share) -> Result<Body, NoRoom> {
    if bytes.len() <= PIECE {
        return Ok(full(bytes));
    }
    let left = bytes.len();
    share.put(Kept { ready: bytes, unfinished: BytesMut::new() })?;
    Ok(Body::new(Held { share, sent: 0, left }))
}

/// The next piece of `ready`, of which `sent` bytes went before.
///
/// Pieces are copies, so that the connection does not keep the whole alive where it has to give way.
pub(super) fn next_piece(ready: &mut Bytes, sent: &mut usize) -> Option<Bytes> {
    if ready.len() <= PIECE {
        return Some(std::mem::take(ready)).filter(|piece| !piece.is_empty());
    }
    let end = ready.len().min(*sent + PIECE);
    let piece = Bytes::copy_from_slice(&ready[*sent..end]);
    *sent = end;
    if end == ready.len() {
        (*ready, *sent) = (Bytes::new(), 0);
    }
    Some(piece)
}

struct Held {
    share: Share,
    sent: usize,
    left: usize,
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        if this.left == 0 {
            return Poll::Ready(None);
        }
        Poll::Ready(Some(this.next().map(Frame::data).map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left as u64)
    }
}

impl Held {
    fn next(&mut self) -> Result<Bytes, NoRoom> {
        let mut kept = self.share.take()?;
        let piece = next_piece(&mut kept.ready, &mut self.sent).ok_or(NoRoom)?;
        self.left -= piece.len();
        self.share.put(kept)?;
        Ok(piece)
    }
}
