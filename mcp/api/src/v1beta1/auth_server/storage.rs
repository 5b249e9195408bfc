//! Where the authorization server keeps sessions and registered clients.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reference::SecretKeyRef;

/// The store of an authorization server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuthServerStorage {
    /// How many clients that registered themselves are kept.
    #[serde(rename = "maxDCRClients", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_dcr_clients: Option<i32>,
    /// The Redis, for type `redis`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redis: Option<AuthServerRedis>,
    /// What kind of store this is.
    #[serde(rename = "type", default)]
    pub kind: AuthServerStorageType,
}

string_enum! {
    /// Kinds of stores.
    #[derive(Default)]
    pub enum AuthServerStorageType {
        /// The process itself; a restart signs everyone out.
        #[default]
        Memory = "memory",
        /// A Redis that all replicas share.
        Redis = "redis",
    }
}

/// A Redis: one server, a cluster, or one that sentinels watch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "(has(self.addr) && self.addr.size() > 0) != has(self.sentinelConfig)",
        "message": "exactly one of addr or sentinelConfig must be set",
    },
    {
        "rule": "!(has(self.clusterMode) && self.clusterMode) || (has(self.addr) && self.addr.size() > 0)",
        "message": "clusterMode requires addr to be set",
    },
]))]
pub struct AuthServerRedis {
    /// Who signs in at Redis.
    pub acl_user_config: RedisAclUser,
    /// Host and port of Redis. Not together with `sentinelConfig`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub addr: Option<String>,
    /// Whether `addr` is a node of a Redis cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_mode: Option<bool>,
    /// How long a connection may take to open.
    #[serde(default = "AuthServerRedis::default_dial_timeout")]
    #[schemars(regex(pattern = "^([0-9]+(\\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$"))]
    pub dial_timeout: String,
    /// How long an answer may take.
    #[serde(default = "AuthServerRedis::default_read_timeout")]
    #[schemars(regex(pattern = "^([0-9]+(\\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$"))]
    pub read_timeout: String,
    /// The sentinels that know which server is the master. Not together with `addr`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sentinel_config: Option<RedisSentinel>,
    /// Connects to the sentinels with TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sentinel_tls: Option<RedisTls>,
    /// Connects to Redis with TLS. Without it, the connection is in clear text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<RedisTls>,
    /// How long a command may take to send.
    #[serde(default = "AuthServerRedis::default_write_timeout")]
    #[schemars(regex(pattern = "^([0-9]+(\\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$"))]
    pub write_timeout: String,
}

impl AuthServerRedis {
    fn default_dial_timeout() -> String {
        "5s".into()
    }

    fn default_read_timeout() -> String {
        "3s".into()
    }

    fn default_write_timeout() -> String {
        "3s".into()
    }
}

/// The user that signs in at Redis.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RedisAclUser {
    /// The password.
    pub password_secret_ref: SecretKeyRef,
    /// The name. The default user when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub username_secret_ref: Option<SecretKeyRef>,
}

/// Sentinels that know which server is the master.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RedisSentinel {
    /// The number of the Redis database.
    #[serde(default)]
    pub db: i32,
    /// The name of the master.
    pub master_name: String,
    /// Host and port of each sentinel, instead of `sentinelService`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub sentinel_addrs: Option<Vec<String>>,
    /// The Service in front of the sentinels, instead of `sentinelAddrs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sentinel_service: Option<RedisSentinelService>,
}

/// A Service in front of sentinels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RedisSentinelService {
    /// The name of the Service.
    pub name: String,
    /// The namespace of the Service. The object's own when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The port of the Service.
    #[serde(default = "RedisSentinelService::default_port")]
    pub port: i32,
}

impl RedisSentinelService {
    const fn default_port() -> i32 {
        26_379
    }
}

/// How a TLS certificate is checked. Empty, the system's authorities are trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RedisTls {
    /// The PEM bundle of the authorities that the certificate may come from, instead of the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_cert_secret_ref: Option<SecretKeyRef>,
    /// Accepts any certificate. For tests only: anyone on the path can read and change sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub insecure_skip_verify: Option<bool>,
}
