//! DynamoModel: a model that components serve.

#![allow(clippy::duplicated_attributes, reason = "each printer column has a type and a path")]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Rest, Status, schema};

/// A model that components serve.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "nvidia.com",
    version = "v1alpha1",
    kind = "DynamoModel",
    plural = "dynamomodels",
    shortname = "dm",
    doc = "A model that components serve.",
    namespaced,
    status = "Status",
    printcolumn(name = "BaseModel", type_ = "string", json_path = ".spec.baseModelName"),
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.modelType"),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.readyEndpoints"),
    printcolumn(name = "Total", type_ = "integer", json_path = ".status.totalEndpoints"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::immutable(["modelType", "baseModelName"])))]
pub struct DynamoModelSpec {
    /// The model.
    pub model_name: String,
    /// The base model, by which endpoints are found. It is immutable.
    pub base_model_name: String,
    /// Type of the model. It is immutable.
    #[serde(default = "base")]
    #[schemars(extend("enum" = ["base", "lora", "adapter"]))]
    pub model_type: String,
    /// Source of a LoRA.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<ModelSource>,
    /// Everything else.
    #[serde(flatten)]
    pub rest: Rest,
}

/// Source of a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelSource {
    /// Begins with `s3://` or `hf://`.
    pub uri: String,
    /// Everything else.
    #[serde(flatten)]
    pub rest: Rest,
}

fn base() -> String {
    "base".to_owned()
}
