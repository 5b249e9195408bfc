//! The RunConfig of an MCPServer.

use mcp_api::v1beta1::{self, MCPServerSpec};
use mcp_plan::{settings::Settings, workload::workload_labels};
use mcp_runconfig::{Additions, PermissionProfile, ProxyMode, RunConfig, SCHEMA_VERSION, ScalingConfig, Transport};

use super::{environment, rules};

/// The transport between the proxy and its clients.
pub(super) fn proxy_mode(spec: &MCPServerSpec) -> ProxyMode {
    match (spec.transport, spec.proxy_mode) {
        (v1beta1::Transport::Sse, _) | (v1beta1::Transport::Stdio, v1beta1::ProxyMode::Sse) => ProxyMode::Sse,
        (v1beta1::Transport::StreamableHttp, _) | (v1beta1::Transport::Stdio, v1beta1::ProxyMode::StreamableHttp) => {
            ProxyMode::StreamableHttp
        }
    }
}

/// The document without the chain.
///
/// `mcpserver_generation` is left out: the operator owns the workload, so no outdated proxy can overwrite it, and an
/// edit that changes nothing for the proxy rolls nothing.
pub(super) fn run_config(name: &str, spec: &MCPServerSpec, settings: &Settings) -> RunConfig {
    let volumes: Vec<_> = volumes(spec).collect();
    RunConfig {
        schema_version: SCHEMA_VERSION.to_owned(),
        image: spec.image.clone(),
        cmd_args: spec.args.clone().unwrap_or_default(),
        name: name.to_owned(),
        container_name: name.to_owned(),
        base_name: name.to_owned(),
        transport: match spec.transport {
            v1beta1::Transport::Stdio => Transport::Stdio,
            v1beta1::Transport::Sse => Transport::Sse,
            v1beta1::Transport::StreamableHttp => Transport::StreamableHttp,
        },
        host: settings.proxy_host.clone(),
        allowed_origins: settings.allowed_origins.clone(),
        port: port(spec.proxy_port),
        target_port: port(environment::mcp_port(spec)),
        permission_profile: Some(profile(&volumes)),
        env_vars: environment::plain(spec),
        volumes: volumes.into_iter().map(|(path, read_only)| path + if read_only { ":ro" } else { "" }).collect(),
        container_labels: workload_labels(name, spec.transport.as_str(), spec.proxy_port),
        trust_proxy_headers: spec.trust_proxy_headers,
        max_request_body_size: spec
            .max_request_body_size
            .and_then(|bytes| u64::try_from(bytes).ok())
            .unwrap_or_default(),
        proxy_read_timeout: spec
            .proxy_read_timeout
            .as_deref()
            .and_then(|text| rules::read_timeout(text).ok())
            .filter(|timeout| !timeout.is_zero()),
        proxy_mode: proxy_mode(spec),
        endpoint_prefix: spec.endpoint_prefix.clone().unwrap_or_default(),
        scaling_config: spec
            .backend_replicas
            .map(|replicas| ScalingConfig { backend_replicas: Some(replicas), ..ScalingConfig::default() }),
        portcullis: Additions { trusted_proxies: settings.trusted_proxies.clone(), ..Additions::default() },
        ..RunConfig::default()
    }
}

/// The built-in profile `network`, in which the server's volumes are part of what it may read or write.
fn profile(volumes: &[(String, bool)]) -> PermissionProfile {
    let mut profile = PermissionProfile::network();
    for (path, read_only) in volumes {
        if *read_only { profile.read.push(path.clone()) } else { profile.write.push(path.clone()) }
    }
    profile
}

fn volumes(spec: &MCPServerSpec) -> impl Iterator<Item = (String, bool)> {
    let volumes = spec.volumes.as_deref().unwrap_or_default();
    volumes.iter().map(|volume| (format!("{}:{}", volume.host_path, volume.mount_path), volume.read_only))
}

/// The schema bounds ports to 1..=65535.
fn port(port: i32) -> u16 {
    u16::try_from(port).unwrap_or_default()
}
