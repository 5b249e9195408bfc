//! Which era of MCP a request belongs to (toolhive-runner §2.3), and the codes of MCP 2026-07-28 for one that breaks its rules.

use serde_json::json;

use crate::error_body::{ErrorBody, code};
use crate::headers::beginning;
use crate::message::{CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION, string};
use crate::{Id, Message};

/// The newest revision with sessions and a handshake.
pub const LEGACY_VERSION: &str = "2025-11-25";
/// The stateless revision.
pub const MODERN_VERSION: &str = "2026-07-28";

/// The era a request is to be served in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revision {
    /// Sessions and `initialize`: 2025-11-25 and older.
    Legacy,
    /// Stateless: 2026-07-28.
    Modern,
}

/// A request that claims the Modern era and breaks its rules: answer HTTP 400 with [`RevisionError::body`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RevisionError {
    /// A Modern mark, but no version in `_meta`.
    #[error("{PROTOCOL_VERSION} is missing from params._meta, or not a string")]
    MissingVersion,
    /// `MCP-Protocol-Version` and `_meta` disagree.
    #[error("MCP-Protocol-Version {header:?} does not match {body:?} of {PROTOCOL_VERSION}")]
    HeaderMismatch {
        /// What the header says.
        header: String,
        /// What `_meta` says.
        body: String,
    },
    /// `_meta` names a version that is not served statelessly.
    #[error("protocol version {requested:?} is not supported")]
    UnsupportedVersion {
        /// What `_meta` says.
        requested: String,
    },
    /// `_meta` carries no object of client capabilities.
    #[error("{CLIENT_CAPABILITIES} is missing from params._meta, or not an object")]
    MissingCapabilities,
}

impl RevisionError {
    /// The JSON-RPC code.
    pub fn code(&self) -> i64 {
        match self {
            Self::MissingVersion | Self::MissingCapabilities => code::INVALID_PARAMS,
            Self::HeaderMismatch { .. } => code::HEADER_MISMATCH,
            Self::UnsupportedVersion { .. } => code::UNSUPPORTED_VERSION,
        }
    }

    /// The JSON-RPC error body, to be sent with HTTP 400.
    pub fn body(&self, id: Option<Id<'_>>) -> Vec<u8> {
        // In alphabetical order, whichever order serde_json keeps.
        let data = match self {
            Self::MissingVersion | Self::MissingCapabilities => json!({}),
            Self::HeaderMismatch { header, body } => json!({"body": body, "header": header}),
            Self::UnsupportedVersion { requested } => json!({"requested": requested, "supported": [MODERN_VERSION]}),
        };
        let (message, data) = (self.to_string(), data.to_string());
        ErrorBody::new(self.code(), &message).id(id).data(&data).alphabetical().encode()
    }
}

