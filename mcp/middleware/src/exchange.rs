//! A request as those see it who observe it: audit, for one.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::USER_AGENT;
use http::{HeaderName, HeaderValue, Method, Request, StatusCode};

use crate::context::RequestContext;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The most bytes of a client's text that are kept.
const LONGEST: usize = 256;

/// The head of a request, as those see it who observe it.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Its method.
    pub method: Method,
    /// Its path. What follows may be a secret.
    pub path: String,
    /// The client's `User-Agent`, or its beginning.
    pub user_agent: String,
    /// The client's `X-Request-ID`, or its beginning.
    pub request_id: String,
    /// The time at which it came.
    pub started: Instant,
}

/// A request whose answer begins, or whose client has left before.
#[derive(Clone, Copy, Debug)]
pub struct Exchange<'a> {
    /// The request's head.
    pub asked: &'a Arc<Asked>,
    /// The address of the client.
    pub client: IpAddr,
    /// The request's context; `None` where it was refused before the chain.
    pub context: Option<&'a RequestContext>,
    /// The guard in front of the chain that refused it, if one did.
    pub refused_by: Option<&'static str>,
    /// The answer's status; `None` where the client has left.
    pub status: Option<StatusCode>,
    /// Whether the answer is a stream that belongs to no call, and ends when somebody leaves.
    pub is_stream: bool,
}

/// The end of a request.
#[derive(Clone, Copy, Debug)]
pub struct End<'a> {
    /// Whether the client has got the answer to its end.
    pub complete: bool,
    /// Whether the client left before; an answer that is not complete broke off otherwise.
    pub left: bool,
    /// The beginning of the answer's body, as many bytes as [were asked for](crate::Middleware::observes).
    pub answer: &'a [u8],
    /// The bytes of the answer's body.
    pub sent: u64,
    /// The time since the head of the request came.
    pub took: Duration,
}

/// The part of a request that a middleware keeps until its end.
pub trait Observation: Send {
    /// Looks at the end: the answer is complete, or nobody wants it any more. Of a stream it is called when the stream begins. It must not
    /// wait.
    fn ended(self: Box<Self>, end: &End<'_>);
}

impl Asked {
    /// The head of a request that has just come.
    pub fn of<B>(request: &Request<B>) -> Self {
        let text = |value: Option<&HeaderValue>| {
            let bytes = value.map(HeaderValue::as_bytes).unwrap_or_default();
            String::from_utf8_lossy(bytes.get(..LONGEST).unwrap_or(bytes)).into_owned()
        };
        let path = request.uri().path();
        Self {
            method: request.method().clone(),
            path: path.get(..path.floor_char_boundary(LONGEST)).unwrap_or(path).to_owned(),
            user_agent: text(request.headers().get(USER_AGENT)),
            request_id: text(request.headers().get(REQUEST_ID)),
            started: Instant::now(),
        }
    }
}
