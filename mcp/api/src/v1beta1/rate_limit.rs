//! Limits on how often a server may be called.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Token buckets that tool calls draw from; a call that finds one of its buckets empty is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.shared) || has(self.perUser) || (has(self.tools) && size(self.tools) > 0)",
    "message": "at least one of shared, perUser, or tools must be configured",
}]))]
pub struct RateLimiting {
    /// A bucket for each authenticated caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_user: Option<RateLimitBucket>,
    /// One bucket for all callers together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared: Option<RateLimitBucket>,
    /// Further buckets for single tools; a call of such a tool draws from these too.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub tools: Option<Vec<ToolRateLimit>>,
}

/// The buckets of one tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.shared) || has(self.perUser)",
    "message": "at least one of shared or perUser must be configured",
}]))]
pub struct ToolRateLimit {
    /// The name of the tool.
    #[schemars(length(min = 1))]
    pub name: String,
    /// A bucket for each authenticated caller of this tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_user: Option<RateLimitBucket>,
    /// One bucket for all callers of this tool together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared: Option<RateLimitBucket>,
}

/// A bucket that refills evenly.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RateLimitBucket {
    /// How many calls a full bucket allows at once.
    #[schemars(range(min = 1))]
    pub max_tokens: i32,
    /// How long an empty bucket takes to fill up, as a duration such as `1m0s`.
    pub refill_period: String,
}