/// Says in which era `message` is to be served; `header` is the value of `MCP-Protocol-Version`.
///
/// `initialize` and responses are Legacy always: the Modern era has neither from a client. An empty header counts as
/// absent.
pub fn classify(header: Option<&str>, message: &Message<'_>) -> Result<Revision, RevisionError> {
    if matches!(message.method(), None | Some("initialize")) {
        return Ok(Revision::Legacy);
    }
    let header = header.filter(|value| !value.is_empty());
    let get = |key: &str| message.meta(key).ok().flatten();
    let marked = [PROTOCOL_VERSION, CLIENT_INFO, CLIENT_CAPABILITIES].iter().any(|key| get(key).is_some());
    if !marked && header != Some(MODERN_VERSION) {
        return Ok(Revision::Legacy);
    }
    let Some(body) = get(PROTOCOL_VERSION).and_then(string).filter(|version| !version.is_empty()) else {
        return match header {
            None | Some(MODERN_VERSION) => Err(RevisionError::MissingVersion),
            // An explicit older version outranks stray `_meta` keys: some clients send both.
            Some(_) => Ok(Revision::Legacy),
        };
    };
    if let Some(header) = header.filter(|header| *header != body) {
        return Err(RevisionError::HeaderMismatch { header: header.to_owned(), body: beginning(&body) });
    }
    if body != MODERN_VERSION {
        return Err(RevisionError::UnsupportedVersion { requested: beginning(&body) });
    }
    if !get(CLIENT_CAPABILITIES).is_some_and(|raw| raw.get().starts_with('{')) {
        return Err(RevisionError::MissingCapabilities);
    }
    Ok(Revision::Modern)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Row<'a> = (&'a str, Option<&'a str>, String, Result<Revision, i64>);

    #[test]
    fn the_era_follows_the_header_and_the_reserved_meta_keys() {
        use Revision::{Legacy, Modern};
        let full = format!(r#"{{"{PROTOCOL_VERSION}":"2026-07-28","{CLIENT_CAPABILITIES}":{{}}}}"#);
        let version = |v: &str| format!(r#"{{"{PROTOCOL_VERSION}":{v}}}"#);
        let info = format!(r#"{{"{CLIENT_INFO}":null}}"#);
        let table: Vec<Row<'_>> = vec![
            ("tools/list", None, "{}".into(), Ok(Legacy)),
            ("tools/list", None, "7".into(), Ok(Legacy)),
            ("tools/list", Some(""), full.clone(), Ok(Modern)),
            ("tools/list", Some("2025-11-25"), "{}".into(), Ok(Legacy)),
            ("tools/list", None, full.clone(), Ok(Modern)),
            ("tools/list", Some(MODERN_VERSION), full.clone(), Ok(Modern)),
            ("initialize", Some(MODERN_VERSION), full.clone(), Ok(Legacy)),
            ("tools/list", Some(MODERN_VERSION), "{}".into(), Err(-32602)),
            ("tools/list", Some(MODERN_VERSION), version("7"), Err(-32602)),
            ("tools/list", Some("2025-11-25"), info.clone(), Ok(Legacy)),
            ("tools/list", Some("2025-11-25"), version("\"\""), Ok(Legacy)),
            ("tools/list", None, info, Err(-32602)),
            ("tools/list", None, version("\"2025-11-25\""), Err(-32022)),
            ("tools/list", Some("2025-11-25"), full, Err(-32020)),
            ("tools/list", Some(MODERN_VERSION), version("\"2025-11-25\""), Err(-32020)),
            ("tools/list", Some("2025-11-25"), version("\"2025-11-25\""), Err(-32022)),
            ("tools/list", Some(MODERN_VERSION), version("\"2026-07-28\""), Err(-32602)),
            ("tools/list", None, version("\"2026-07-28\""), Err(-32602)),
            (
                "tools/list",
                None,
                format!(r#"{{"{PROTOCOL_VERSION}":"2026-07-28","{CLIENT_CAPABILITIES}":[]}}"#),
                Err(-32602),
            ),
        ];
        let without = Message::parse(br#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#).unwrap();
        assert_eq!(classify(Some(MODERN_VERSION), &without).map_err(|e| e.code()), Err(-32602));
        for (method, header, meta, expected) in table {
            let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"_meta":{meta}}}}}"#);
            let message = Message::parse(body.as_bytes()).unwrap();
            assert_eq!(classify(header, &message).map_err(|e| e.code()), expected, "{header:?} {body}");
        }
    }

    #[test]
    fn an_error_names_what_clashes_in_its_data() {
        let id = |e: RevisionError| String::from_utf8(e.body(None)).unwrap();
        let mismatch = RevisionError::HeaderMismatch { header: "a".into(), body: "b".into() };
        assert!(id(mismatch).contains(r#""code":-32020,"data":{"body":"b","header":"a"}"#));
        let unsupported = RevisionError::UnsupportedVersion { requested: "x".into() };
        assert!(id(unsupported).contains(r#""data":{"requested":"x","supported":["2026-07-28"]}"#));
    }
}
