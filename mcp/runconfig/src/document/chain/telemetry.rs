//! Traces and metrics: what is recorded of each request, and where it goes (toolhive-runner §2.12, toolhive-0.63 §10).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// `type` of the middleware that makes spans and metrics.
pub const TELEMETRY: &str = "telemetry";

/// Headers of an export that its protocol decides, beside those whose names begin with `grpc-`.
const RESERVED: [&str; 8] =
    ["connection", "content-encoding", "content-length", "content-type", "host", "te", "transfer-encoding", "upgrade"];

/// The traces and metrics of a proxy. Members are declared in the order ToolHive writes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "its members are the contract's")]
pub struct TelemetryConfig {
    /// The collector, as host and port, or as a URL; empty means none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub endpoint: String,
    /// The name of this proxy in what is exported; empty means the proxy's default.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub service_name: String,
    /// The version of this proxy in what is exported; empty means its own.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub service_version: String,
    /// Whether spans go to the collector.
    pub tracing_enabled: bool,
    /// Whether metrics go to the collector.
    pub metrics_enabled: bool,
    /// The part of traces that is kept, from 0 to 1, as text; empty means the default.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sampling_rate: String,
    /// Headers of requests to the collector.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Whether the collector is called without TLS.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub insecure: bool,
    /// Whether `/metrics` has these metrics.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub enable_prometheus_metrics_path: bool,
    /// The port of `/metrics` beside the proxy's; 0 means the proxy's default.
    #[serde(skip_serializing_if = "is_zero")]
    pub prometheus_port: u16,
    /// Whether the proxy's own port serves `/metrics` as well; `None` means yes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics_on_transport_port: Option<bool>,
    /// Variables of the proxy's process that spans have as attributes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub environment_variables: Vec<String>,
    /// Attributes of the resource.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub custom_attributes: BTreeMap<String, String>,
    /// Whether spans have the attributes of older conventions, too.
    pub use_legacy_attributes: bool,
    /// A file with the authorities of the collector's certificate; empty means the platform's.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ca_cert_path: String,
}

/// Parameters of `telemetry`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TelemetryParameters {
    /// The settings of the middleware.
    pub config: TelemetryConfig,
    /// The name of the MCP server.
    pub server_name: String,
    /// The transport of the MCP server.
    pub transport: String,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self {
            endpoint: String::new(),
            service_name: String::new(),
            service_version: String::new(),
            tracing_enabled: false,
            metrics_enabled: false,
            sampling_rate: String::new(),
            headers: BTreeMap::new(),
            insecure: false,
            enable_prometheus_metrics_path: false,
            prometheus_port: 0,
            metrics_on_transport_port: None,
            environment_variables: Vec::new(),
            custom_attributes: BTreeMap::new(),
            use_legacy_attributes: true,
            ca_cert_path: String::new(),
        }
    }
}

impl TelemetryConfig {
    /// Whether anything is recorded. The ports of metrics alone ask for nothing.
    pub fn is_on(&self) -> bool {
        self.enable_prometheus_metrics_path
            || (!self.endpoint.is_empty() && (self.tracing_enabled || self.metrics_enabled))
    }
}

/// Whether the proxy writes the header `name` of an export itself, so that no configuration may add it.
pub fn is_export_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    RESERVED.contains(&&*name) || name.starts_with("grpc-")
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference to the field")]
fn is_zero(port: &u16) -> bool {
    *port == 0
}
