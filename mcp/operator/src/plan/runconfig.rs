//! The RunConfig of one server, in its ConfigMap.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use mcp_api::{
    names::{annotation, label},
    v1beta1,
};
use mcp_runconfig::{
    MiddlewareConfig, PermissionProfile, ProxyMode, RunConfig, SCHEMA_VERSION, ScalingConfig, Transport,
    webhook::{MUTATING, VALIDATING, WebhookConfig, WebhookParameters},
};
use serde_json::{Map, Value, json};

use super::{
    Child, ChildKind, digest, environment,
    gate::{Gate, ReadyGate},
    metadata::Server,
    names,
};

/// Directory of a ConfigMap's permission profile in the proxy.
pub(super) const PROFILES: &str = "/etc/toolhive/profiles";
/// Most bytes of a request body.
const MAX_BODY: u64 = 8 << 20;

/// A rendered RunConfig.
pub(super) struct Rendered {
    document: String,
    /// SHA-256 of the document: every byte counts.
    pub(super) checksum: String,
}

/// Renders the document that the proxy is started with.
pub(super) fn render(server: &Server<'_>, gate: &Gate, profile: PermissionProfile) -> Rendered {
    let document = run_config(server, gate, profile).to_json();
    let checksum = digest(document.as_bytes());
    Rendered { document, checksum }
}

/// The labels of the workload, as the RunConfig tells them and the StatefulSet carries them.
pub(super) fn workload_labels(server: &Server<'_>) -> BTreeMap<String, String> {
    [
        (label::TOOLHIVE, "true".to_owned()),
        (label::TOOLHIVE_NAME, server.name.to_owned()),
        ("toolhive-basename", server.name.to_owned()),
        ("toolhive-transport", server.spec.transport.as_str().to_owned()),
        ("toolhive-port", server.spec.proxy_port.to_string()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into()
}

/// What the proxy speaks to its clients.
pub(super) fn proxy_mode(server: &Server<'_>) -> ProxyMode {
    match (server.spec.transport, server.spec.proxy_mode) {
        (v1beta1::Transport::Sse, _) | (v1beta1::Transport::Stdio, v1beta1::ProxyMode::Sse) => ProxyMode::Sse,
        (v1beta1::Transport::StreamableHttp, _) | (v1beta1::Transport::Stdio, v1beta1::ProxyMode::StreamableHttp) => {
            ProxyMode::StreamableHttp
        }
    }
}

impl Rendered {
    /// The ConfigMap that holds it.
    pub(super) fn config_map(&self, server: &Server<'_>) -> Child {
        let name = names::run_config(server.name);
        let labels = [
            (label::COMPONENT, label::COMPONENT_RUN_CONFIG),
            (label::MCP_SERVER, server.name),
            (label::MANAGED_BY, label::MANAGED_BY_OPERATOR),
        ];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let mut metadata = server.metadata(&name, labels);
        metadata.annotations = Some([(annotation::CONTENT_CHECKSUM.to_owned(), self.checksum.clone())].into());
        let data = Some([(names::RUN_CONFIG_KEY.to_owned(), self.document.clone())].into());
        Child::new(ChildKind::ConfigMap, &name, &ConfigMap { metadata, data, ..ConfigMap::default() })
    }
}

/// `mcpserver_generation` is left out: the operator owns the workload, so no outdated proxy can overwrite it, and an
/// edit that changes nothing for the proxy rolls nothing.
fn run_config(server: &Server<'_>, gate: &Gate, profile: PermissionProfile) -> RunConfig {
    let spec = server.spec;
    let (mutating, validating) = match gate {
        Gate::Ready(ReadyGate { mutating, validating, .. }) => (mutating.clone(), validating.clone()),
        Gate::Open | Gate::Broken(_) => (Vec::new(), Vec::new()),
    };
    RunConfig {
        schema_version: SCHEMA_VERSION.to_owned(),
        image: spec.image.clone(),
        cmd_args: spec.args.clone().unwrap_or_default(),
        name: server.name.to_owned(),
        container_name: server.name.to_owned(),
        base_name: server.name.to_owned(),
        transport: match spec.transport {
            v1beta1::Transport::Stdio => Transport::Stdio,
            v1beta1::Transport::Sse => Transport::Sse,
            v1beta1::Transport::StreamableHttp => Transport::StreamableHttp,
        },
        host: server.settings.proxy_host.clone(),
        port: port(spec.proxy_port),
        target_port: port(environment::mcp_port(server)),
        permission_profile_name_or_path: match &spec.permission_profile {
            None => String::new(),
            Some(profile) => match profile.kind {
                v1beta1::PermissionProfileType::Builtin => profile.name.clone(),
                v1beta1::PermissionProfileType::ConfigMap => {
                    format!("{PROFILES}/{}", profile.key.as_deref().unwrap_or_default())
                }
            },
        },
        permission_profile: Some(with_volumes(profile, server)),
        env_vars: environment::plain(server),
        volumes: volumes(server).map(|(path, read_only)| path + if read_only { ":ro" } else { "" }).collect(),
        container_labels: workload_labels(server),
        trust_proxy_headers: spec.trust_proxy_headers,
        proxy_mode: proxy_mode(server),
        middleware_configs: chain(server, &mutating, &validating),
        mutating_webhooks: mutating,
        validating_webhooks: validating,
        endpoint_prefix: spec.endpoint_prefix.clone().unwrap_or_default(),
        scaling_config: spec
            .backend_replicas
            .map(|replicas| ScalingConfig { backend_replicas: Some(replicas), ..ScalingConfig::default() }),
        ..RunConfig::default()
    }
}

/// The chain, outermost first (toolhive-operator §3). `usagemetrics` is never in it: it reports home.
fn chain(server: &Server<'_>, mutating: &[WebhookConfig], validating: &[WebhookConfig]) -> Vec<MiddlewareConfig> {
    let webhooks = |kind: &str, webhooks: &[WebhookConfig]| {
        let parameters = WebhookParameters {
            webhooks: webhooks.to_vec(),
            server_name: server.name.to_owned(),
            transport: server.spec.transport.as_str().to_owned(),
            extra: Map::new(),
        };
        // Strings, integers and maps with string keys always serialize.
        MiddlewareConfig::new(kind, serde_json::to_value(parameters).unwrap_or_default())
    };
    let mut chain = vec![
        MiddlewareConfig::new("bodylimit", json!({"max_bytes": MAX_BODY})),
        MiddlewareConfig::new("auth", json!({})),
        MiddlewareConfig::new("mcp-parser", json!({})),
    ];
    if !mutating.is_empty() {
        chain.push(webhooks(MUTATING, mutating));
    }
    if !validating.is_empty() {
        chain.push(webhooks(VALIDATING, validating));
    }
    chain.push(MiddlewareConfig::new("recovery", Value::Null));
    chain
}

/// The server's volumes are part of what it may read or write.
fn with_volumes(mut profile: PermissionProfile, server: &Server<'_>) -> PermissionProfile {
    for (path, read_only) in volumes(server) {
        if read_only { profile.read.push(path) } else { profile.write.push(path) }
    }
    profile
}

fn volumes(server: &Server<'_>) -> impl Iterator<Item = (String, bool)> {
    let volumes = server.spec.volumes.as_deref().unwrap_or_default();
    volumes.iter().map(|volume| (format!("{}:{}", volume.host_path, volume.mount_path), volume.read_only))
}

/// The schema bounds ports to 1..=65535.
fn port(port: i32) -> u16 {
    u16::try_from(port).unwrap_or_default()
}
