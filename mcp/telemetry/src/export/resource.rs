//! The resource: what the proxy is to those who read its spans and metrics.

use std::collections::BTreeMap;

use mcp_middleware::BuildContext;
use mcp_runconfig::TelemetryConfig;
use mcp_runconfig::environment::OTEL_RESOURCE_ATTRIBUTES;
use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource;
use percent_encoding::percent_decode_str;

/// The conventions that the names of attributes follow.
const SCHEMA: &str = "https://opentelemetry.io/schemas/1.43.0";
/// The file in which Linux has the name of the machine: of a pod, that of the pod.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";

/// The attributes of the document, and over them those of the environment (toolhive-0.63 §10).
pub(super) async fn resource(config: &TelemetryConfig, context: &BuildContext) -> Resource {
    let or = |text: &str, default: &str| if text.is_empty() { default.to_owned() } else { text.to_owned() };
    let mut attributes = BTreeMap::from([
        ("service.name".to_owned(), or(&config.service_name, &context.settings.server_name)),
        ("service.version".to_owned(), or(&config.service_version, env!("CARGO_PKG_VERSION"))),
    ]);
    let host = tokio::fs::read_to_string(HOST_NAME).await;
    attributes.extend(host.ok().map(|host| ("host.name".to_owned(), host.trim().to_owned())));
    attributes.extend(config.custom_attributes.clone());
    attributes.extend(listed(&(context.settings.variables)(OTEL_RESOURCE_ATTRIBUTES).unwrap_or_default()));
    attributes.remove("");
    let attributes = attributes.into_iter().map(|(name, value)| KeyValue::new(name, value));
    Resource::builder_empty().with_schema_url(attributes, SCHEMA).build()
}

/// The attributes in a text such as `service.name=a,team=b%2Cc`. One without a name or a value is left out.
fn listed(text: &str) -> impl Iterator<Item = (String, String)> {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    let decoded = |text: &str| percent_decode_str(text.trim()).decode_utf8().ok().map(Into::into);
    pairs.filter_map(move |(name, value)| Some((decoded(name)?, decoded(value)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_attributes_are_decoded_and_halves_of_them_left_out() {
        let found: Vec<_> = listed("service.name=a, team = b%2Cc ,nothing,n=x=y,bad=%FF").collect();
        let expected = [("service.name", "a"), ("team", "b,c"), ("n", "x=y")];
        assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
}
