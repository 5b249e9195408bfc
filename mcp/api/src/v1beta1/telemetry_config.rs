//! MCPTelemetryConfig: where traces and metrics go.
#![allow(clippy::duplicated_attributes, reason = "printer columns have the same type")]

use std::collections::BTreeMap;

use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ConfigStatus;
use crate::reference::{CaBundleRef, SecretKeyRef};

/// The traces and metrics of requests, and where they go.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "toolhive.stacklok.dev",
    version = "v1beta1",
    kind = "MCPTelemetryConfig",
    namespaced,
    status = "ConfigStatus",
    derive = "Default",
    derive = "PartialEq",
    shortname = "mcpotel",
    category = "toolhive",
    doc = "MCPTelemetryConfig says where the traces and metrics of the workloads that refer to it go.",
    printcolumn(name = "Endpoint", type_ = "string", json_path = ".spec.openTelemetry.endpoint"),
    printcolumn(name = "Valid", type_ = "string", json_path = ".status.conditions[?(@.type=='Valid')].status"),
    printcolumn(name = "Tracing", type_ = "boolean", json_path = ".spec.openTelemetry.tracing.enabled"),
    printcolumn(name = "Metrics", type_ = "boolean", json_path = ".spec.openTelemetry.metrics.enabled"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    crates(kube_core = "::kube_core")
)]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct MCPTelemetryConfigSpec {
    /// The OpenTelemetry collector, and the telemetry that is sent to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_telemetry: Option<OpenTelemetry>,
    /// The part of the proxy's `/metrics` that is of requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prometheus: Option<Prometheus>,
}

absent_spec_is_default!(MCPTelemetryConfigSpec);

/// An OpenTelemetry collector, and the telemetry that is sent to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.headers) || !has(self.sensitiveHeaders) || self.sensitiveHeaders.all(sh, !(sh.name in self.headers))",
    "message": "a header name cannot appear in both headers and sensitiveHeaders",
}]))]
pub struct OpenTelemetry {
    /// The authorities that the collector's certificate may come from, instead of the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_bundle_ref: Option<CaBundleRef>,
    /// Whether anything of this block has an effect.
    #[serde(default)]
    pub enabled: bool,
    /// The collector: host and port of its OTLP receiver. `http://` or `https://` in front of them is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Headers of requests to the collector, which anyone who may read this object sees.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers: Option<BTreeMap<String, String>>,
    /// Calls the collector in clear text.
    #[serde(default)]
    pub insecure: bool,
    /// Whether metrics are sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<OpenTelemetryMetrics>,
    /// Attributes of every trace and metric.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_attributes: Option<BTreeMap<String, String>>,
    /// Headers of requests to the collector whose values are in Secrets.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub sensitive_headers: Option<Vec<SensitiveHeader>>,
    /// Whether traces are sent, and how many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tracing: Option<OpenTelemetryTracing>,
    /// Whether spans have the attributes of older conventions as well.
    #[serde(default = "OpenTelemetry::default_use_legacy_attributes")]
    pub use_legacy_attributes: bool,
}

impl OpenTelemetry {
    const fn default_use_legacy_attributes() -> bool {
        true
    }
}

impl Default for OpenTelemetry {
    /// The schema's defaults.
    fn default() -> Self {
        Self {
            ca_bundle_ref: None,
            enabled: false,
            endpoint: None,
            headers: None,
            insecure: false,
            metrics: None,
            resource_attributes: None,
            sensitive_headers: None,
            tracing: None,
            use_legacy_attributes: Self::default_use_legacy_attributes(),
        }
    }
}

/// A header whose value is in a Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SensitiveHeader {
    /// The name of the header: letters, digits and dashes.
    #[schemars(length(min = 1))]
    pub name: String,
    /// The Secret and the key with the value.
    pub secret_key_ref: SecretKeyRef,
}

/// The metrics that are sent to a collector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OpenTelemetryMetrics {
    /// Whether metrics are sent.
    #[serde(default)]
    pub enabled: bool,
}

/// The traces that are sent to a collector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OpenTelemetryTracing {
    /// Whether traces are sent.
    #[serde(default)]
    pub enabled: bool,
    /// The share of requests that are traced, from 0 to 1.
    #[serde(default = "OpenTelemetryTracing::default_sampling_rate")]
    #[schemars(regex(pattern = r"^(0(\.\d+)?|1(\.0+)?)$"))]
    pub sampling_rate: String,
}

impl OpenTelemetryTracing {
    fn default_sampling_rate() -> String {
        "0.05".into()
    }
}

impl Default for OpenTelemetryTracing {
    /// The schema's defaults.
    fn default() -> Self {
        Self { enabled: false, sampling_rate: Self::default_sampling_rate() }
    }
}

/// The part of a proxy's `/metrics` that is of requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Prometheus {
    /// Whether `/metrics` has the metrics of requests.
    #[serde(default)]
    pub enabled: bool,
    /// Whether the port that clients use serves `/metrics` as well. Yes when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics_on_transport_port: Option<bool>,
}
