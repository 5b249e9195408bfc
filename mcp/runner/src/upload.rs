//! The body of a request, which gives way while others wait for its place.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use mcp_http::{BoxError, TooSlow};
use mcp_listener::RequestBody;
use tokio::time::{Instant, Sleep};

/// The time that a body has while others wait for its slot on the listener, and the interval of checking it.
const GRACE: Duration = Duration::from_secs(1);

/// A request body that must go on while the listener is crowded. Whoever reads it has a deadline for the whole
/// ([`ProxySettings::read_timeout`](mcp_middleware::ProxySettings)).
#[derive(Debug)]
pub(crate) struct Upload {
    body: RequestBody,
    /// Since the first byte that was waited for.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Upload {
    pub(crate) fn new(body: RequestBody) -> Self {
        Self { body, timer: None }
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(BoxError::from)));
        }
        let timer = this.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(GRACE)));
        loop {
            ready!(timer.as_mut().poll(cx));
            if this.body.crowded().get() {
                return Poll::Ready(Some(Err(TooSlow.into())));
            }
            timer.as_mut().reset(Instant::now() + GRACE);
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
