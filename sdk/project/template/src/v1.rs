//! The kind, in its first version.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a user wants.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kettle.example",
    version = "v1",
    kind = "Kettle",
    namespaced,
    status = "Status"
)]
#[serde(rename_all = "camelCase")]
pub struct Spec {
    /// What the ConfigMap says.
    pub message: String,
}

/// What the operator observed.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// What holds of the object: `Ready` when the ConfigMap is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
}
