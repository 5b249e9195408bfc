//! What answers requests.

use bytes::Bytes;
use http_body::Body;
use http_body_util::Full;
use hyper::header::{HeaderValue, RETRY_AFTER};
use hyper::{Request, Response, StatusCode};

use crate::BoxError;
use crate::body::{RequestBody, discard};

/// Answers requests. Implemented by every function from a request to a future response.
pub trait Handler: Send + Sync + 'static {
    /// The body of an answer: whole, or a stream.
    type Body: Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static;

    /// Answers one request. The future, and then the body of the answer, is dropped when the client hangs up.
    fn handle(&self, request: Request<RequestBody>) -> impl Future<Output = Response<Self::Body>> + Send;

    /// Answers one request of a reserved connection, which came while all others were at work: at once, and without
    /// work. The connection is closed after it. `None` (the default) answers 429 with `Retry-After: 1`.
    fn shed(&self, request: Request<RequestBody>) -> impl Future<Output = Option<Response<Self::Body>>> + Send {
        async move {
            discard(request.into_body()).await;
            None
        }
    }
}

impl<F, R, B> Handler for F
where
    F: Fn(Request<RequestBody>) -> R + Send + Sync + 'static,
    R: Future<Output = Response<B>> + Send,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static,
{
    type Body = B;

    fn handle(&self, request: Request<RequestBody>) -> impl Future<Output = Response<B>> + Send {
        self(request)
    }
}

/// An answer with `Retry-After: 1`, which the API server's client obeys while its own time lasts.
pub fn come_again(status: StatusCode, why: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(format!("{why}; ask again in a second\n")));
    *response.status_mut() = status;
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}
