//! DynamoGraphDeploymentRequest: asks for a graph that is found by profiling.

#![allow(clippy::duplicated_attributes, reason = "each printer column has a type and a path")]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Rest, Status, schema};

/// Asks for a graph that is found by profiling.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "nvidia.com",
    version = "v1alpha1",
    kind = "DynamoGraphDeploymentRequest",
    plural = "dynamographdeploymentrequests",
    shortname = "dgdr",
    doc = "Asks for a graph that is found by profiling.",
    namespaced,
    status = "Status",
    printcolumn(name = "Model", type_ = "string", json_path = ".spec.model"),
    printcolumn(name = "Backend", type_ = "string", json_path = ".status.backend"),
    printcolumn(name = "State", type_ = "string", json_path = ".status.state"),
    printcolumn(name = "DGD-State", type_ = "string", json_path = ".status.deployment.state"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct DynamoGraphDeploymentRequestSpec {
    /// The model.
    pub model: String,
    /// Framework that runs the model.
    #[schemars(extend("enum" = ["vllm", "sglang", "trtllm", "mocker"]))]
    pub backend: String,
    /// Whether the hardware is found by looking at the nodes, which a restricted operator may not.
    #[serde(default)]
    pub enable_gpu_discovery: bool,
    /// Settings of profiling.
    pub profiling_config: ProfilingConfig,
    /// Whether the graph is deployed when it is found.
    #[serde(default)]
    pub auto_apply: bool,
    /// Everything else.
    #[serde(flatten)]
    pub rest: Rest,
}

/// Settings of profiling.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProfilingConfig {
    /// Image of the profiler.
    pub profiler_image: String,
    /// Configuration of the profiler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::open_object")]
    pub config: Option<Value>,
    /// The graph that profiling begins with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map_ref: Option<ConfigMapRef>,
    /// Everything else.
    #[serde(flatten)]
    pub rest: Rest,
}

/// An entry of a ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapRef {
    /// Name of the ConfigMap.
    pub name: String,
    /// The entry.
    #[serde(default = "base_graph")]
    pub key: String,
    /// Everything else.
    #[serde(flatten)]
    pub rest: Rest,
}

fn base_graph() -> String {
    "disagg.yaml".to_owned()
}
