//! Audit records, traces and metrics, as the virtual server reads them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether and how requests are recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "its members are the contract's")]
pub struct AuditConfig {
    /// The name of this server in the records. The object's when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub component: Option<String>,
    /// Whether an error inside of a successful answer counts as a failure.
    #[serde(default = "AuditConfig::default_detect_application_errors")]
    pub detect_application_errors: bool,
    /// Whether requests are recorded.
    #[serde(default)]
    pub enabled: bool,
    /// The kinds of events that are recorded. All when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_types: Option<Vec<String>>,
    /// The kinds of events that are not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclude_event_types: Option<Vec<String>>,
    /// Whether records hold the arguments of calls.
    #[serde(default)]
    pub include_request_data: bool,
    /// Whether records hold the answers.
    #[serde(default)]
    pub include_response_data: bool,
    /// The file that records go to. The standard output when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_file: Option<String>,
    /// How many bytes of arguments and answers a record holds at most.
    #[serde(default = "AuditConfig::default_max_data_size")]
    #[schemars(schema_with = "crate::schema::integer")]
    pub max_data_size: i64,
    /// How many actors of a delegated token a record names at most.
    #[serde(default = "AuditConfig::default_max_delegation_depth")]
    #[schemars(schema_with = "crate::schema::integer", range(min = 1))]
    pub max_delegation_depth: i64,
}

impl AuditConfig {
    const fn default_detect_application_errors() -> bool {
        true
    }

    const fn default_max_data_size() -> i64 {
        1024
    }

    const fn default_max_delegation_depth() -> i64 {
        10
    }
}

/// Where traces and metrics go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "its members are the contract's")]
pub struct TelemetryConfig {
    /// A file with the authorities that the collector's certificate may come from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_cert_path: Option<String>,
    /// Attributes of every trace and metric.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom_attributes: Option<BTreeMap<String, String>>,
    /// Whether metrics are served at `/metrics`.
    #[serde(default)]
    pub enable_prometheus_metrics_path: bool,
    /// Host and port of the OpenTelemetry collector.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The environment variables that become attributes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment_variables: Option<Vec<String>>,
    /// Headers for requests to the collector.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers: Option<BTreeMap<String, String>>,
    /// Sends to the collector in clear text.
    #[serde(default)]
    pub insecure: bool,
    /// Whether metrics are sent to the collector.
    #[serde(default)]
    pub metrics_enabled: bool,
    /// Whether `/metrics` is served on the port that clients use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics_on_transport_port: Option<bool>,
    /// The port of `/metrics` where it has one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::integer")]
    pub prometheus_port: Option<i64>,
    /// The share of requests that are traced, from 0 to 1.
    #[serde(default = "TelemetryConfig::default_sampling_rate")]
    pub sampling_rate: String,
    /// The service name in traces and metrics. The object's name when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_name: Option<String>,
    /// The version in traces and metrics.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_version: Option<String>,
    /// Whether traces are sent to the collector.
    #[serde(default)]
    pub tracing_enabled: bool,
    /// Whether attributes have the names of earlier versions as well.
    #[serde(default = "TelemetryConfig::default_use_legacy_attributes")]
    pub use_legacy_attributes: bool,
}

impl TelemetryConfig {
    fn default_sampling_rate() -> String {
        "0.05".into()
    }

    const fn default_use_legacy_attributes() -> bool {
        true
    }
}
