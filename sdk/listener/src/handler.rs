//! The handler of requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bytes::Bytes;
use http_body::Body;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{HeaderValue, RETRY_AFTER};
use hyper::{Request, Response, StatusCode};

use crate::BoxError;

/// Handles requests. It is implemented for every async function from a request to a response.
pub trait Handler: Send + Sync + 'static {
    /// The body of responses: complete, or a stream.
    type Body: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static;

    /// Handles one request, which has [`Crowded`] as an extension. The future, and then the response body, is dropped
    /// when the client disconnects.
    fn handle(&self, request: Request<Incoming>) -> impl Future<Output = Response<Self::Body>> + Send;
}

impl<F, R, B> Handler for F
where
    F: Fn(Request<Incoming>) -> R + Send + Sync + 'static,
    R: Future<Output = Response<B>> + Send,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Body = B;

    fn handle(&self, request: Request<Incoming>) -> impl Future<Output = Response<B>> + Send {
        self(request)
    }
}

/// A flag that is set while new connections wait because the listener is at its connection limit.
#[derive(Clone, Debug, Default)]
pub struct Crowded(Arc<AtomicBool>);

impl Crowded {
    /// Returns whether new connections wait now.
    pub fn get(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// Sets whether new connections wait: for accept loops.
    pub fn set(&self, crowded: bool) {
        self.0.store(crowded, Relaxed);
    }
}

/// Returns a response with `Retry-After: 1`, after which the API server's client tries again within its timeout.
pub fn retry_later(status: StatusCode, why: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(format!("{why}; ask again in a second\n")));
    *response.status_mut() = status;
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}
