//! The door in front of a chain that reads messages: what it could not read does not enter.

use http::header::{ALLOW, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body::Body as _;
use mcp_http::{Body, text};

/// The refusal of a request that would carry a message past those who read messages: a POST that is not JSON (415), a body on another
/// method (400), a method that MCP does not have (405). ToolHive lets these skip its webhooks.
pub(crate) fn refuse(request: &Request<Body>) -> Option<Response<Body>> {
    match *request.method() {
        Method::POST if is_json(request.headers()) => None,
        Method::POST => Some(text(StatusCode::UNSUPPORTED_MEDIA_TYPE, "Content-Type must be application/json")),
        Method::GET | Method::HEAD | Method::DELETE | Method::OPTIONS => (!request.body().is_end_stream())
            .then(|| text(StatusCode::BAD_REQUEST, "request body is only accepted on POST")),
        _ => {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, POST, DELETE, OPTIONS"));
            Some(response)
        }
    }
}

/// One content type, `application/json` in UTF-8, and no content coding.
fn is_json(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let (Some(value), None) = (types.next(), types.next()) else { return false };
    let mut parts = value.to_str().unwrap_or_default().split(';').map(str::trim);
    parts.next().is_some_and(|essence| essence.eq_ignore_ascii_case("application/json"))
        && parts.all(is_harmless)
        && headers.get_all(CONTENT_ENCODING).iter().all(|coding| coding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

/// Whether a parameter leaves the body the UTF-8 that JSON is (RFC 8259 §8.1).
///
/// Servers on Express, and so the official TypeScript SDK, decode the body as `charset` says, and in UTF-7 another message can
/// hide in a string. A quoted value could hide a `;`, and `charset*` is another spelling (RFC 8187), so neither passes.
fn is_harmless(parameter: &str) -> bool {
    let parameter = parameter.to_ascii_lowercase();
    matches!(parameter.as_str(), "charset=utf-8" | "charset=\"utf-8\"")
        || !(parameter.contains("charset") || parameter.contains(['"', '\\']))
}
