//! The third version, which is stored. It has an immutable birthday.

#![allow(unreachable_pub, reason = "KubeSchema writes a public struct that nothing else sees")]

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::EntityStatus;

/// A person with a user name.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "demo.example",
    version = "v3",
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
    /// Day of birth, as in 1815-12-10. May be added later, and stays as it is from then on.
    #[x_kube(validation = Rule::new("self == oldSelf").message("a birthday does not change"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub birthday: Option<String>,
}
