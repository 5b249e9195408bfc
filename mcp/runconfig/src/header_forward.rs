//! Headers that the proxy adds to what it sends to a remote MCP server (toolhive-runner §2.19, toolhive-operator §2.5).

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::members::Members;
use crate::{Parameters, ParseError};

/// Headers of a connection, headers that say who calls or what (toolhive-runner §2.19, toolhive-0.63 §4.3), which the proxy drops, and the two by
/// which MCP knows a client's session: added to each request, one would stand for every client.
const RESERVED: [&str; 19] = [
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
    "true-client-ip",
    "upgrade",
    "x-http-method-override",
    "x-original-url",
    "x-real-ip",
    "x-rewrite-url",
];
const RESERVED_PREFIXES: [&str; 2] = ["proxy-", "x-forwarded-"];

/// Whether a header of this name, in any case, cannot be added to requests.
pub fn is_reserved_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    RESERVED.contains(&&*name) || RESERVED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// The member `header_forward` of the document.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HeaderForward {
    /// Values by the names of headers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub add_plaintext_headers: BTreeMap<String, String>,
    /// Identifiers of secrets by the names of headers. A value is in the proxy's environment, as `TOOLHIVE_SECRET_<identifier>`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub add_headers_from_secret: BTreeMap<String, String>,
    /// Members this version does not know.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl HeaderForward {
    pub(crate) fn from_value(value: Value) -> Result<Self, ParseError> {
        let mut members = Members::of(value, "header_forward")?;
        Ok(Self {
            add_plaintext_headers: members.string_map("add_plaintext_headers")?,
            add_headers_from_secret: members.string_map("add_headers_from_secret")?,
            extra: members.rest(),
        })
    }
}

/// Parameters of `header-forward`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderForwardParameters {
    /// Values by the names of headers.
    pub add_headers: BTreeMap<String, String>,
    /// Identifiers of secrets by the names of headers. Documents have them in [`HeaderForward`] alone.
    pub add_headers_from_secret: BTreeMap<String, String>,
}

impl Parameters for HeaderForwardParameters {
    fn read(value: Value, path: &str) -> Result<Self, ParseError> {
        let mut members = Members::of(value, path)?;
        Ok(Self {
            add_headers: members.string_map("add_headers")?,
            add_headers_from_secret: members.string_map("add_headers_from_secret")?,
        })
    }
}
