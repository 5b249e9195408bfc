//! `bodylimit`: how long a request body may be (toolhive-runner §2.4).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::CONTENT_LENGTH;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use mcp_http::{Body, BoxError, text};
use serde_json::Value;

use crate::chain::{Next, Step};
use crate::error::{BuildError, Place, parameter};

/// The limit where none is given, in bytes.
pub(crate) const DEFAULT_LIMIT: usize = 8 << 20;

/// A limit in bytes.
pub(crate) struct BodyLimit(pub(crate) usize);

impl BodyLimit {
    pub(crate) fn new(parameters: &Value, place: Place<'_>) -> Result<Self, BuildError> {
        let limit = match parameter(parameters, "max_bytes") {
            None | Some(Value::Null) => 0,
            Some(value) => value.as_i64().ok_or_else(|| {
                place.error("parameters.max_bytes", format!("{value} is not an integer"), "write a number of bytes")
            })?,
        };
        Ok(Self(usize::try_from(limit).ok().filter(|limit| *limit > 0).unwrap_or(DEFAULT_LIMIT)))
    }
}

impl Step for BodyLimit {
    fn call<'a>(&'a self, request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        let Self(limit) = *self;
        let length = request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
        match length {
            Some(length) if length > limit => std::future::ready(too_large()).boxed(),
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
                // Whoever read the body saw it end early and answered 400; only here it is known why.
                let explain = move |response: Response<Body>| {
                    let early = response.status() == StatusCode::BAD_REQUEST && exceeded.load(Ordering::Relaxed);
                    if early { too_large() } else { response }
                };
                next.call(request).map(explain).boxed()
            }
        }
    }
}

fn too_large() -> Response<Body> {
    text(StatusCode::PAYLOAD_TOO_LARGE, "Request Entity Too Large")
}
