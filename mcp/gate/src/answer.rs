//! Answers the gate gives itself.

use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use mcp_wire::ErrorBody;

use crate::body::{Body, full};

/// A JSON-RPC error as a plain JSON answer, whatever the client accepts (toolhive-runner §3.10).
pub fn json_error(status: StatusCode, error: &ErrorBody<'_>) -> Response<Body> {
    json_body(status, error.encode())
}

/// A plain JSON answer.
pub(crate) fn json_body(status: StatusCode, body: Vec<u8>) -> Response<Body> {
    with_type(status, "application/json", body)
}

/// A plain text answer.
pub fn text(status: StatusCode, text: &'static str) -> Response<Body> {
    with_type(status, "text/plain; charset=utf-8", text.as_bytes().to_vec())
}

fn with_type(status: StatusCode, content_type: &'static str, body: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(full(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
