//! Answers that a proxy gives itself.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Response, StatusCode};
use mcp_wire::ErrorBody;

use crate::body::{Body, full};

/// Marks, in its extensions, an answer of the proxy's own to a request whose credentials the MCP server does not take.
#[derive(Clone, Copy, Debug)]
pub struct Unauthorized;

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

/// Whether the body beside these headers is of this type, whatever the parameters; `essence` is as in `text/event-stream`.
pub fn is_type(headers: &HeaderMap, essence: &str) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(essence)
}

/// An answer with this content type and body.
pub fn answer(status: StatusCode, content_type: HeaderValue, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}
