//! Headers of requests to the collector.

use http::header::{HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use mcp_middleware::{BuildContext, BuildError};
use mcp_runconfig::environment::OTEL_HEADER_PREFIX;
use mcp_runconfig::{TelemetryConfig, is_export_header};

/// The name of the proxy to collectors, unless the document has another.
const AGENT: HeaderValue = HeaderValue::from_static(concat!("portcullis/", env!("CARGO_PKG_VERSION")));

/// The headers of the document, and over them those of the environment, whose values come from Secrets. No error holds a value.
pub(super) fn headers(config: &TelemetryConfig, context: &BuildContext) -> Result<HeaderMap, BuildError> {
    let mut headers = HeaderMap::from_iter([(USER_AGENT, AGENT)]);
    let plain = config.headers.iter().map(|(name, value)| (format!("header {name:?}"), name.clone(), value.as_str()));
    let secret = context.settings.collector_headers.iter().map(|(name, value)| {
        (format!("{OTEL_HEADER_PREFIX}{name}"), name.to_ascii_lowercase().replace('_', "-"), value.reveal())
    });
    for (source, name, value) in plain.chain(secret) {
        let fail = |problem: &str, fix| context.error("parameters.config.headers", format!("{source} {problem}"), fix);
        let name: HeaderName =
            name.parse().map_err(|_| fail("has no name of a header", "write letters, digits and hyphens"))?;
        if is_export_header(name.as_str()) {
            return Err(fail("is one that the proxy writes itself", "remove it"));
        }
        let mut value: HeaderValue =
            value.parse().map_err(|_| fail("has a value that no header can have", "remove its line breaks"))?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}
