//! `mcp-parser`: reads each message once, for the steps further in (toolhive-runner §2.11).

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::{CONTENT_LENGTH, HeaderValue, TRANSFER_ENCODING};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use mcp_http::{Body, Budget, full, json, read};
use mcp_wire::{Kind, MessageError, OwnedMessage, headers};

use crate::PeerAddr;
use crate::chain::{Next, Step};

/// How long a client may take to send its message.
const BODY_DEADLINE: Duration = Duration::from_secs(30);
/// Bytes of messages that are in memory at once: eight of the longest that `bodylimit` lets pass unless told otherwise.
const MEMORY: usize = 64 << 20;

/// A client's message, read: a request extension that `mcp-parser` sets and mutating webhooks renew.
///
/// A step that changes the request's body must replace this too.
#[derive(Clone, Debug)]
pub struct Parsed(OwnedMessage);

impl Parsed {
    /// Reads `body`, and refuses what two parsers could read differently.
    pub fn read(body: Bytes) -> Result<Self, MessageError> {
        OwnedMessage::read(body).map(Self)
    }

    /// The message.
    pub fn message(&self) -> &OwnedMessage {
        &self.0
    }

    /// The whole body, as the request now carries it.
    pub fn body(&self) -> &Bytes {
        self.0.body()
    }

    /// Request, notification or response.
    pub fn kind(&self) -> Kind {
        self.0.kind()
    }

    /// The method; `None` for responses.
    pub fn method(&self) -> Option<&str> {
        self.0.method()
    }

    /// The id as JSON text; `None` for notifications.
    pub fn id(&self) -> Option<&str> {
        self.0.id().map(|id| id.raw())
    }
}

/// Reads the message of every POST, refuses what is no message and headers that mirror another message, and marks the request with
/// [`Parsed`].
pub(crate) struct Parser {
    /// Longest body that is read, in bytes.
    limit: usize,
    budget: Budget,
}

impl Parser {
    pub(crate) fn new(limit: usize) -> Self {
        // One client may hold half of it, so that must be enough for one body.
        Self { limit, budget: Budget::new(MEMORY.max(limit.saturating_mul(2))) }
    }
}

impl Step for Parser {
    fn call<'a>(&'a self, request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        if request.method() != Method::POST {
            return next.call(request);
        }
        async move {
            let (mut head, body) = request.into_parts();
            let client =
                head.extensions.get::<PeerAddr>().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0.ip());
            let mut share = self.budget.share(client);
            let body = match read(body, self.limit, BODY_DEADLINE, &mut share).await {
                Ok(body) => body,
                Err(error) => {
                    tracing::debug!(%error, %client, "a request body was not read");
                    return error.answer();
                }
            };
            let received = body.len();
            let parsed = match Parsed::read(body) {
                Ok(parsed) => parsed,
                Err(error) => {
                    tracing::debug!(%error, "a request body is not a JSON-RPC message");
                    return json(StatusCode::BAD_REQUEST, error.body());
                }
            };
            if let Some(refusal) = mirror_refusal(&head.headers, &parsed) {
                return refusal;
            }
            let body = parsed.body().clone();
            // A byte order mark goes no further.
            if body.len() != received {
                head.headers.remove(TRANSFER_ENCODING);
                head.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
            }
            head.extensions.insert(parsed);
            next.call(Request::from_parts(head, full(body))).await
        }
        .boxed()
    }
}

/// The answer to headers that mirror another message than the one that will be judged.
fn mirror_refusal(head: &HeaderMap, parsed: &Parsed) -> Option<Response<Body>> {
    let message = parsed.message().message();
    let mismatch = headers::check(head, message).err()?;
    Some(json(StatusCode::BAD_REQUEST, mismatch.body(message.id())))
}
