//! What the stateless era changes before any middleware looks at a request (toolhive-runner §1.10, 1).

use http::header::{ALLOW, HeaderValue};
use http::{HeaderMap, Method, Response, StatusCode};
use mcp_http::{Body, json, text};
use mcp_wire::{MODERN_VERSION, Message, RevisionError, headers};

/// The revisions of MCP that are published.
pub(crate) const REVISIONS: [&str; 5] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", MODERN_VERSION];

/// The method gate, to be asked before any middleware: a stateless server, and every request that says it is of the Modern
/// era, knows neither streams (GET) nor sessions (DELETE). `None` when the request may pass, else the 405.
pub fn refuse_method(stateless: bool, method: &Method, request: &HeaderMap) -> Option<Response<Body>> {
    if !matches!(*method, Method::GET | Method::HEAD | Method::DELETE) {
        return None;
    }
    let modern = || request.get(headers::PROTOCOL_VERSION).is_some_and(|version| version == MODERN_VERSION);
    (stateless || modern()).then(|| not_allowed("POST, OPTIONS"))
}

/// 405 with the methods that are served.
pub(crate) fn not_allowed(methods: &'static str) -> Response<Body> {
    let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed");
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
    response
}

/// The 400 for a request that claims the Modern era and breaks its rules.
pub(crate) fn revision_refusal(error: &RevisionError, message: &Message<'_>) -> Response<Body> {
    json(StatusCode::BAD_REQUEST, error.body(message.id()))
}

/// The value of `MCP-Protocol-Version`, where it is text.
pub(crate) fn protocol_version(headers: &HeaderMap) -> Option<&str> {
    headers.get(headers::PROTOCOL_VERSION).and_then(|value| value.to_str().ok())
}
