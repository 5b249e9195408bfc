//! `mcp-parser`: reads each message once, for the steps further in (toolhive-runner §2.11).

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Frame;
use mcp_http::{Body, BoxError, full, json, json_error, text};
use mcp_wire::{ErrorBody, Kind, Message, MessageError, code, headers};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::chain::{Next, Step};

/// How long a client may take to send its message.
const BODY_DEADLINE: Duration = Duration::from_secs(30);
/// Bytes of messages that are in memory at once, whoever sent them: eight of the longest that `bodylimit` lets pass unless told otherwise.
const MEMORY: usize = 64 << 20;

/// A client's message, read: a request extension that `mcp-parser` sets and mutating webhooks renew.
///
/// A step that changes the request's body must replace this too.
#[derive(Clone, Debug)]
pub struct Parsed {
    body: Bytes,
    kind: Kind,
    method: Option<Box<str>>,
    id: Option<Box<str>>,
}

impl Parsed {
    /// Reads `body`, and refuses what two parsers could read differently.
    pub fn read(body: Bytes) -> Result<Self, MessageError> {
        let message = Message::parse_strict(&body)?;
        let kind = message.kind();
        let method = message.method().map(Into::into);
        let id = message.id().map(|id| id.raw().into());
        Ok(Self { body, kind, method, id })
    }

    /// The whole body, as the request now carries it.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// Request, notification or response.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The method; `None` for responses.
    pub fn method(&self) -> Option<&str> {
        self.method.as_deref()
    }

    /// The id as JSON text; `None` for notifications.
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }
}

/// Reads the message of every POST, refuses batches and headers that mirror another message, and marks what it could read with [`Parsed`].
///
/// What it cannot read it hands on unmarked, for the backend to answer; webhooks refuse it.
pub(crate) struct Parser {
    /// Longest body that is read, in bytes.
    limit: usize,
    /// What is left of [`MEMORY`].
    memory: Arc<Semaphore>,
}

impl Parser {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, memory: Arc::new(Semaphore::new(MEMORY.max(limit))) }
    }

    /// The whole body, and its share of the memory, which is free again when that is dropped; `Err` holds the answer to a body that is too long, too
    /// slow or broken off, or for which there is no room.
    async fn read(&self, body: Body) -> Result<(Bytes, Option<OwnedSemaphorePermit>), Response<Body>> {
        let mut body = Limited::new(body, self.limit);
        let (mut first, mut rest) = (Bytes::new(), BytesMut::new());
        let mut share: Option<OwnedSemaphorePermit> = None;
        let deadline = Instant::now() + BODY_DEADLINE;
        loop {
            let Ok(frame) = timeout_at(deadline, body.frame()).await else {
                return Err(text(StatusCode::REQUEST_TIMEOUT, "Request Timeout"));
            };
            let Some(frame) = frame else { break };
            let piece = match frame.map(Frame::into_data) {
                Ok(Ok(piece)) => piece,
                // Trailers: they go no further.
                Ok(Err(_)) => continue,
                Err(error) => return Err(unreadable(&error)),
            };
            let size = u32::try_from(piece.len()).unwrap_or(u32::MAX);
            let Ok(more) = Arc::clone(&self.memory).try_acquire_many_owned(size) else {
                tracing::warn!("no room for another request body");
                return Err(text(StatusCode::SERVICE_UNAVAILABLE, "Too Many Request Bodies"));
            };
            match &mut share {
                Some(share) => share.merge(more),
                None => share = Some(more),
            }
            // A body that comes in one piece is not copied.
            if first.is_empty() {
                first = piece;
            } else {
                if rest.is_empty() {
                    rest.extend_from_slice(&first);
                }
                rest.extend_from_slice(&piece);
            }
        }
        Ok((if rest.is_empty() { first } else { rest.freeze() }, share))
    }
}

impl Step for Parser {
    fn call<'a>(&'a self, request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        if request.method() != Method::POST {
            return next.call(request);
        }
        async move {
            let (mut head, body) = request.into_parts();
            let (body, _share) = match self.read(body).await {
                Ok(read) => read,
                Err(refusal) => return refusal,
            };
            match Parsed::read(body.clone()) {
                Ok(parsed) => {
                    if let Some(refusal) = mirror_refusal(&head.headers, &body) {
                        return refusal;
                    }
                    head.extensions.insert(parsed);
                }
                Err(MessageError::Batch) => return json_error(StatusCode::BAD_REQUEST, &ErrorBody::batch()),
                Err(error @ MessageError::Ambiguous(_)) => {
                    let message = error.to_string();
                    return json_error(StatusCode::BAD_REQUEST, &ErrorBody::new(code::INVALID_REQUEST, &message));
                }
                Err(error) => tracing::debug!(%error, "a request body is not a JSON-RPC message"),
            }
            next.call(Request::from_parts(head, full(body))).await
        }
        .boxed()
    }
}

/// The answer to headers that mirror another message than the one that will be judged.
fn mirror_refusal(head: &HeaderMap, body: &[u8]) -> Option<Response<Body>> {
    let said = [headers::METHOD, headers::NAME].iter().any(|name| head.contains_key(name));
    let message = if said { Message::parse(body).ok()? } else { return None };
    let mismatch = headers::check(head, &message).err()?;
    Some(json(StatusCode::BAD_REQUEST, mismatch.body(message.id())))
}

fn unreadable(error: &BoxError) -> Response<Body> {
    if error.is::<LengthLimitError>() {
        return text(StatusCode::PAYLOAD_TOO_LARGE, "Request Entity Too Large");
    }
    tracing::debug!(%error, "a request body could not be read");
    json_error(StatusCode::INTERNAL_SERVER_ERROR, &ErrorBody::new(code::INTERNAL, "Failed to read request body"))
}
