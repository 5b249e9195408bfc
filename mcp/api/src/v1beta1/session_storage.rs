//! Where sessions are kept, so that several replicas can serve one client.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reference::SecretKeyRef;

/// The store that holds sessions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.provider == 'redis' ? has(self.address) : true",
    "message": "address is required",
}]))]
pub struct SessionStorage {
    /// Host and port of Redis. Required for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub address: Option<String>,
    /// The number of the Redis database.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub db: i32,
    /// What every Redis key starts with, so that several servers can share a database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_prefix: Option<String>,
    /// The password of Redis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_ref: Option<SecretKeyRef>,
    /// What kind of store this is.
    pub provider: SessionStorageProvider,
}

string_enum! {
    /// Kinds of session stores.
    pub enum SessionStorageProvider {
        /// Each proxy keeps its own sessions; another replica does not know them.
        Memory = "memory",
        /// All replicas share a Redis.
        Redis = "redis",
    }
}
