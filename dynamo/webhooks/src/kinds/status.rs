//! The parts of the status, common to all kinds, that this operator reads or writes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Rest;

/// The observed state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// State of the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// While webhooks are off: the generation that was accepted last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Conditions. `Valid` is set while webhooks are off.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
    /// Everything else.
    #[serde(flatten)]
    pub rest: Rest,
}
