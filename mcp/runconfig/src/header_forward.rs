//! Headers that a proxy adds to each request for a remote MCP server (toolhive-runner §2.19).

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{MiddlewareConfig, ParseError, members::Members};

/// Middleware `type` that adds headers to each request for the MCP server.
pub const HEADER_FORWARD: &str = "header-forward";

/// Headers of a connection, headers that say who calls (toolhive-runner §2.19, toolhive-0.63 §4.3), and the two by which MCP
/// knows a client's session: added to each request, one would stand for every client.
const RESERVED: [&str; 15] = [
    "close",
    "connection",
    "content-length",
    "forwarded",
    "host",
    "http2-settings",
    "keep-alive",
    "last-event-id",
    "mcp-session-id",
    "te",
    "trailer",
    "trailers",
    "transfer-encoding",
    "upgrade",
    "x-real-ip",
];
const RESERVED_PREFIXES: [&str; 2] = ["proxy-", "x-forwarded-"];

/// Whether a header of this name, in any case, cannot be added to requests.
pub fn is_reserved_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    RESERVED.contains(&&*name) || RESERVED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// The document's member `header_forward`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HeaderForward {
    /// Headers and their values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub add_plaintext_headers: BTreeMap<String, String>,
    /// Headers whose values are secrets, with the identifier of each: the variable `TOOLHIVE_SECRET_<identifier>` holds it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub add_headers_from_secret: BTreeMap<String, String>,
    /// Members this version does not know.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl HeaderForward {
    pub(crate) fn from_value(value: Value, path: &str) -> Result<Self, ParseError> {
        let mut members = Members::of(value, path)?;
        Ok(Self {
            add_plaintext_headers: members.string_map("add_plaintext_headers")?,
            add_headers_from_secret: members.string_map("add_headers_from_secret")?,
            extra: members.rest(),
        })
    }

    /// The entry of the chain. It tells the plain headers only: a secret value is in no document.
    pub fn middleware(&self) -> MiddlewareConfig {
        MiddlewareConfig::new(HEADER_FORWARD, json!({"add_headers": self.add_plaintext_headers}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RunConfig;

    #[test]
    fn a_document_keeps_its_headers_and_names_one_that_is_no_text() {
        let document = |headers: Value| {
            let document = json!({"name": "n", "transport": "streamable-http", "header_forward": headers});
            RunConfig::parse(document.to_string().as_bytes())
        };
        let headers = json!({
            "add_plaintext_headers": {"X-Tenant": "acme"},
            "add_headers_from_secret": {"X-Api-Key": "HEADER_FORWARD_X_API_KEY_REMOTE"}, "later": 1,
        });
        let read = document(headers.clone()).unwrap();
        let written: Value = serde_json::from_str(&read.to_json()).unwrap();
        assert_eq!(written["header_forward"], headers);
        let entry = read.header_forward.unwrap().middleware();
        assert_eq!((&*entry.kind, entry.parameters), ("header-forward", json!({"add_headers": {"X-Tenant": "acme"}})));
        let error = document(json!({"add_plaintext_headers": {"X": 1}})).unwrap_err();
        assert_eq!(error.field, "header_forward.add_plaintext_headers.X");
    }
}
