//! Settings of telemetry that no document has.

use std::time::Duration;

use crate::secrets::Secret;

/// The variables of the environment that the export of traces and metrics depends on. They have the names of OpenTelemetry's specification, but for the
/// headers.
#[derive(Clone, Debug, Default)]
pub struct TelemetryEnvironment {
    /// `OTEL_RESOURCE_ATTRIBUTES`: `name=value` with commas between them. They win over those of the document.
    pub resource_attributes: String,
    /// `OTEL_EXPORTER_OTLP_PROTOCOL`: `http/protobuf` or `grpc`; empty means the former.
    pub protocol: String,
    /// `OTEL_EXPORTER_OTLP_TIMEOUT`: the longest that one export takes.
    pub timeout: Option<Duration>,
    /// `OTEL_BSP_SCHEDULE_DELAY`: the longest that a span waits for its export.
    pub span_delay: Option<Duration>,
    /// `OTEL_METRIC_EXPORT_INTERVAL`: the time between two exports of metrics.
    pub metric_interval: Option<Duration>,
    /// `TOOLHIVE_OTEL_HEADER_<NAME>`: headers of requests to the collector, each by the name of its variable after the prefix.
    pub headers: Vec<(String, Secret)>,
}
