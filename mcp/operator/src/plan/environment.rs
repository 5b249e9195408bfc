//! Environment variables of the two containers.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, SecretKeySelector};
use mcp_api::v1beta1::{SecretEnv, Transport};

use super::metadata::Server;

/// Port of the MCP server when none is named.
const DEFAULT_MCP_PORT: i32 = 8080;

/// The port the MCP server listens on.
pub(super) fn mcp_port(server: &Server<'_>) -> i32 {
    server.spec.mcp_port.unwrap_or(DEFAULT_MCP_PORT)
}

/// The variable a secret is handed over in.
pub(super) fn target(secret: &SecretEnv) -> &str {
    secret.target_env_name.as_deref().filter(|name| !name.is_empty()).unwrap_or(&secret.key)
}

/// What the RunConfig tells of the MCP server's environment: plain values and where to listen.
pub(super) fn plain(server: &Server<'_>) -> BTreeMap<String, String> {
    let own = server.spec.env.as_deref().unwrap_or_default();
    let mut all: BTreeMap<String, String> = own.iter().map(|var| (var.name.clone(), var.value.clone())).collect();
    all.insert("MCP_TRANSPORT".to_owned(), server.spec.transport.as_str().to_owned());
    if server.spec.transport != Transport::Stdio {
        let port = mcp_port(server).to_string();
        all.insert("MCP_PORT".to_owned(), port.clone());
        all.insert("FASTMCP_PORT".to_owned(), port);
    }
    all
}

/// The environment of the MCP server's container, sorted by name.
pub(super) fn backend(server: &Server<'_>) -> Vec<EnvVar> {
    let mut all: BTreeMap<String, EnvVar> =
        plain(server).into_iter().map(|(name, value)| (name.clone(), variable(&name, &value))).collect();
    if server.spec.transport != Transport::Stdio {
        all.entry("MCP_HOST".to_owned()).or_insert_with(|| variable("MCP_HOST", ""));
    }
    for secret in server.spec.secrets.as_deref().unwrap_or_default() {
        let name = target(secret).to_owned();
        let source = SecretKeySelector { name: secret.name.clone(), key: secret.key.clone(), optional: None };
        let value_from = Some(EnvVarSource { secret_key_ref: Some(source), ..EnvVarSource::default() });
        all.insert(name.clone(), EnvVar { name, value_from, ..EnvVar::default() });
    }
    all.into_values().collect()
}

/// The environment of the proxy's container: the user's variables, then those the runner needs and the user left out.
pub(super) fn proxy(server: &Server<'_>) -> Vec<EnvVar> {
    let own = server.spec.resource_overrides.as_ref().and_then(|all| all.proxy_deployment.as_ref());
    let own = own.and_then(|proxy| proxy.env.as_deref()).unwrap_or_default();
    let mut all: Vec<EnvVar> = own.iter().map(|var| variable(&var.name, &var.value)).collect();
    let needed = [
        ("XDG_CONFIG_HOME", "/tmp"),
        ("HOME", "/tmp"),
        ("TOOLHIVE_RUNTIME", "kubernetes"),
        ("UNSTRUCTURED_LOGS", "false"),
    ];
    for (name, value) in needed {
        if !all.iter().any(|var| var.name == name) {
            all.push(variable(name, value));
        }
    }
    all
}

/// An empty value is left out: the API server drops it, and it would look like somebody's change.
fn variable(name: &str, value: &str) -> EnvVar {
    let value = if value.is_empty() { None } else { Some(value.to_owned()) };
    EnvVar { name: name.to_owned(), value, value_from: None }
}
