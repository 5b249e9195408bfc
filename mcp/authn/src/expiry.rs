//! Streams end when the token that opened them does: what follows is for who holds a newer one.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use mcp_http::{Body, BoxError, is_type};
use mcp_middleware::Identity;
use tokio::time::{Sleep, sleep};

/// The time for which the answer to a call may outlast its token: a call that was let in may end, where tokens live for
/// less time than it takes.
pub(crate) const CALL: Duration = Duration::from_mins(10);

/// The request that an answer is to.
#[derive(Debug)]
pub(crate) struct Opened {
    /// Whether it is a call: its answer ends by itself, unless it is a stream of events.
    pub(crate) by_call: bool,
    pub(crate) client: IpAddr,
    pub(crate) caller: Arc<Identity>,
    pub(crate) method: Method,
}

/// `response`, whose body ends after `left` where it is a stream of events, or belongs to no call.
pub(crate) fn end_after(left: Duration, opened: Opened, response: Response<Body>) -> Response<Body> {
    let events = is_type(response.headers(), "text/event-stream");
    if opened.by_call && !events {
        return response;
    }
    response.map(|body| Body::new(Expiring { body: Some(body), events, opened, expired: Box::pin(sleep(left)) }))
}

struct Expiring {
    /// `None` when the time is up: whoever sends the rest learns that nobody reads it.
    body: Option<Body>,
    /// A stream of events may end anywhere. Anything else breaks off, so that no part of it is taken for the whole.
    events: bool,
    opened: Opened,
    expired: Pin<Box<Sleep>>,
}

impl HttpBody for Expiring {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        // Before the body: one that always has something to send ends as well.
        if this.body.is_some() && this.expired.as_mut().poll(cx).is_ready() {
            this.body = None;
            let Opened { client, caller, method, .. } = &this.opened;
            tracing::info!(%client, subject = caller.subject, %method, "a stream was ended: the token that opened it expired");
            if !this.events {
                return Poll::Ready(Some(Err("the token that opened it expired".into())));
            }
        }
        match &mut this.body {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        // It may be cut short, so it has no exact length.
        let upper = self.body.as_ref().map_or(Some(0), |body| body.size_hint().upper());
        let mut hint = SizeHint::new();
        if let Some(upper) = upper {
            hint.set_upper(upper);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use futures::{StreamExt as _, stream};
    use http::header::CONTENT_TYPE;
    use http_body_util::{BodyExt as _, StreamBody};
    use tokio::time::{Instant, timeout};

    use super::*;

    const LEFT: Duration = Duration::from_secs(90);

    fn response(by_call: bool, content_type: &'static str, body: Body) -> Response<Body> {
        let (client, method) = (IpAddr::from([127, 0, 0, 1]), Method::GET);
        let opened = Opened { by_call, client, caller: Arc::default(), method };
        let mut response = Response::new(body);
        response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(content_type));
        end_after(LEFT, opened, response)
    }

    fn event() -> Frame<Bytes> {
        Frame::data(Bytes::from_static(b"data: 1\n\n"))
    }

    /// One event, and silence.
    fn idle() -> Body {
        Body::new(StreamBody::new(stream::iter([Ok(event())]).chain(stream::pending())))
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_of_events_ends_cleanly_when_its_time_is_up() {
        let busy = Body::new(StreamBody::new(stream::unfold((), async |()| {
            tokio::task::yield_now().await;
            tokio::time::advance(Duration::from_secs(1)).await;
            Some((Ok::<_, BoxError>(event()), ()))
        })));
        for (by_call, body) in [(false, idle()), (true, idle()), (true, busy)] {
            let started = Instant::now();
            let mut body = response(by_call, "text/event-stream", body).into_body();
            assert!(body.frame().await.unwrap().is_ok(), "it passes until then");
            while let Some(frame) = body.frame().await {
                frame.unwrap();
            }
            assert!(started.elapsed() >= LEFT && started.elapsed() < LEFT * 2, "{:?}", started.elapsed());
            assert!(body.is_end_stream());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn any_other_body_breaks_off_when_its_time_is_up_unless_it_answers_a_call() {
        let mut body = response(false, "application/octet-stream", idle()).into_body();
        assert!(body.frame().await.unwrap().is_ok(), "it passes until then");
        let started = Instant::now();
        assert!(body.frame().await.unwrap().is_err(), "nobody takes it for the whole");
        assert!(started.elapsed() >= LEFT && started.elapsed() < LEFT * 2, "{:?}", started.elapsed());
        assert!(body.frame().await.is_none());
        let mut body = response(true, "application/octet-stream", idle()).into_body();
        assert!(body.frame().await.unwrap().is_ok());
        assert!(timeout(LEFT * 10, body.frame()).await.is_err(), "it goes on");
    }
}
