//! The stream of a session.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::SelectAll;
use http_body::{Body as HttpBody, Frame};
use mcp_http::BoxError;
use mcp_store::Client;
use mcp_wire::sse::Event;
use tokio::sync::mpsc;

use super::Front;
use super::session::{Answer, Session};
use crate::front::events::{Events, NoCall};

/// Where to POST to, then the answers as they come and what belongs to no request, with comments that keep the connection open.
pub(super) struct SessionStream {
    endpoint: Option<Bytes>,
    arriving: mpsc::UnboundedReceiver<Answer>,
    answers: SelectAll<Answer>,
    told: Events<NoCall>,
    _open: Open,
}

/// A session that ends when this is dropped: when its client leaves. Then its answers have been dropped, which cancels its calls.
struct Open {
    front: Arc<Front>,
    id: Arc<str>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.front.sessions.close(&self.id);
        self.front.mux.forget(&self.id);
    }
}

impl SessionStream {
    pub(super) fn new(
        front: Arc<Front>,
        session: Session,
        client: Client,
        endpoint: &str,
        answers: mpsc::UnboundedReceiver<Answer>,
    ) -> Self {
        let endpoint =
            Event { event: Some("endpoint".to_owned()), data: Some(endpoint.to_owned()), ..Event::default() };
        Self {
            endpoint: Some(endpoint.encode().into()),
            arriving: answers,
            answers: SelectAll::new(),
            told: Events::new(front.mux.listeners.open(&session.id, client), None, NoCall),
            _open: Open { front, id: session.id },
        }
    }
}

impl HttpBody for SessionStream {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        if let Some(endpoint) = this.endpoint.take() {
            return Poll::Ready(Some(Ok(Frame::data(endpoint))));
        }
        while let Poll::Ready(Some(answer)) = this.arriving.poll_recv(cx) {
            this.answers.push(answer);
        }
        // That there are none at the moment is not the end.
        if let Poll::Ready(Some(event)) = this.answers.poll_next_unpin(cx) {
            return Poll::Ready(Some(event.map(Frame::data)));
        }
        Pin::new(&mut this.told).poll_frame(cx)
    }
}
