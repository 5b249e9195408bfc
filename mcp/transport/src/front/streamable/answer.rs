//! The form of the answers that the front passes on.

use bytes::Bytes;
use http::header::{ACCEPT, HeaderMap};
use http::{Response, StatusCode};
use mcp_http::{Body, empty, json};
use mcp_wire::{Message, Revision, code};
use serde::Deserialize;

/// Whether an answer goes out as an event stream: where notifications can come before it, or the client takes nothing else.
///
/// A client that takes both gets one JSON object when nothing could precede the answer: that is cheaper on both sides.
pub(super) fn as_stream(headers: &HeaderMap, has_notifications: bool) -> bool {
    let accepts = |kind: &str| {
        let mut values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        values.any(|value| value.to_ascii_lowercase().contains(kind))
    };
    accepts("text/event-stream") && (has_notifications || !(accepts("application/json") || accepts("*/*")))
}

/// 202: taken, nothing to say.
pub(super) fn accepted() -> Response<Body> {
    let mut response = Response::new(empty());
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}

/// An answer of the process. In the Modern era the status says what the error is (MCP 2026-07-28, Streamable HTTP).
pub(super) fn passed_on(message: Bytes, revision: Revision) -> Response<Body> {
    #[derive(Deserialize)]
    struct Error {
        code: i64,
    }
    let code = || {
        let error = Message::parse(&message).ok()?.error()?;
        Some(serde_json::from_str::<Error>(error.get()).ok()?.code)
    };
    let status = match revision {
        Revision::Legacy => StatusCode::OK,
        Revision::Modern => match code() {
            Some(code::METHOD_NOT_FOUND) => StatusCode::NOT_FOUND,
            Some(-32022..=-32020) => StatusCode::BAD_REQUEST,
            _ => StatusCode::OK,
        },
    };
    json(status, message)
}

#[cfg(test)]
mod tests {
    use http::header::HeaderValue;

    use super::*;

    #[test]
    fn an_answer_is_a_stream_only_where_something_can_come_before_it_or_nothing_else_is_taken() {
        for (accept, has_notifications, expected) in [
            ("application/json, text/event-stream", false, false),
            ("application/json, text/event-stream", true, true),
            ("text/event-stream", false, true),
            ("text/event-stream, */*", false, false),
            ("application/json", true, false),
            ("*/*", true, false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
            assert_eq!(as_stream(&headers, has_notifications), expected, "{accept}");
        }
    }
}
