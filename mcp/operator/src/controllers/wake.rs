//! Which objects a change wakes.
//!
//! A change that leaves everything a plan reads as it was wakes nobody; our own writes are in the stores before the
//! watch delivers them, so they wake nobody either. That an object wakes itself is its controller's business.

use std::{collections::BTreeSet, sync::Arc};

use mcp_api::{v1alpha1::MCPWebhookConfig, v1beta1::MCPServer};
use portcullis::controller::{Change, Key, Observed, Queue, Stored as _};

use super::{PodTrace, Stores, Trace};
use crate::plan::{ChildKind, references};

/// Turns changes into work.
#[derive(Debug)]
pub(super) struct Wake {
    stores: Arc<Stores>,
    servers: Arc<Queue>,
    configs: Arc<Queue>,
}

// === impl Wake ===

impl Wake {
    pub(super) fn new(stores: Arc<Stores>, servers: Arc<Queue>, configs: Arc<Queue>) -> Arc<Self> {
        Arc::new(Self { stores, servers, configs })
    }

    /// A server wakes the configurations it refers to now or did before.
    pub(super) fn server(&self, change: &Change<Observed<MCPServer>>) {
        let Some(any) = change.new.as_ref().or(change.old.as_ref()) else { return };
        let configs = [&change.old, &change.new].map(|side| side.as_ref().and_then(|server| config_of(server)));
        let [old, new] = &configs;
        if old != new || change.old.is_none() || change.new.is_none() {
            for config in configs.iter().flatten().collect::<BTreeSet<_>>() {
                self.configs.add(Key::new(any.namespace(), config));
            }
        }
    }

    /// A configuration wakes the servers that refer to it when its spec or its existence changed.
    pub(super) fn webhook_config(&self, change: &Change<Observed<MCPWebhookConfig>>) {
        let Some(any) = change.new.as_ref().or(change.old.as_ref()) else { return };
        let [old, new] = [&change.old, &change.new]
            .map(|side| side.as_ref().and_then(|config| config.object.as_deref().ok()).map(|config| &config.spec));
        if old != new {
            self.wake_servers(any.namespace(), self.stores.servers_with_config(any.namespace(), any.name()));
        }
    }

    /// A child wakes the server it is named after.
    pub(super) fn child(&self, kind: ChildKind, change: &Change<Trace>) {
        let Some(any) = change.new.as_ref().or(change.old.as_ref()) else { return };
        if kind == ChildKind::ConfigMap {
            let servers = self.stores.servers_with_config_map(any.namespace(), any.name());
            self.wake_servers(any.namespace(), servers);
        }
        if let (Some(old), Some(new)) = (&change.old, &change.new)
            && old.same(new)
        {
            return;
        }
        let named = named_after(kind, any.name());
        let known = named.into_iter().filter(|name| self.stores.servers.get(any.namespace(), name).is_some());
        self.wake_servers(any.namespace(), known.map(str::to_owned).collect());
    }

    /// A Secret wakes the servers that refer to it.
    pub(super) fn secret(&self, change: &Change<Trace>) {
        let Some(any) = change.new.as_ref().or(change.old.as_ref()) else { return };
        let servers = self.stores.servers_with_secret(any.namespace(), any.name());
        self.wake_servers(any.namespace(), servers);
    }

    /// A pod wakes the server it is a proxy of.
    pub(super) fn pod(&self, change: &Change<PodTrace>) {
        let [old, new] = [&change.old, &change.new].map(|side| side.as_ref().map(|pod| (pod.server(), &pod.pod)));
        if old == new {
            return;
        }
        for pod in [&change.old, &change.new].into_iter().flatten() {
            if self.stores.servers.get(pod.namespace(), pod.server()).is_some() {
                self.wake_servers(pod.namespace(), vec![pod.server().to_owned()]);
            }
        }
    }

    fn wake_servers(&self, namespace: &str, names: Vec<String>) {
        for name in names {
            self.servers.add(Key::new(namespace, name));
        }
    }
}

fn config_of(server: &Observed<MCPServer>) -> Option<String> {
    references(server.object.as_deref().ok()?, None).webhook_config
}

/// The servers whose child of this kind may have this name.
fn named_after(kind: ChildKind, name: &str) -> Vec<&str> {
    match kind {
        ChildKind::Deployment | ChildKind::StatefulSet => vec![name],
        ChildKind::ConfigMap => name.strip_suffix("-runconfig").into_iter().collect(),
        ChildKind::Role | ChildKind::RoleBinding => name.strip_suffix("-proxy-runner").into_iter().collect(),
        ChildKind::ServiceAccount => {
            ["-proxy-runner", "-sa"].iter().filter_map(|suffix| name.strip_suffix(suffix)).collect()
        }
        ChildKind::Service => {
            let Some(rest) = name.strip_prefix("mcp-") else { return Vec::new() };
            ["-proxy", "-headless"].iter().filter_map(|suffix| rest.strip_suffix(suffix)).chain([rest]).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::names;

    #[test]
    fn every_child_is_traced_back_to_the_server_it_is_named_after() {
        for server in ["web", "web-sa", "web-proxy", "mcp-web", "a-headless"] {
            let children = [
                (ChildKind::Deployment, server.to_owned()),
                (ChildKind::StatefulSet, server.to_owned()),
                (ChildKind::ConfigMap, names::run_config(server)),
                (ChildKind::Role, names::proxy_account(server)),
                (ChildKind::RoleBinding, names::proxy_account(server)),
                (ChildKind::ServiceAccount, names::proxy_account(server)),
                (ChildKind::ServiceAccount, names::workload_account(server)),
                (ChildKind::Service, names::proxy_service(server)),
                (ChildKind::Service, names::backend_service(server)),
                (ChildKind::Service, names::headless_service(server)),
            ];
            for (kind, name) in children {
                assert!(named_after(kind, &name).contains(&server), "{kind:?} {name} is not traced to {server}");
            }
        }
        assert_eq!(named_after(ChildKind::Service, "kubernetes"), Vec::<&str>::new());
    }
}
