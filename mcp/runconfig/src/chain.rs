//! The middleware chain: which types there are, in which order, and which the proxy of this version has.

use crate::{MiddlewareConfig, webhook};

/// Every type of middleware that an operator writes, the outermost first (toolhive-operator §3).
pub const ORDER: [&str; 18] = [
    "bodylimit",
    "audit",
    "auth",
    "upstreamswap",
    "strip-auth",
    "tokenexchange",
    "tool-filter",
    "tool-call-filter",
    "mcp-parser",
    "telemetry",
    "ratelimit",
    webhook::MUTATING,
    webhook::VALIDATING,
    "usagemetrics",
    "authorization",
    "awssts",
    "header-forward",
    "recovery",
];

/// The types that the proxy of this version has. `usagemetrics`, which reports to upstream's vendor, is accepted and
/// does nothing.
pub const BUILT: &[&str] =
    &["bodylimit", "auth", "mcp-parser", webhook::MUTATING, webhook::VALIDATING, "usagemetrics", "recovery"];

/// Puts a chain into [`ORDER`]. Types that are not in it keep their order, inside of all that are.
pub fn sort(chain: &mut [MiddlewareConfig]) {
    chain.sort_by_key(|entry| ORDER.iter().position(|kind| *kind == entry.kind).unwrap_or(ORDER.len()));
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_chain_is_sorted_into_the_order_of_the_contract() {
        let entry = |kind: &str| MiddlewareConfig::new(kind, Value::Null);
        let mut chain: Vec<_> =
            ["recovery", "own", webhook::VALIDATING, "tool-filter", "auth", "bodylimit", "mcp-parser"]
                .map(entry)
                .into();
        sort(&mut chain);
        let kinds: Vec<_> = chain.iter().map(|entry| entry.kind.as_str()).collect();
        assert_eq!(kinds, ["bodylimit", "auth", "tool-filter", "mcp-parser", webhook::VALIDATING, "recovery", "own"]);
        assert!(BUILT.iter().all(|kind| ORDER.contains(kind)));
    }
}
