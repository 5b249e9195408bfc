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
