//! The body of a request, which has its time to arrive.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use mcp_http::BoxError;
use portcullis_listener::RequestBody;
use tokio::time::{Instant, Sleep};

/// How long a request may take to arrive when the document says nothing.
pub(crate) const READ: Duration = Duration::from_secs(30);
/// How long a body has while others wait for its place on the listener, and how often that is looked at.
const GRACE: Duration = Duration::from_secs(1);

/// A request body that must be complete within its deadline, and sooner while the listener is crowded. The time counts
/// from the first byte that is waited for.
#[derive(Debug)]
pub(crate) struct Upload {
    body: RequestBody,
    limit: Duration,
    waits: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl Upload {
    pub(crate) fn new(body: RequestBody, limit: Duration) -> Self {
        Self { body, limit, waits: None }
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
        let limit = this.limit;
        let (deadline, timer) = this.waits.get_or_insert_with(|| {
            let now = Instant::now();
            (now + limit, Box::pin(tokio::time::sleep(limit.min(GRACE))))
        });
        loop {
            ready!(timer.as_mut().poll(cx));
            let now = Instant::now();
            if now >= *deadline {
                return Poll::Ready(Some(Err("the request's body takes too long".into())));
            }
            if this.body.crowded().get() {
                return Poll::Ready(Some(Err("the request's body takes too long while others wait".into())));
            }
            timer.as_mut().reset((now + GRACE).min(*deadline));
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
