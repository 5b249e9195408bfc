//! DynamoComponentDeployment: one component.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Component, Status, schema};

/// One component of a graph.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "nvidia.com",
    version = "v1alpha1",
    kind = "DynamoComponentDeployment",
    plural = "dynamocomponentdeployments",
    shortname = "dcd",
    doc = "One component of a graph.",
    namespaced,
    status = "Status",
    printcolumn(name = "Available", type_ = "string", json_path = ".status.conditions[?(@.type=='Available')].status"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::immutable(["backendFramework"])))]
pub struct DynamoComponentDeploymentSpec {
    /// Framework that runs the model. It is immutable.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["sglang", "vllm", "trtllm"]))]
    pub backend_framework: Option<String>,
    /// The component.
    #[serde(flatten)]
    pub component: Component,
}
