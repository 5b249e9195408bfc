//! The body of a request, and what its reader should know of the listener.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::timeout;

/// How long, and how much in bytes, of a body is read that nobody wants.
const LINGER: Duration = Duration::from_millis(500);
const DISCARDED: usize = 8 * 1024 * 1024;

/// The body of a request, as it comes in.
#[derive(Debug)]
pub struct RequestBody {
    incoming: Incoming,
    crowded: Crowded,
}

impl RequestBody {
    pub(super) fn new(incoming: Incoming, crowded: Crowded) -> Self {
        Self { incoming, crowded }
    }

    /// Tells whether others wait for a place on the listener: a slow peer should lose its own then.
    pub(crate) fn crowded(&self) -> Crowded {
        self.crowded.clone()
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.incoming).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

/// Whether connections came for which there was no place, and there still is none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Crowded(Arc<AtomicBool>);

impl Crowded {
    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, crowded: bool) {
        self.0.store(crowded, Ordering::Relaxed);
    }
}

/// Takes what a peer is still sending, within bounds; true when that was all. Closing a socket with unread bytes in it
/// resets the connection, and the peer would lose the answer that says why.
pub(crate) async fn discard<B: Body<Data = Bytes> + Send>(body: B) -> bool {
    let mut body = pin!(body);
    let rest = async {
        let mut left = DISCARDED;
        while let Some(frame) = body.frame().await {
            left = left.saturating_sub(frame.ok()?.data_ref().map_or(0, Bytes::len));
            if left == 0 {
                return None;
            }
        }
        Some(())
    };
    matches!(timeout(LINGER, rest).await, Ok(Some(())))
}
