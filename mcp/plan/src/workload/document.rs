//! The RunConfig of a workload: what the proxy is started with, in a ConfigMap whose checksum rolls its pods.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use mcp_api::names::{annotation, label};
use mcp_runconfig::{RunConfig, chain};

use super::{
    child::{Child, ChildKind},
    names,
    owner::Owner,
};
use crate::{config::Uses, digest::digest};

/// A rendered RunConfig.
#[derive(Clone, Debug)]
pub struct Document {
    text: String,
    /// SHA-256 of the document: every byte counts.
    pub checksum: String,
}

/// The labels of the workload `name`, as its RunConfig tells them and the pods of an MCP server carry them.
pub fn workload_labels(name: &str, transport: &str, port: i32) -> BTreeMap<String, String> {
    [
        (label::TOOLHIVE, "true".to_owned()),
        (label::TOOLHIVE_NAME, name.to_owned()),
        (label::TOOLHIVE_BASENAME, name.to_owned()),
        ("toolhive-transport", transport.to_owned()),
        ("toolhive-port", port.to_string()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into()
}

// === impl Document ===

impl Document {
    /// Renders `run_config` with what the configurations that the workload uses add, and the chain that follows.
    pub fn of(mut run_config: RunConfig, uses: &Uses) -> Self {
        uses.render(&mut run_config);
        run_config.middleware_configs = chain::of(&run_config);
        let text = run_config.to_json();
        let checksum = digest(text.as_bytes());
        Self { text, checksum }
    }

    /// The ConfigMap that holds it. The workload's name is the value of the label `of`.
    pub fn config_map(&self, owner: &Owner<'_>, of: &str) -> Child {
        let name = names::run_config(owner.name);
        let labels = [
            (label::COMPONENT, label::COMPONENT_RUN_CONFIG),
            (of, owner.name),
            (label::MANAGED_BY, label::MANAGED_BY_OPERATOR),
        ];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let mut metadata = owner.metadata(&name, labels.into());
        metadata.annotations = Some([(annotation::CONTENT_CHECKSUM.to_owned(), self.checksum.clone())].into());
        let data = Some([(names::RUN_CONFIG_KEY.to_owned(), self.text.clone())].into());
        Child::new(ChildKind::ConfigMap, &name, &ConfigMap { metadata, data, ..ConfigMap::default() })
    }
}
