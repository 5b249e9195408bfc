//! The kind, in its first version.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The desired state.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kettle.example",
    version = "v1",
    kind = "Kettle",
    plural = "kettles",
    namespaced,
    status = "Status"
)]
#[serde(rename_all = "camelCase")]
pub struct Spec {
    /// Text that the ConfigMap holds.
    pub message: String,
}

/// The observed state.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Conditions of the object: `Ready` when the ConfigMap is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
}
