//! DynamoGraphDeployment: components that serve together.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Component, Quantity, Rest, Status, quantity, schema};

/// Components that serve together.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "nvidia.com",
    version = "v1alpha1",
    kind = "DynamoGraphDeployment",
    plural = "dynamographdeployments",
    shortname = "dgd",
    doc = "Components that serve together.",
    namespaced,
    status = "Status"
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::immutable(["backendFramework"])))]
pub struct DynamoGraphDeploymentSpec {
    /// Framework that runs the model. It is immutable.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["sglang", "vllm", "trtllm"]))]
    pub backend_framework: Option<String>,
    /// Claims that services mount.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxItems" = 100))]
    pub pvcs: Option<Vec<Pvc>>,
    /// The components, by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 25))]
    pub services: Option<BTreeMap<String, Component>>,
    /// Everything else.
    #[serde(flatten)]
    pub rest: Rest,
}

/// A claim of a volume.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
// The one CEL rule that Dynamo's own CRD has: of what is absent. The webhook finds what is empty.
#[schemars(extend("x-kubernetes-validations" = json!([{
    "rule": "!has(self.create) || self.create == false || (has(self.size) && has(self.storageClass) && has(self.volumeAccessMode))",
    "message": "When create is true, size, storageClass, and volumeAccessMode are required",
}])))]
pub struct Pvc {
    /// Its name. It has to be there; the webhook finds what is empty.
    #[schemars(required)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether it is created, or exists already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub create: Option<bool>,
    /// Storage class of a claim that is created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_class: Option<String>,
    /// Its size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "quantity::optional")]
    pub size: Option<Quantity>,
    /// Access mode of the volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_access_mode: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    pub rest: Rest,
}
