//! A list in an answer, shown to somebody who only looks: the answer passes byte for byte and is not held up, whatever becomes of the look.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use http_body::{Body as HttpBody, Frame, SizeHint};
use mcp_http::{Body, BoxError};
use mcp_store::Share;
use mcp_wire::sse::Decoder;
use mcp_wire::{List, ListKind};
use tokio::runtime::Handle;

use super::content::Content;
use crate::bodies::beside;
use crate::shadows::Run;

/// The longest answer, and the longest event, that is looked at, in bytes.
pub const LOOKED_AT: usize = 1 << 20;

/// A look at the list in the answer to a request.
pub struct ListLook {
    /// The kinds of lists.
    pub kinds: &'static [ListKind],
    /// The work for one entry, as the bytes of a text that take as long to read.
    pub cost: usize,
    /// A share of somebody's for [`LOOKED_AT`] bytes.
    pub share: Share,
    /// Held until nothing is looked at any more.
    pub run: Run,
    /// The look at a list, or the reason why there is none to be read.
    pub look: Box<dyn Fn(Result<List, &'static str>) + Send + Sync>,
}

impl fmt::Debug for ListLook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListLook").field("kinds", &self.kinds).finish_non_exhaustive()
    }
}

/// An answer that is looked at.
struct Looked {
    body: Body,
    reading: Reading,
    look: Arc<ListLook>,
}

/// The part that was read.
enum Reading {
    Whole(Vec<u8>),
    Events(Box<Decoder>),
    /// Nothing more is read.
    Over,
}

const TOO_LONG: &str = "it is longer than 1 MiB";

/// Looks at the answer while it passes.
pub(crate) fn looked_at(response: Response<Body>, look: ListLook) -> Response<Body> {
    let reading = match Content::of(&response) {
        Content::Unread => return response,
        Content::Unreadable(reason) => {
            (look.look)(Err(reason));
            return response;
        }
        Content::Events => Reading::Events(Box::new(Decoder::new(LOOKED_AT))),
        Content::Json | Content::Unknown => Reading::Whole(Vec::new()),
    };
    response.map(|body| Body::new(Looked { body, reading, look: Arc::new(look) }))
}

impl Looked {
    fn read(&mut self, data: &[u8]) {
        match &mut self.reading {
            Reading::Whole(text) if text.len() + data.len() <= LOOKED_AT => text.extend_from_slice(data),
            Reading::Events(decoder) => match decoder.push(data) {
                Ok(events) => {
                    let look = &self.look;
                    events.into_iter().filter_map(|event| event.data).for_each(|data| show(look, data.into()));
                }
                Err(_) => self.fail(TOO_LONG),
            },
            Reading::Whole(_) => self.fail(TOO_LONG),
            Reading::Over => {}
        }
    }

    fn fail(&mut self, reason: &'static str) {
        self.reading = Reading::Over;
        (self.look.look)(Err(reason));
    }

    fn end(&mut self) {
        if let Reading::Whole(text) = std::mem::replace(&mut self.reading, Reading::Over) {
            show(&self.look, text.into());
        }
    }
}

/// Shows the list in a text, if there is one, beside the answer.
fn show(look: &Arc<ListLook>, text: Bytes) {
    let (Ok(runtime), look) = (Handle::try_current(), Arc::clone(look)) else { return };
    runtime.spawn(async move {
        let (length, kinds) = (text.len(), look.kinds);
        match beside(length, move || List::read(text, kinds)).await {
            Ok(None) => {}
            Err(reason) => (look.look)(Err(reason)),
            Ok(Some(list)) => {
                let work = length.max(list.entries().len().saturating_mul(look.cost));
                beside(work, move || (look.look)(Ok(list))).await;
            }
        }
    });
}

impl HttpBody for Looked {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        match &frame {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    self.read(data);
                }
                if self.body.is_end_stream() {
                    self.end();
                }
            }
            Poll::Ready(None) => self.end(),
            Poll::Ready(Some(Err(_))) => self.reading = Reading::Over,
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
