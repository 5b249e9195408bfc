//! The part of an MCPTelemetryConfig that the proxy reads (toolhive-operator §3), and its needs for it.

use mcp_api::v1beta1::{MCPTelemetryConfigSpec, OpenTelemetry};
use mcp_plan::{
    config::{Needs, Target},
    reference::{Content, MountedFile, SecretVariable, bundle},
    workload::proxy,
};
use mcp_runconfig::{TelemetryConfig, environment};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Where the CA bundles of collectors are mounted.
const BUNDLES: &str = "/config/certs/otel";
/// The characters that are encoded in a resource attribute: all but those that RFC 3986 §2.3 calls unreserved. Kubernetes would
/// replace `$(NAME)`.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The configuration of the proxy of `target`. Its `service` is the workload's own name where the reference gives none.
pub(super) fn rendered(spec: &MCPTelemetryConfigSpec, target: &Target, service: Option<&str>) -> TelemetryConfig {
    let prometheus = spec.prometheus.as_ref();
    let config = TelemetryConfig {
        service_name: service_name(target, service).to_owned(),
        enable_prometheus_metrics_path: prometheus.is_some_and(|it| it.enabled),
        metrics_on_transport_port: prometheus.and_then(|it| it.metrics_on_transport_port),
        use_legacy_attributes: false,
        ..TelemetryConfig::default()
    };
    let Some(collector) = enabled(spec) else { return config };
    TelemetryConfig {
        endpoint: address(collector.endpoint.as_deref().unwrap_or_default()).to_owned(),
        tracing_enabled: sends_traces(collector),
        metrics_enabled: sends_metrics(collector),
        sampling_rate: collector.tracing.as_ref().map(|it| number(&it.sampling_rate)).unwrap_or_default(),
        headers: collector.headers.clone().unwrap_or_default(),
        insecure: collector.insecure,
        custom_attributes: collector.resource_attributes.clone().unwrap_or_default(),
        use_legacy_attributes: collector.use_legacy_attributes,
        ca_cert_path: ca_bundle(collector).map(|file| file.path()).unwrap_or_default(),
        ..config
    }
}

/// The needs of the proxy of `target`.
pub(super) fn needs(spec: &MCPTelemetryConfigSpec, target: &Target, service: Option<&str>) -> Needs {
    let attributes =
        [("service.name", service_name(target, service)), ("service.namespace", target.namespace.as_str())];
    let attributes = attributes.map(|(key, value)| format!("{key}={}", utf8_percent_encode(value, ENCODED))).join(",");
    let sensitive = enabled(spec).into_iter().flat_map(|collector| collector.sensitive_headers.iter().flatten());
    let secrets = sensitive.map(|header| SecretVariable {
        name: variable(&header.name).into(),
        secret: header.secret_key_ref.name.clone(),
        key: header.secret_key_ref.key.clone(),
        content: Content::Header,
    });
    Needs {
        files: enabled(spec).and_then(ca_bundle).into_iter().collect(),
        secrets: secrets.collect(),
        variables: vec![proxy::variable(environment::OTEL_RESOURCE_ATTRIBUTES, &attributes)],
        ..Needs::default()
    }
}

/// The file with the authorities of the collector.
pub(super) fn ca_bundle(collector: &OpenTelemetry) -> Option<MountedFile> {
    bundle::file(collector.ca_bundle_ref.as_ref()?, "otel-ca-bundle", BUNDLES)
}

/// The endpoint without its scheme.
pub(super) fn address(endpoint: &str) -> &str {
    let rest = endpoint.strip_prefix("https://").unwrap_or(endpoint);
    rest.strip_prefix("http://").unwrap_or(rest)
}

/// Whether traces are sent.
pub(super) fn sends_traces(collector: &OpenTelemetry) -> bool {
    collector.tracing.as_ref().is_some_and(|it| it.enabled)
}

/// Whether metrics are sent.
pub(super) fn sends_metrics(collector: &OpenTelemetry) -> bool {
    collector.metrics.as_ref().is_some_and(|it| it.enabled)
}

/// The variable with the value of a header.
fn variable(header: &str) -> String {
    format!("{}{}", environment::OTEL_HEADER_PREFIX, header.to_ascii_uppercase().replace('-', "_"))
}

fn enabled(spec: &MCPTelemetryConfigSpec) -> Option<&OpenTelemetry> {
    spec.open_telemetry.as_ref().filter(|collector| collector.enabled)
}

fn service_name<'a>(target: &'a Target, service: Option<&'a str>) -> &'a str {
    service.filter(|name| !name.is_empty()).unwrap_or(&target.name)
}

/// A number as Go prints it: 1.0 is 1. What is no number is the proxy's default.
fn number(text: &str) -> String {
    text.parse::<f64>().map(|number| number.to_string()).unwrap_or_default()
}
