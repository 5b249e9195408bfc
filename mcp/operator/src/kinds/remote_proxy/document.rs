//! The RunConfig of an MCPRemoteProxy.

use mcp_api::v1beta1::{MCPRemoteProxySpec, RemoteTransport};
use mcp_plan::{settings::Settings, workload::workload_labels};
use mcp_runconfig::{Additions, PermissionProfile, ProxyMode, RunConfig, SCHEMA_VERSION, Transport};

use super::headers;

/// The document without the chain. There is no image; its profile and variables are what ToolHive writes for any server.
pub(super) fn run_config(name: &str, spec: &MCPRemoteProxySpec, settings: &Settings) -> RunConfig {
    let (transport, proxy_mode) = match spec.transport {
        RemoteTransport::Sse => (Transport::Sse, ProxyMode::Sse),
        RemoteTransport::StreamableHttp => (Transport::StreamableHttp, ProxyMode::StreamableHttp),
    };
    RunConfig {
        schema_version: SCHEMA_VERSION.to_owned(),
        remote_url: spec.remote_url.clone(),
        name: name.to_owned(),
        container_name: name.to_owned(),
        base_name: name.to_owned(),
        transport,
        host: settings.proxy_host.clone(),
        allowed_origins: settings.allowed_origins.clone(),
        // The schema bounds ports to 1..=65535.
        port: u16::try_from(spec.proxy_port).unwrap_or_default(),
        permission_profile: Some(PermissionProfile::network()),
        env_vars: [("MCP_TRANSPORT".to_owned(), transport.as_str().to_owned())].into(),
        container_labels: workload_labels(name, transport.as_str(), spec.proxy_port),
        trust_proxy_headers: spec.trust_proxy_headers,
        proxy_mode,
        endpoint_prefix: spec.endpoint_prefix.clone().unwrap_or_default(),
        header_forward: headers::document(name, spec),
        portcullis: Additions {
            allow_private_endpoint: spec.allow_private_endpoint,
            trusted_proxies: settings.trusted_proxies.clone(),
            ..Additions::default()
        },
        ..RunConfig::default()
    }
}
