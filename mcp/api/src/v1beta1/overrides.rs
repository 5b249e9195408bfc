//! What a user may add to the objects made for a workload.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, Toleration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Additions to the objects that the operator makes for the proxy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceOverrides {
    /// Additions to the proxy's Deployment and pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_deployment: Option<ProxyDeploymentOverrides>,
    /// Additions to the metadata of the proxy's Service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_service: Option<MetadataOverrides>,
}

/// Additions to the proxy's Deployment. Where a key is the operator's own, the operator's value wins.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxyDeploymentOverrides {
    /// Which nodes the proxy's pods may run on or should run on, by node labels and by the pods that run there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::scheduling::affinity")]
    pub affinity: Option<Affinity>,
    /// Annotations for the Deployment, not for its pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,
    /// Environment variables for the proxy's container, not for the MCP server's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub env: Option<Vec<EnvVar>>,
    /// Secrets that the images of the proxy and of the MCP server are pulled with.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub image_pull_secrets: Option<Vec<ImagePullSecret>>,
    /// Labels for the Deployment, not for its pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Labels that a node has to have for the proxy's pods to run on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Additions to the metadata of the proxy's pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_template_metadata_overrides: Option<MetadataOverrides>,
    /// Taints of nodes that do not keep the proxy's pods away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::scheduling::tolerations")]
    pub tolerations: Option<Vec<Toleration>>,
}

/// Additional labels and annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MetadataOverrides {
    /// Annotations to add.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,
    /// Labels to add.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
}

/// A Secret with credentials of an image registry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct ImagePullSecret {
    /// The name of the Secret.
    #[serde(default)]
    pub name: String,
}

/// An environment variable with its value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EnvVar {
    /// The name of the variable.
    pub name: String,
    /// The value of the variable.
    pub value: String,
}

/// The compute resources of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResourceRequirements {
    /// The most the container may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<ResourceList>,
    /// What is set aside for the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<ResourceList>,
}

/// Amounts of the two resources that can be asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResourceList {
    /// CPU as a quantity, such as `500m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// Memory as a quantity, such as `128Mi`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
}
