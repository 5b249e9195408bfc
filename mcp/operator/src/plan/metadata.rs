//! Metadata of children: who owns them, and which of two wishes for a label counts.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use mcp_api::v1beta1::{MCPServer, MCPServerSpec};

use super::Settings;

/// One server, with the parts of it that every child needs.
#[derive(Clone, Copy)]
pub(super) struct Server<'a> {
    pub(super) name: &'a str,
    pub(super) namespace: &'a str,
    pub(super) uid: &'a str,
    pub(super) spec: &'a MCPServerSpec,
    pub(super) settings: &'a Settings,
}

impl<'a> Server<'a> {
    /// What is fetched always has a name, a namespace and a uid.
    pub(super) fn of(server: &'a MCPServer, settings: &'a Settings) -> Self {
        Self {
            name: server.metadata.name.as_deref().unwrap_or_default(),
            namespace: server.metadata.namespace.as_deref().unwrap_or_default(),
            uid: server.metadata.uid.as_deref().unwrap_or_default(),
            spec: &server.spec,
            settings,
        }
    }

    /// Metadata of a child: its name, its labels, its owner.
    pub(super) fn metadata(&self, name: &str, labels: BTreeMap<String, String>) -> ObjectMeta {
        ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(self.namespace.to_owned()),
            labels: some(labels),
            owner_references: Some(vec![OwnerReference {
                api_version: MCPServer::api_version(&()).into_owned(),
                kind: MCPServer::kind(&()).into_owned(),
                name: self.name.to_owned(),
                uid: self.uid.to_owned(),
                controller: Some(true),
                block_owner_deletion: Some(true),
            }]),
            ..ObjectMeta::default()
        }
    }
}

/// What the operator and a user want together; for a key that both set, the operator's value counts.
pub(super) fn merged(
    operator: BTreeMap<String, String>,
    user: Option<&BTreeMap<String, String>>,
) -> BTreeMap<String, String> {
    let mut all = user.cloned().unwrap_or_default();
    all.extend(operator);
    all
}

/// A map to write: absent rather than empty.
pub(super) fn some(map: BTreeMap<String, String>) -> Option<BTreeMap<String, String>> {
    if map.is_empty() { None } else { Some(map) }
}
