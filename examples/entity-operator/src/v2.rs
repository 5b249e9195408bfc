//! The second version: the name in two parts.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::EntityStatus;

/// A person with a user name.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "demo.example",
    version = "v2",
    kind = "Entity",
    plural = "entities",
    namespaced,
    status = "EntityStatus"
)]
pub struct EntitySpec {
    /// First name.
    pub firstname: String,
    /// Everything after the first name; may be empty.
    pub lastname: String,
    /// Name to log in with.
    pub username: String,
}
