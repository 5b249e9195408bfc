//! The door in front of a chain that reads messages: what it could not read does not enter.

use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::{ALLOW, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body::Body as _;

use crate::answer::text;
use crate::body::Body;
use crate::chain::{Next, Step};

/// Refuses requests that carry a message past the parser: a POST that is not JSON (415), a body on another method (400),
/// a method that MCP does not have (405). The original lets these skip its webhooks.
pub(crate) struct JsonOnly;

impl Step for JsonOnly {
    fn call<'a>(&'a self, request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        let refusal = match *request.method() {
            Method::POST if is_json(request.headers()) => None,
            Method::POST => Some(text(StatusCode::UNSUPPORTED_MEDIA_TYPE, "Content-Type must be application/json")),
            Method::GET | Method::HEAD | Method::DELETE | Method::OPTIONS => (!request.body().is_end_stream())
                .then(|| text(StatusCode::BAD_REQUEST, "a request body is accepted with POST only")),
            _ => {
                let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed");
                response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, POST, DELETE, OPTIONS"));
                Some(response)
            }
        };
        match refusal {
            Some(refusal) => std::future::ready(refusal).boxed(),
            None => next.call(request),
        }
    }
}

/// One content type, `application/json` with or without parameters, and no content coding.
fn is_json(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let (Some(value), None) = (types.next(), types.next()) else { return false };
    let essence = value.to_str().ok().and_then(|value| value.split(';').next()).unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("application/json")
        && headers.get_all(CONTENT_ENCODING).iter().all(|coding| coding.as_bytes().eq_ignore_ascii_case(b"identity"))
}
