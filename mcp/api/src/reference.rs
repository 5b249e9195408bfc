//! References to other objects; always in the namespace of the object that holds them.

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
