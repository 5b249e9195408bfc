//! `bodylimit`: how long a request body may be (toolhive-runner §2.4).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::CONTENT_LENGTH;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use mcp_http::{Body, BoxError, text};
use mcp_middleware::{Middleware, Next, RequestContext};
use mcp_runconfig::BodyLimitParameters;
use mcp_runconfig::chain::{self, DEFAULT_BODY_LIMIT};

/// A limit in bytes.
pub(crate) struct BodyLimit(usize);

impl BodyLimit {
    pub(crate) fn new(BodyLimitParameters { max_bytes }: BodyLimitParameters) -> Self {
        Self(usize::try_from(max_bytes.unwrap_or(DEFAULT_BODY_LIMIT)).unwrap_or(usize::MAX))
    }
}

impl Middleware for BodyLimit {
    fn call<'a>(&'a self, request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        let Self(limit) = *self;
        let context = next.context();
        let length = request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
        match length {
            Some(length) if length > limit => std::future::ready(too_large(context)).boxed(),
            // The server reads no more than the length that was announced.
            Some(_) => next.call(request),
            None => {
                let exceeded = Arc::new(AtomicBool::new(false));
                let seen = Arc::clone(&exceeded);
                let request = request.map(|body| {
                    let watch = move |error: BoxError| {
                        seen.fetch_or(error.is::<LengthLimitError>(), Ordering::Relaxed);
                        error
                    };
                    Limited::new(body, limit).map_err(watch).boxed_unsync()
                });
                // The reader of the body saw it end early and answered 400; only this middleware knows why.
                let explain = move |response: Response<Body>| {
                    let early = response.status() == StatusCode::BAD_REQUEST && exceeded.load(Ordering::Relaxed);
                    if early { too_large(context) } else { response }
                };
                next.call(request).map(explain).boxed()
            }
        }
    }

    fn body_limit(&self) -> Option<usize> {
        Some(self.0)
    }
}

fn too_large(context: &RequestContext) -> Response<Body> {
    context.deny(chain::BODY_LIMIT, "the body is too long");
    text(StatusCode::PAYLOAD_TOO_LARGE, "Request Entity Too Large")
}
