//! Warnings about references to what does not exist yet.

use std::collections::BTreeSet;

use mcp_api::{v1alpha1::MCPWebhookConfig, v1beta1::MCPServer};

use crate::{
    controllers::Stores,
    plan::{ChildKind, references},
};

/// What `server` refers to and nobody has made yet. Nothing while the stores have not seen the cluster.
pub(super) fn of_server(server: &MCPServer, namespace: &str, stores: &Stores) -> Vec<String> {
    if !stores.is_ready() {
        return Vec::new();
    }
    let wanted = references(server, None);
    let mut warnings = Vec::new();
    if let Some(config) = wanted.webhook_config
        && stores.configs.get(namespace, &config).is_none()
    {
        warnings.push(format!(
            "spec.webhookConfigRef: MCPWebhookConfig {config:?} does not exist yet; the server gets no proxy until it does"
        ));
    }
    warnings.extend(secrets(&wanted.secrets, "spec.secrets", namespace, stores));
    for name in &wanted.config_maps {
        if stores.children(ChildKind::ConfigMap).get(namespace, name).is_none() {
            warnings.push(format!(
                "spec.permissionProfile: ConfigMap {name:?} does not exist yet; the server gets no proxy until it does"
            ));
        }
    }
    warnings
}

/// What `config` refers to and nobody has made yet. Nothing while the stores have not seen the cluster.
pub(super) fn of_webhook_config(config: &MCPWebhookConfig, namespace: &str, stores: &Stores) -> Vec<String> {
    if !stores.is_ready() {
        return Vec::new();
    }
    let wanted = references(&MCPServer::default(), Some(config));
    secrets(&wanted.secrets, "spec", namespace, stores)
}

fn secrets(names: &BTreeSet<String>, field: &str, namespace: &str, stores: &Stores) -> Vec<String> {
    let missing = names.iter().filter(|name| stores.secrets.get(namespace, name).is_none());
    missing.map(|name| format!("{field}: Secret {name:?} does not exist yet; pods wait for it")).collect()
}
