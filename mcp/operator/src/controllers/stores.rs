//! The stores of the process: written by watches and by answers to our own writes, read by everything else.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use mcp_api::{v1alpha1::MCPWebhookConfig, v1beta1::MCPServer};
use portcullis::controller::{Observed, Store, Stored as _};

use super::{PodTrace, Trace};
use crate::plan::{ChildKind, references};

/// One store per kind.
#[derive(Debug, Default)]
pub struct Stores {
    /// MCPServers.
    pub servers: Arc<Store<Observed<MCPServer>>>,
    /// MCPWebhookConfigs.
    pub configs: Arc<Store<Observed<MCPWebhookConfig>>>,
    /// Secrets: their metadata.
    pub secrets: Arc<Store<Trace>>,
    /// Pods of proxies.
    pub pods: Arc<Store<PodTrace>>,
    config_maps: Arc<Store<Trace>>,
    services: Arc<Store<Trace>>,
    service_accounts: Arc<Store<Trace>>,
    roles: Arc<Store<Trace>>,
    role_bindings: Arc<Store<Trace>>,
    deployments: Arc<Store<Trace>>,
    stateful_sets: Arc<Store<Trace>>,
    ready: AtomicBool,
}

// === impl Stores ===

impl Stores {
    /// The store of a kind of children.
    pub fn children(&self, kind: ChildKind) -> &Arc<Store<Trace>> {
        match kind {
            ChildKind::ConfigMap => &self.config_maps,
            ChildKind::Service => &self.services,
            ChildKind::ServiceAccount => &self.service_accounts,
            ChildKind::Role => &self.roles,
            ChildKind::RoleBinding => &self.role_bindings,
            ChildKind::Deployment => &self.deployments,
            ChildKind::StatefulSet => &self.stateful_sets,
        }
    }

    /// True once every store has had its first list: before that, absence means nothing.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    pub(super) fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::Release);
    }

    /// Names of the servers that refer to this webhook configuration.
    pub fn servers_with_config(&self, namespace: &str, config: &str) -> Vec<String> {
        self.servers_with(namespace, &token("webhook", config))
    }

    /// Names of the servers that refer to this Secret, themselves or by their webhook configuration.
    pub(super) fn servers_with_secret(&self, namespace: &str, secret: &str) -> Vec<String> {
        let token = token("secret", secret);
        let mut servers = self.servers_with(namespace, &token);
        for config in self.configs.find(namespace, &token) {
            servers.extend(self.servers_with_config(namespace, config.name()));
        }
        servers
    }

    /// Names of the servers that refer to this ConfigMap.
    pub(super) fn servers_with_config_map(&self, namespace: &str, config_map: &str) -> Vec<String> {
        self.servers_with(namespace, &token("configmap", config_map))
    }

    fn servers_with(&self, namespace: &str, token: &str) -> Vec<String> {
        let found = self.servers.find(namespace, token);
        found.iter().map(|server| server.name().to_owned()).collect()
    }
}

/// What a server can be found by: all that it refers to.
pub(super) fn tokens_of_server(server: &MCPServer) -> Vec<String> {
    let references = references(server, None);
    let config = references.webhook_config.into_iter().map(|name| token("webhook", &name));
    let secrets = references.secrets.iter().map(|name| token("secret", name));
    let maps = references.config_maps.iter().map(|name| token("configmap", name));
    config.chain(secrets).chain(maps).collect()
}

/// What a configuration can be found by: the Secrets that it refers to.
pub(super) fn tokens_of_config(config: &MCPWebhookConfig) -> Vec<String> {
    let references = references(&MCPServer::default(), Some(config));
    references.secrets.iter().map(|name| token("secret", name)).collect()
}

fn token(kind: &str, name: &str) -> String {
    format!("{kind}/{name}")
}
