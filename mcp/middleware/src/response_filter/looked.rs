//! A look at an answer: the answer passes byte for byte and is not held up, and a copy of it goes through filters that decide nothing.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::stream;
use http::Response;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::{BodyExt as _, StreamBody};
use mcp_http::{Body, BoxError, Budget, Share};
use mcp_store::{Client, Share as Place, Shares};
use mcp_wire::{List, Message, OwnedMessage};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::content::Content;
use super::filters::{Filters, ListFilter};
use super::{BROKEN, NO_ROOM, filter_response};
use crate::shadows::Shadows;

/// Filters that look at the answer to one request.
pub struct Look {
    filters: Filters,
    client: Client,
    pieces: Arc<Shares>,
    held: Share,
    shadows: Arc<Shadows>,
    missed: Arc<dyn Fn(Missed) + Send + Sync>,
}

/// The fate of a text that filters which look have not passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// In force they withhold it, for this reason.
    Withheld(&'static str),
    /// They were not shown it, as there was no room for it.
    Dropped,
}

/// An answer that passes.
struct Looked {
    body: Body,
    /// Takes the copy; none where nobody reads it any more.
    copy: Option<UnboundedSender<Copied>>,
    client: Client,
    pieces: Arc<Shares>,
    missed: Arc<dyn Fn(Missed) + Send + Sync>,
}

/// A part of a copy.
enum Copied {
    Piece(Piece),
    End,
}

/// A piece of a copy, with its share of the memory for pieces.
struct Piece {
    bytes: Bytes,
    _place: Place,
}

// === impl Look ===

impl Look {
    /// A look at the answer to a request of `client`, with nothing registered yet. The pieces of the copy that are under way take shares of
    /// `pieces`, and what filters hold of it counts in `held`. `missed` is told of each text that the filters do not pass.
    pub fn new(
        client: Client,
        shadows: Arc<Shadows>,
        pieces: &Arc<Shares>,
        held: &Budget,
        missed: impl Fn(Missed) + Send + Sync + 'static,
    ) -> Self {
        Self {
            filters: Filters::default(),
            held: held.share(client.clone()),
            client,
            pieces: Arc::clone(pieces),
            shadows,
            missed: Arc::new(missed),
        }
    }

    /// Registers a filter of lists, as [`RequestContext::filter_lists`](crate::RequestContext::filter_lists) does. Nobody gets what it leaves.
    #[must_use]
    pub fn at_lists<F>(mut self, filter: ListFilter, edit: impl Fn(List) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<List, &'static str>> + Send + 'static,
    {
        self.filters.add(filter, edit);
        self
    }

    /// Registers a watcher, as [`RequestContext::watch_messages`](crate::RequestContext::watch_messages) does.
    #[must_use]
    pub fn at_messages(mut self, watch: impl Fn(Option<&Arc<str>>, &Message<'_>) + Send + Sync + 'static) -> Self {
        self.filters.watch(watch);
        self
    }
}

impl fmt::Debug for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Look").field("filters", &self.filters).finish_non_exhaustive()
    }
}

/// Looks at the answer to a request with this message, in this session, while it passes. Where there is no message, only a stream of events is looked at.
pub(crate) fn looked_at(
    response: Response<Body>,
    look: Look,
    message: Option<OwnedMessage>,
    session: Option<Arc<str>>,
) -> Response<Body> {
    let content = Content::of(&response);
    let is_read = content == Content::Events || message.is_some() && content != Content::Unread;
    let Some(runtime) = Handle::try_current().ok().filter(|_| is_read && !response.body().is_end_stream()) else {
        return response;
    };
    let Look { mut filters, client, pieces, held, shadows, missed } = look;
    filters.session = session;
    let id = message.as_ref().and_then(OwnedMessage::id).map(|id| id.raw().into());
    let (sender, receiver) = unbounded_channel();
    let (head, body) = response.into_parts();
    let mut copy = Response::new(copied(receiver));
    (*copy.status_mut(), *copy.headers_mut()) = (head.status, head.headers.clone());
    let (under_way, told) = (shadows.run(), Arc::clone(&missed));
    let told = move |reason| match reason {
        // No client gets such an answer, whoever filters it.
        BROKEN => {}
        NO_ROOM => told(Missed::Dropped),
        _ => told(Missed::Withheld(reason)),
    };
    runtime.spawn(async move {
        let (filtered, _) = filter_response(filters, copy, id, held, Some(Arc::new(told))).await;
        let mut filtered = filtered.into_body();
        while let Some(Ok(_)) = filtered.frame().await {}
        drop(under_way);
    });
    Response::from_parts(head, Body::new(Looked { body, copy: Some(sender), client, pieces, missed }))
}

/// The body of a copy. It breaks off where the client leaves before the end.
fn copied(pieces: UnboundedReceiver<Copied>) -> Body {
    let next = async |mut pieces: UnboundedReceiver<Copied>| match pieces.recv().await {
        Some(Copied::Piece(piece)) => Some((Ok(Frame::data(piece.bytes)), pieces)),
        Some(Copied::End) => None,
        None => Some((Err(BoxError::from(BROKEN)), pieces)),
    };
    Body::new(StreamBody::new(stream::unfold(pieces, next)))
}

// === impl Looked ===

impl Looked {
    fn copy(&mut self, piece: &Bytes) {
        let Some(copy) = self.copy.take() else { return };
        match self.pieces.take(&self.client, piece.len()) {
            // The one who looks may have had enough of it.
            Some(place) => {
                let piece = Piece { bytes: piece.clone(), _place: place };
                self.copy = copy.send(Copied::Piece(piece)).is_ok().then_some(copy);
            }
            None => (self.missed)(Missed::Dropped),
        }
    }

    fn end(&mut self) {
        if let Some(copy) = self.copy.take() {
            // The one who looks may have had enough of it.
            let _ = copy.send(Copied::End);
        }
    }
}

impl HttpBody for Looked {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        match &frame {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(piece) = frame.data_ref() {
                    self.copy(piece);
                }
                if self.body.is_end_stream() {
                    self.end();
                }
            }
            Poll::Ready(None) => self.end(),
            Poll::Ready(Some(Err(_))) => self.copy = None,
            Poll::Pending => {}
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
