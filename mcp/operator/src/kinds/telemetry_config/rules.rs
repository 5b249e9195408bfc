//! The rules of an MCPTelemetryConfig that its schema cannot say, in ToolHive's words where it has them.

use std::collections::BTreeMap;

use http::{HeaderName, HeaderValue, Uri};
use mcp_api::v1beta1::OpenTelemetry;
use mcp_plan::{
    problem::Problem,
    reference::{bundle, incomplete_key},
    settings::Settings,
};
use mcp_runconfig::{endpoint::EndpointPolicy, is_export_header};

use super::collector::{address, sends_metrics, sends_traces};

/// The field with headers whose values are in Secrets.
pub(super) const SENSITIVE_HEADERS: &str = "spec.openTelemetry.sensitiveHeaders";
/// The field that names the CA bundle.
pub(super) const CA_BUNDLE: &str = "spec.openTelemetry.caBundleRef";
/// The field with the address of the collector.
const ENDPOINT: &str = "spec.openTelemetry.endpoint";

/// Every rule that the configuration breaks; empty when workloads may refer to it.
pub(super) fn problems(collector: &OpenTelemetry) -> Vec<Problem> {
    let mut problems = Vec::new();
    if let Some(endpoint) = endpoint(collector) {
        if !is_address(address(endpoint)) {
            let message =
                format!("{endpoint:?} is not the address of a collector; write host and port, as in otel.example:4318");
            problems.push(Problem::new(ENDPOINT, message));
        }
        if !sends_traces(collector) && !sends_metrics(collector) {
            let message = "requires at least one of tracing or metrics to be enabled; set tracing.enabled or metrics.enabled, or \
                           remove it";
            problems.push(Problem::new(ENDPOINT, message));
        }
    }
    if let Some(reference) = &collector.ca_bundle_ref {
        if collector.insecure {
            let message = "cannot be specified when insecure is true; they are mutually exclusive";
            problems.push(Problem::new(CA_BUNDLE, message));
        }
        problems.extend(bundle::problem(reference, CA_BUNDLE));
    }
    header_problems(collector, &mut problems);
    problems
}

/// The endpoint leads to an address that a proxy refuses to call.
pub(super) fn endpoint_problem(collector: &OpenTelemetry, settings: &Settings) -> Option<Problem> {
    let address = endpoint(collector).map(address).filter(|address| is_address(address))?;
    let policy = EndpointPolicy::all_but_metadata(settings.exempt_endpoints.clone());
    let error = policy.check_url(&format!("http://{address}")).err()?;
    Some(Problem::new(ENDPOINT, format!("{address:?} {error}")))
}

/// Warns of values that are valid and do less than their author may think, or show more.
pub(super) fn warnings(collector: &OpenTelemetry) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut warn = |field: &str, message: &str| warnings.push(format!("{field}: {message}"));
    let endpoint = endpoint(collector).unwrap_or_default();
    if !collector.enabled {
        if !endpoint.is_empty() {
            warn(ENDPOINT, "has no effect without enabled: true");
        }
        return warnings;
    }
    if endpoint.is_empty() && (sends_traces(collector) || sends_metrics(collector)) {
        warn("spec.openTelemetry", "nothing is sent without endpoint");
    }
    if endpoint.starts_with("http://") && !collector.insecure {
        warn(ENDPOINT, "http:// has no effect: the collector is called with TLS; set insecure: true for one without");
    }
    if endpoint.starts_with("https://") && collector.insecure {
        warn(ENDPOINT, "https:// has no effect: the collector is called in clear text; remove insecure for TLS");
    }
    if collector.insecure && collector.sensitive_headers.iter().flatten().next().is_some() {
        warn(SENSITIVE_HEADERS, "the values are sent in clear text; remove insecure");
    }
    warnings
}

fn header_problems(collector: &OpenTelemetry, problems: &mut Vec<Problem>) {
    let mut taken = BTreeMap::new();
    for (name, value) in collector.headers.iter().flatten() {
        let field = format!("spec.openTelemetry.headers[{name}]");
        if name.parse::<HeaderName>().is_err() || value.parse::<HeaderValue>().is_err() {
            problems.push(Problem::new(&*field, "is no header; write a name and a value that HTTP takes"));
        } else if is_export_header(name) {
            problems.push(Problem::new(&*field, "is one that the proxy writes itself; remove it"));
        }
        if let Some(other) = taken.insert(name.to_ascii_lowercase(), field.clone()) {
            problems.push(Problem::new(field, format!("is the same header as {other}; drop one of them")));
        }
    }
    for (at, header) in collector.sensitive_headers.iter().flatten().enumerate() {
        let (field, name) = (format!("{SENSITIVE_HEADERS}[{at}]"), &header.name);
        let incomplete = incomplete_key(&header.secret_key_ref.name, &header.secret_key_ref.key);
        problems.extend(incomplete.map(|message| Problem::new(format!("{field}.secretKeyRef"), message)));
        let message = if !survives(name) {
            format!(
                "{name:?} cannot name a header with a value of a Secret; use letters, digits and dashes: it reaches the proxy as \
                 the name of a variable, which has no others"
            )
        } else if is_export_header(name) {
            format!("header {name:?} is one that the proxy writes itself; remove it")
        } else if let Some(other) = taken.insert(name.to_ascii_lowercase(), field.clone()) {
            format!("header {name:?} is {other} as well; drop one of them")
        } else {
            continue;
        };
        problems.push(Problem::new(format!("{field}.name"), message));
    }
}

/// The endpoint, where one is written.
fn endpoint(collector: &OpenTelemetry) -> Option<&str> {
    collector.endpoint.as_deref().filter(|endpoint| !endpoint.is_empty())
}

/// Whether it is a host, with a port and a path at most.
fn is_address(address: &str) -> bool {
    let uri = format!("http://{address}").parse::<Uri>().ok();
    let host =
        uri.as_ref().and_then(|uri| uri.authority().filter(|it| !it.host().is_empty() && !it.as_str().contains('@')));
    host.is_some() && !address.contains("://") && !address.contains(['?', '#'])
}

/// Whether the proxy gets the name of a header back from that of its variable.
fn survives(header: &str) -> bool {
    !header.is_empty() && header.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}
