//! The bodies of a request and of its answer.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use portcullis_listener::{BoxError, Crowded, discard};

use crate::connection::{Busy, Connection, Told};

/// The body of a request, streamed as it arrives.
#[derive(Debug)]
pub struct RequestBody {
    incoming: Incoming,
    connection: Connection,
}

impl RequestBody {
    pub(crate) fn new(incoming: Incoming, connection: Connection) -> Self {
        Self { incoming, connection }
    }

    /// Returns the address of the client.
    pub fn peer(&self) -> SocketAddr {
        self.connection.peer()
    }

    /// Returns a flag that tells whether new connections wait for a slow client's to close.
    pub fn crowded(&self) -> Crowded {
        self.connection.crowded().clone()
    }

    /// [Discards](discard) the rest, and stops when another connection needs the place of this one.
    pub async fn discard(self) -> bool {
        let connection = self.connection.clone();
        let mut rest = pin!(discard(self));
        poll_fn(|cx: &mut Context<'_>| match connection.told() {
            Told::Stay | Told::LastAnswer => rest.as_mut().poll(cx),
            Told::Leave | Told::End | Told::Cut | Told::Close => Poll::Ready(false),
        })
        .await
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

/// The body of an answer, the handler's or our own. Its connection is at work until it is complete or dropped.
pub(crate) struct Answer<B> {
    pub(crate) body: Either<B, Full<Bytes>>,
    pub(crate) _busy: Busy,
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin> Body for Answer<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
