//! The status of kinds of configurations.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reference::WorkloadRef;

/// The findings of the operator about the configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigStatus {
    /// Whether the spec can be used (`Valid`), and whether a deletion waits for workloads (`DeletionBlocked`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Option<Vec<Condition>>,
    /// A digest of the last valid spec; it changes when the spec does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_hash: Option<String>,
    /// The `metadata.generation` that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The workloads of this namespace that refer to this configuration, sorted by kind and name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub referencing_workloads: Option<Vec<WorkloadRef>>,
}
