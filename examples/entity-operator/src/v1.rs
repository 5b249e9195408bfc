//! The first version: a name is one string.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::EntityStatus;

/// A person with a user name.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "demo.example",
    version = "v1",
    kind = "Entity",
    plural = "entities",
    namespaced,
    status = "EntityStatus"
)]
pub struct EntitySpec {
    /// First name, and after a space the last one.
    pub name: String,
    /// Name to log in with.
    pub username: String,
}
