//! Where sessions are kept, so that several replicas can serve one client.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reference::SecretKeyRef;

/// The store that holds sessions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "self.provider == 'redis' ? has(self.address) : true",
        "message": "address is required",
    },
    {
        "rule": "!has(self.tls) || self.provider == 'redis'",
        "message": "tls is only supported when provider is redis",
    },
    {
        "rule": "!has(self.tls) || !has(self.tls.caCertSecretRef) || !has(self.tls.insecureSkipVerify) || !self.tls.insecureSkipVerify",
        "message": "tls.insecureSkipVerify disables certificate verification, so tls.caCertSecretRef would be ignored; set only one",
    },
    {
        "rule": "!has(self.tls) || !has(self.tls.caCertSecretRef) || (size(self.tls.caCertSecretRef.name) > 0 && size(self.tls.caCertSecretRef.key) > 0)",
        "message": "tls.caCertSecretRef requires a non-empty name and key",
    },
]))]
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
    /// Connects to Redis with TLS, and says how its certificate is checked. Without it, the connection is in clear
    /// text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<SessionStorageTls>,
}

/// How the TLS certificate of Redis is checked. Empty, the system's authorities are trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionStorageTls {
    /// The PEM bundle of the authorities that the certificate of Redis may come from, instead of the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_cert_secret_ref: Option<SecretKeyRef>,
    /// Accepts any certificate. For tests only: anyone on the path can read and change sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub insecure_skip_verify: Option<bool>,
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
