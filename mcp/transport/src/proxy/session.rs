//! What the proxy remembers of a session.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use http::HeaderValue;
use http_body::{Body as HttpBody, Frame, SizeHint};
use mcp_http::{Body, BoxError};

/// Handshakes longer than this are not remembered; their sessions end with the server that made them.
const MAX_HANDSHAKE: usize = 8 << 10;

/// One session: how it was opened and what the server calls it now.
#[derive(Debug)]
pub(super) struct Session {
    /// The body of the client's `initialize`; `None` when it was too long to keep.
    pub(super) handshake: Option<Bytes>,
    backend_id: Mutex<HeaderValue>,
    /// Held while the session is opened anew; when that was tried last.
    pub(super) reopened: tokio::sync::Mutex<Option<Instant>>,
}

impl Session {
    pub(super) fn new(backend_id: HeaderValue, handshake: Bytes) -> Self {
        // A copy, so that a small handshake does not keep a large buffer alive.
        let handshake = (handshake.len() <= MAX_HANDSHAKE).then(|| Bytes::copy_from_slice(&handshake));
        Self { handshake, backend_id: Mutex::new(backend_id), reopened: tokio::sync::Mutex::new(None) }
    }

    /// The server's id for the session.
    pub(super) fn backend_id(&self) -> HeaderValue {
        self.backend_id.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_backend_id(&self, id: HeaderValue) {
        *self.backend_id.lock().unwrap_or_else(PoisonError::into_inner) = id;
    }
}

/// A session that a request uses, and the client's id for it.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) id: HeaderValue,
    pub(super) session: Arc<Session>,
}

impl Held {
    /// Keeps the session from expiring for as long as the stream `body` is open.
    pub(super) fn hold(self, body: Body) -> Body {
        Body::new(HeldBody { body, _session: self.session })
    }
}

struct HeldBody {
    body: Body,
    _session: Arc<Session>,
}

impl HttpBody for HeldBody {
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
