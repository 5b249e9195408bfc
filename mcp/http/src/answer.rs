//! Answers that a proxy gives itself.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use mcp_wire::ErrorBody;

use crate::body::{Body, full};

/// An answer in plain text.
pub fn text(status: StatusCode, message: impl Into<Bytes>) -> Response<Body> {
    answer(status, HeaderValue::from_static("text/plain; charset=utf-8"), full(message))
}

/// An answer in JSON.
pub fn json(status: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    answer(status, HeaderValue::from_static("application/json"), full(body))
}

/// A JSON-RPC error as a plain JSON answer, whatever the client accepts (toolhive-runner §3.10).
pub fn json_error(status: StatusCode, error: &ErrorBody<'_>) -> Response<Body> {
    json(status, error.encode())
}

/// An answer with this content type and body.
pub fn answer(status: StatusCode, content_type: HeaderValue, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}
