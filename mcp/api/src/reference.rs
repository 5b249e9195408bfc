//! References between objects; always within one namespace.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A key of a Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretKeyRef {
    /// The key inside the Secret's data.
    pub key: String,
    /// The name of the Secret.
    pub name: String,
}

/// A reference by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NameRef {
    /// The name of the referenced object.
    #[schemars(length(min = 1))]
    pub name: String,
}

/// A reference by name whose schema admits the empty name, which then refers to nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LenientNameRef {
    /// The name of the referenced object.
    pub name: String,
}

/// A key of a ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct ConfigMapKeyRef {
    /// The key inside the ConfigMap's data.
    pub key: String,
    /// The name of the ConfigMap.
    #[serde(default)]
    pub name: String,
    /// Whether the ConfigMap or its key may be missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
}

/// Authorities that are trusted, as a PEM bundle.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.configMapRef) && size(self.configMapRef.name) > 0",
    "message": "configMapRef.name is required and must be non-empty",
}]))]
pub struct CaBundleRef {
    /// The key of a ConfigMap that holds the bundle. An empty key means `ca.crt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map_ref: Option<ConfigMapKeyRef>,
}

/// A workload that refers to the object whose status lists it.
///
/// The order is by kind and then by name, which is the order of such a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct WorkloadRef {
    /// The kind of the workload, such as `MCPServer`.
    pub kind: String,
    /// The name of the workload.
    pub name: String,
}
