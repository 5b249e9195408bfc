//! `mcp-parser`: reads each message once, for the steps further in (toolhive-runner §2.11).

use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use mcp_wire::{ErrorBody, Kind, Message, MessageError, code, headers};

use crate::answer::{json_body, json_error, text};
use crate::body::{Body, full};
use crate::chain::{Next, Step};

/// How long a client may take to send its message.
const BODY_DEADLINE: Duration = Duration::from_secs(30);

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
    pub(crate) limit: usize,
}

impl Step for Parser {
    fn call<'a>(&'a self, request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        if request.method() != Method::POST {
            return next.call(request);
        }
        async move {
            let (mut head, body) = request.into_parts();
            let body = match read(body, self.limit).await {
                Ok(body) => body,
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
    Some(json_body(StatusCode::BAD_REQUEST, mismatch.body(message.id())))
}

/// The whole body; `Err` holds the answer to a body that is too long, too slow or broken off.
async fn read(body: Body, limit: usize) -> Result<Bytes, Response<Body>> {
    let body = Limited::new(body, limit).boxed_unsync();
    match tokio::time::timeout(BODY_DEADLINE, body.collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            Err(text(StatusCode::PAYLOAD_TOO_LARGE, "Request Entity Too Large"))
        }
        Ok(Err(error)) => {
            tracing::debug!(error, "a request body could not be read");
            let error = ErrorBody::new(code::INTERNAL, "Failed to read request body");
            Err(json_error(StatusCode::INTERNAL_SERVER_ERROR, &error))
        }
        Err(_) => Err(text(StatusCode::REQUEST_TIMEOUT, "Request Timeout")),
    }
}
