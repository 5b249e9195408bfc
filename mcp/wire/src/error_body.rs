//! JSON-RPC error bodies as ToolHive's proxies write them (toolhive-runner §2.2).

use crate::{Id, MessageError};

/// Error codes that proxies put into JSON-RPC errors.
pub mod code {
    /// The message is not a valid request; batches and too long bodies too.
    pub const INVALID_REQUEST: i64 = -32600;
    /// The method does not exist.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// The parameters are not what the method takes.
    pub const INVALID_PARAMS: i64 = -32602;
    /// The proxy failed.
    pub const INTERNAL: i64 = -32603;
    /// The bytes are not JSON.
    pub const PARSE: i64 = -32700;
    /// The session is unknown or over.
    pub const SESSION_NOT_FOUND: i64 = -32001;
    /// Header and body disagree (MCP 2026-07-28).
    pub const HEADER_MISMATCH: i64 = -32020;
    /// The protocol version is not supported (MCP 2026-07-28).
    pub const UNSUPPORTED_VERSION: i64 = -32022;
    /// A policy refused the request: the HTTP status stands for the code.
    pub const DENIED: i64 = 403;
    /// Refused by a rate limit; ToolHive's own.
    pub const RATE_LIMITED: i64 = 429;
}

/// A JSON-RPC error answer. The `id` is left out where there is none to echo, never `null`.
///
/// For answers of `Content-Type: application/json`; never put one bare into an SSE stream.
#[derive(Clone, Debug)]
pub struct ErrorBody<'a> {
    id: Option<&'a str>,
    code: i64,
    message: &'a str,
    data: Option<&'a str>,
    alphabetical: bool,
}

impl<'a> ErrorBody<'a> {
    /// An error without id or data.
    pub fn new(code: i64, message: &'a str) -> Self {
        Self { id: None, code, message, data: None, alphabetical: false }
    }

    /// The refusal of a batch, to be sent with HTTP 400.
    pub fn batch() -> ErrorBody<'static> {
        let message = "JSON-RPC batch requests are not supported (batching was removed in MCP revision 2025-06-18)";
        ErrorBody::new(code::INVALID_REQUEST, message).alphabetical()
    }

    /// Echoes `id`.
    #[must_use]
    pub fn id(self, id: Option<Id<'a>>) -> Self {
        self.raw_id(id.map(|id| id.raw()))
    }

    /// Echoes the id whose JSON text is `id`.
    #[must_use]
    pub fn raw_id(mut self, id: Option<&'a str>) -> Self {
        self.id = id;
        self
    }

    /// Adds `data`, which must be JSON text.
    #[must_use]
    pub fn data(mut self, data: &'a str) -> Self {
        self.data = Some(data);
        self
    }

    /// Writes members in alphabetical order, as ToolHive does for batch and revision errors.
    #[must_use]
    pub fn alphabetical(mut self) -> Self {
        self.alphabetical = true;
        self
    }

    /// The body: compact JSON, no newline at its end.
    pub fn encode(&self) -> Vec<u8> {
        let message = serde_json::Value::from(self.message).to_string();
        let code = self.code.to_string();
        let member = |name: &str, value: Option<&str>| value.map(|value| format!("\"{name}\":{value}"));
        let object = |members: [Option<String>; 3]| {
            let members: Vec<String> = members.into_iter().flatten().collect();
            format!("{{{}}}", members.join(","))
        };
        let code = member("code", Some(&code));
        let text = member("message", Some(&message));
        let data = member("data", self.data);
        let id = member("id", self.id);
        let version = member("jsonrpc", Some("\"2.0\""));
        if self.alphabetical {
            let error = object([code, data, text]);
            object([member("error", Some(&error)), id, version]).into_bytes()
        } else {
            let error = object([code, text, data]);
            object([version, id, member("error", Some(&error))]).into_bytes()
        }
    }
}

impl MessageError {
    /// The JSON-RPC error body (toolhive-0.63 §4.1). The id is echoed where the envelope could be read.
    pub fn body(&self) -> Vec<u8> {
        let (code, id) = match self {
            Self::Batch => return ErrorBody::batch().encode(),
            Self::Encoding => (code::PARSE, None),
            Self::Json(error) if !error.is_data() => (code::PARSE, None),
            Self::Json(_) | Self::Envelope(_) => (code::INVALID_REQUEST, None),
            Self::Ambiguous { id, .. } | Self::Number { id, .. } => (code::INVALID_REQUEST, id.as_deref()),
        };
        ErrorBody::new(code, &self.to_string()).raw_id(id).encode()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Message;

    #[test]
    fn the_id_is_echoed_as_written_and_left_out_when_there_is_none() {
        for (id, expected) in [
            (r#""id":0,"#, r#"{"jsonrpc":"2.0","id":0,"error":{"code":403,"message":"no"}}"#),
            (r#""id":"a\u0062","#, r#"{"jsonrpc":"2.0","id":"a\u0062","error":{"code":403,"message":"no"}}"#),
            (r#""id":1e3,"#, r#"{"jsonrpc":"2.0","id":1e3,"error":{"code":403,"message":"no"}}"#),
            ("", r#"{"jsonrpc":"2.0","error":{"code":403,"message":"no"}}"#),
        ] {
            let body = format!(r#"{{{id}"jsonrpc":"2.0","method":"ping"}}"#);
            let message = Message::parse(body.as_bytes()).unwrap();
            let encoded = ErrorBody::new(code::DENIED, "no").id(message.id()).encode();
            assert_eq!(String::from_utf8(encoded).unwrap(), expected);
        }
    }

    #[test]
    fn batch_and_revision_errors_are_in_alphabetical_order() {
        assert_eq!(
            String::from_utf8(ErrorBody::batch().encode()).unwrap(),
            "{\"error\":{\"code\":-32600,\"message\":\"JSON-RPC batch requests are not supported (batching was removed \
             in MCP revision 2025-06-18)\"},\"jsonrpc\":\"2.0\"}"
        );
        let error = ErrorBody::new(-32021, "\"q\"").data("{}").raw_id(Some("1")).alphabetical();
        assert_eq!(
            String::from_utf8(error.encode()).unwrap(),
            r#"{"error":{"code":-32021,"data":{},"message":"\"q\""},"id":1,"jsonrpc":"2.0"}"#
        );
    }
}
