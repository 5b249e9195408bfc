//! The answers that fronts make themselves.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use mcp_http::{Body, answer, json};
use mcp_wire::{ErrorBody, Id, code};

/// What a client hears when the server's process says nothing.
pub(super) const SILENCE: &str = "the MCP server's process does not answer";
const TIMED_OUT: i64 = -32000;

/// The error of a call that took too long.
pub(super) fn timed_out(id: Option<Id<'_>>) -> Bytes {
    ErrorBody::new(TIMED_OUT, "Timeout").id(id).encode().into()
}

/// The error of a call that cannot be passed on, or was lost with the process.
pub(super) fn failed(message: &str, id: Option<Id<'_>>) -> Bytes {
    ErrorBody::new(code::INTERNAL, message).id(id).encode().into()
}

/// A result of the front's own.
pub(super) fn result(id: Id<'_>, result: &str) -> Bytes {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{result}}}", id.raw()).into()
}

/// The server's refusal of a handshake, to a client.
pub(super) fn refused(id: Id<'_>, error: &str) -> Bytes {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"error\":{error}}}", id.raw()).into()
}

/// An error of the front's own.
pub(super) fn error(status: StatusCode, code: i64, message: &str, id: Option<Id<'_>>) -> Response<Body> {
    json(status, ErrorBody::new(code, message).id(id).encode())
}

/// An event stream.
pub(super) fn events(body: Body) -> Response<Body> {
    let mut response = answer(StatusCode::OK, HeaderValue::from_static("text/event-stream"), body);
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}
