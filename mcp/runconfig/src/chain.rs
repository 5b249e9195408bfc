//! The middleware chain: which types there are, in which order, which the proxies of this version have, and the chain of a
//! document that names none.

use serde_json::{Value, json};

pub use crate::audit::AUDIT;
pub use crate::auth::AUTH;
use crate::{
    AuthParameters, HeaderForward, MCP_ENDPOINTS, MiddlewareConfig, TOOL_CALL_FILTER, TOOL_FILTER,
    ToolFilterParameters, webhook,
};

/// `type` of the check for which web pages a request may come.
pub const ORIGIN: &str = "origin";
/// `type` of the bound on request bodies.
pub const BODY_LIMIT: &str = "bodylimit";
/// `type` of the middleware that reads each message.
pub const PARSER: &str = "mcp-parser";
/// `type` of what reports to ToolHive's vendor: accepted, and does nothing.
pub const USAGE_METRICS: &str = "usagemetrics";
/// `type` of what adds headers to requests to a remote server.
pub const HEADER_FORWARD: &str = "header-forward";
/// `type` of the middleware that answers for one that panicked.
pub const RECOVERY: &str = "recovery";

/// The longest request body where nothing else is said, in bytes.
pub const DEFAULT_BODY_LIMIT: u64 = 8 << 20;
/// The longest request body that a proxy reads, whatever its document says, in bytes: it holds bodies whole, in memory.
pub const MAX_BODY_LIMIT: u64 = 256 << 20;

/// A type of middleware.
struct Row {
    kind: &'static str,
    /// Whether the proxies of this version have it.
    built: bool,
}

const fn built(kind: &'static str) -> Row {
    Row { kind, built: true }
}

const fn later(kind: &'static str) -> Row {
    Row { kind, built: false }
}

/// Every type of middleware that an operator writes, the outermost first (toolhive-operator §3).
const TABLE: [Row; 19] = [
    built(ORIGIN),
    built(BODY_LIMIT),
    later(AUDIT),
    built(AUTH),
    later("upstreamswap"),
    later("strip-auth"),
    later("tokenexchange"),
    built(TOOL_FILTER),
    built(TOOL_CALL_FILTER),
    built(PARSER),
    later("telemetry"),
    later("ratelimit"),
    built(webhook::MUTATING),
    built(webhook::VALIDATING),
    built(USAGE_METRICS),
    later("authorization"),
    later("awssts"),
    built(HEADER_FORWARD),
    built(RECOVERY),
];

/// Whether the proxies of this version have middleware of this type.
pub fn is_built(kind: &str) -> bool {
    BUILT.contains(&kind)
}

/// The types that the proxies of this version have.
pub const BUILT: &[&str] = &BUILT_KINDS;

const BUILT_KINDS: [&str; count()] = {
    let mut kinds = [""; count()];
    let (mut row, mut at) = (0, 0);
    while row < TABLE.len() {
        if TABLE[row].built {
            kinds[at] = TABLE[row].kind;
            at += 1;
        }
        row += 1;
    }
    kinds
};

const fn count() -> usize {
    let (mut row, mut count) = (0, 0);
    while row < TABLE.len() {
        count += TABLE[row].built as usize;
        row += 1;
    }
    count
}

/// The ability of a proxy to tell by `/readyz` whether its server answers.
pub const READYZ: &str = "readyz";

/// The abilities of this version's proxies, by name: the types of middleware that they have, what documents may ask for under
/// `portcullis` that guards, and [`READYZ`].
pub fn abilities() -> Vec<String> {
    BUILT.iter().chain(&[MCP_ENDPOINTS, READYZ]).map(|&name| name.to_owned()).collect()
}

/// Whether middleware of this type judges messages, so that a proxy with it serves MCP endpoints alone.
pub fn judges_messages(kind: &str) -> bool {
    [TOOL_FILTER, TOOL_CALL_FILTER, webhook::MUTATING, webhook::VALIDATING].contains(&kind)
}

/// Puts a chain into the order of the contract. Types that it does not know keep their order, inside of all that it does.
pub fn sort(chain: &mut [MiddlewareConfig]) {
    chain.sort_by_key(|entry| TABLE.iter().position(|row| row.kind == entry.kind).unwrap_or(TABLE.len()));
}

/// The chain that every proxy has, before what its document asks for; request bodies may have `max_bytes`, or
/// [`DEFAULT_BODY_LIMIT`].
pub fn default_chain(max_bytes: Option<u64>) -> Vec<MiddlewareConfig> {
    vec![
        MiddlewareConfig::new(BODY_LIMIT, json!({"max_bytes": max_bytes.unwrap_or(DEFAULT_BODY_LIMIT)})),
        MiddlewareConfig::new(AUTH, json!({})),
        MiddlewareConfig::new(PARSER, json!({})),
        MiddlewareConfig::new(RECOVERY, Value::Null),
    ]
}

impl AuthParameters {
    /// The entry of the chain.
    pub fn middleware(&self) -> MiddlewareConfig {
        // Strings and maps with string keys always serialize; null would ask for no login.
        MiddlewareConfig::new(AUTH, serde_json::to_value(self).unwrap_or(Value::Bool(false)))
    }
}

impl ToolFilterParameters {
    /// The entries of the chain, which stand next to each other between `auth` and `mcp-parser`. None when these
    /// parameters ask for nothing.
    pub fn middleware(&self) -> Vec<MiddlewareConfig> {
        if self.filter_tools.is_empty() && self.tools_override.is_empty() {
            return Vec::new();
        }
        // Strings and maps with string keys always serialize.
        let parameters = serde_json::to_value(self).unwrap_or_default();
        [TOOL_FILTER, TOOL_CALL_FILTER].map(|kind| MiddlewareConfig::new(kind, parameters.clone())).into()
    }
}

impl HeaderForward {
    /// The entry that an operator writes into the chain: it has the values that are no secrets, and is left out where there are none.
    pub fn middleware(&self) -> Option<MiddlewareConfig> {
        let headers = &self.add_plaintext_headers;
        (!headers.is_empty()).then(|| MiddlewareConfig::new(HEADER_FORWARD, json!({"add_headers": headers})))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_sorted_into_the_order_of_the_contract() {
        let entry = |kind: &str| MiddlewareConfig::new(kind, Value::Null);
        let mut chain: Vec<_> =
            ["recovery", "own", webhook::VALIDATING, "tool-filter", "auth", "bodylimit", "origin", "mcp-parser"]
                .map(entry)
                .into();
        sort(&mut chain);
        let kinds: Vec<_> = chain.iter().map(|entry| entry.kind.as_str()).collect();
        let expected =
            ["origin", "bodylimit", "auth", "tool-filter", "mcp-parser", webhook::VALIDATING, "recovery", "own"];
        assert_eq!(kinds, expected);
    }

    #[test]
    fn the_default_chain_is_built_and_in_order() {
        let chain = default_chain(None);
        let mut sorted = chain.clone();
        sort(&mut sorted);
        assert_eq!(chain, sorted);
        assert!(chain.iter().all(|entry| BUILT.contains(&entry.kind.as_str())), "{chain:?}");
    }
}
