//! Timeouts, health checks, logging and sessions of a virtual server.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::v1beta1::SessionStorageProvider;

/// Timeouts, health checks and logging.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Operational {
    /// What happens when a server behind fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_handling: Option<FailureHandling>,
    /// Whether clients hear of changed lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list_changed: Option<ListChanged>,
    /// What is logged. The usual when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_level: Option<LogLevel>,
    /// How long calls of servers may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<Timeouts>,
}

string_enum! {
    /// What is logged.
    pub enum LogLevel {
        /// Everything.
        Debug = "debug",
    }
}

/// What happens when a server behind fails.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailureHandling {
    /// Stops calling a server that keeps failing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub circuit_breaker: Option<CircuitBreaker>,
    /// How often servers are checked.
    #[serde(default = "FailureHandling::default_health_check_interval")]
    #[schemars(regex(pattern = "^([0-9]+(\\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$"))]
    pub health_check_interval: String,
    /// How long one check may take.
    #[serde(default = "FailureHandling::default_health_check_timeout")]
    #[schemars(regex(pattern = "^([0-9]+(\\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$"))]
    pub health_check_timeout: String,
    /// What clients get when some servers fail.
    #[serde(default)]
    pub partial_failure_mode: PartialFailureMode,
    /// How often the virtual server writes its state into the object's status.
    #[serde(default = "FailureHandling::default_status_reporting_interval")]
    #[schemars(regex(pattern = "^([0-9]+(\\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$"))]
    pub status_reporting_interval: String,
    /// After how many failed checks in a row a server counts as unavailable.
    #[serde(default = "FailureHandling::default_unhealthy_threshold")]
    #[schemars(schema_with = "crate::schema::integer")]
    pub unhealthy_threshold: i64,
}

impl FailureHandling {
    fn default_health_check_interval() -> String {
        "30s".into()
    }

    fn default_health_check_timeout() -> String {
        "10s".into()
    }

    fn default_status_reporting_interval() -> String {
        "30s".into()
    }

    const fn default_unhealthy_threshold() -> i64 {
        3
    }
}

string_enum! {
    /// What clients get when some servers fail.
    #[derive(Default)]
    pub enum PartialFailureMode {
        /// An error.
        #[default]
        Fail = "fail",
        /// What the other servers answer.
        BestEffort = "best_effort",
    }
}

/// Stops calling a server that keeps failing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CircuitBreaker {
    /// Whether it does.
    #[serde(default)]
    pub enabled: bool,
    /// After how many failures in a row calls are refused.
    #[serde(default = "CircuitBreaker::default_failure_threshold")]
    #[schemars(schema_with = "crate::schema::integer", range(min = 1))]
    pub failure_threshold: i64,
    /// How long calls are refused before one is tried; at least 1s.
    #[serde(default = "CircuitBreaker::default_timeout")]
    #[schemars(regex(pattern = "^([0-9]+(\\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$"), extend("x-kubernetes-validations" = [{
    "rule": "self == '' || duration(self) >= duration('1s')",
    "message": "timeout must be >= 1s",
}]))]
    pub timeout: String,
}

impl CircuitBreaker {
    const fn default_failure_threshold() -> i64 {
        5
    }

    fn default_timeout() -> String {
        "60s".into()
    }
}

/// Whether clients hear of changed lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListChanged {
    /// The names of the servers whose changes are not passed on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub disabled_workloads: Option<Vec<String>>,
    /// Whether changes are passed on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

/// How long calls may take, as durations such as `30s`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Timeouts {
    /// How long a server may take to open a session.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^([0-9]+(\\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$"))]
    pub backend_init: Option<String>,
    /// How long a call may take.
    #[serde(default = "Timeouts::default_default")]
    #[schemars(regex(pattern = "^([0-9]+(\\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$"))]
    pub default: String,
    /// How long a call of single servers may take, by their names.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("additionalProperties" = {"type": "string", "pattern": "^([0-9]+(\\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$"}))]
    pub per_workload: Option<BTreeMap<String, String>>,
}

impl Timeouts {
    fn default_default() -> String {
        "30s".into()
    }
}

/// The store of sessions, as the virtual server reads it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionStorageConfig {
    /// Host and port of Redis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The number of the Redis database.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub db: i32,
    /// What every Redis key starts with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_prefix: Option<String>,
    /// What kind of store this is.
    pub provider: SessionStorageProvider,
    /// Has no effect and is refused: use `spec.sessionStorage.tls`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<SessionStorageTlsConfig>,
}

/// How the TLS certificate of Redis is checked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionStorageTlsConfig {
    /// A file with the authorities that the certificate of Redis may come from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_cert_file: Option<String>,
    /// Accepts any certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub insecure_skip_verify: Option<bool>,
}
