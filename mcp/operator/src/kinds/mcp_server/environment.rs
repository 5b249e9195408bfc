//! Environment variables of the MCP server's container.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, SecretKeySelector};
use mcp_api::v1beta1::{MCPServerSpec, SecretEnv, Transport};
use mcp_plan::workload::proxy::variable;

/// Port of the MCP server when none is named.
const DEFAULT_MCP_PORT: i32 = 8080;

/// The port the MCP server listens on.
pub(super) fn mcp_port(spec: &MCPServerSpec) -> i32 {
    spec.mcp_port.unwrap_or(DEFAULT_MCP_PORT)
}

/// The variable a secret is handed over in.
pub(super) fn target(secret: &SecretEnv) -> &str {
    secret.target_env_name.as_deref().filter(|name| !name.is_empty()).unwrap_or(&secret.key)
}

/// The MCP server's environment in the RunConfig: plain values and the address to listen on.
pub(super) fn plain(spec: &MCPServerSpec) -> BTreeMap<String, String> {
    let own = spec.env.as_deref().unwrap_or_default();
    let mut all: BTreeMap<String, String> = own.iter().map(|var| (var.name.clone(), var.value.clone())).collect();
    all.insert("MCP_TRANSPORT".to_owned(), spec.transport.as_str().to_owned());
    if spec.transport != Transport::Stdio {
        let port = mcp_port(spec).to_string();
        all.insert("MCP_PORT".to_owned(), port.clone());
        all.insert("FASTMCP_PORT".to_owned(), port);
    }
    all
}

/// The environment of the MCP server's container, sorted by name.
pub(super) fn backend(spec: &MCPServerSpec) -> Vec<EnvVar> {
    let mut all: BTreeMap<String, EnvVar> =
        plain(spec).into_iter().map(|(name, value)| (name.clone(), variable(&name, &value))).collect();
    if spec.transport != Transport::Stdio {
        all.entry("MCP_HOST".to_owned()).or_insert_with(|| variable("MCP_HOST", ""));
    }
    for secret in spec.secrets.as_deref().unwrap_or_default() {
        let name = target(secret).to_owned();
        let source = SecretKeySelector { name: secret.name.clone(), key: secret.key.clone(), optional: None };
        let value_from = Some(EnvVarSource { secret_key_ref: Some(source), ..EnvVarSource::default() });
        all.insert(name.clone(), EnvVar { name, value_from, ..EnvVar::default() });
    }
    all.into_values().collect()
}
