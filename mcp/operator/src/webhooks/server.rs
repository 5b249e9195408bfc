//! Admission of MCPServers.

use std::sync::Arc;

use mcp_api::v1beta1::MCPServer;
use portcullis::webhooks::{Context, Validator, Verdict};

use super::{Admission, missing};
use crate::{
    controllers::Stores,
    plan::rules::{check_server, fields_without_effect, transport_not_built, unbuilt_guards},
};

/// The rules of MCPServers as an admission webhook.
pub(super) struct ServerRules {
    pub(super) admission: Admission,
    pub(super) stores: Arc<Stores>,
}

impl Validator<MCPServer> for ServerRules {
    async fn create(&self, new: Arc<MCPServer>, context: Context) -> Verdict {
        let verdict = self.admission.judge(check_server(&new));
        if !verdict.is_allowed() {
            return verdict;
        }
        let namespace = context.namespace.as_deref().unwrap_or_default();
        let warnings = unbuilt(&new).into_iter().chain(missing::of_server(&new, namespace, &self.stores));
        warnings.fold(verdict, Verdict::warn)
    }

    /// What does not touch the spec is not judged: labels, finalizers and restarts go through whatever is stored.
    async fn update(&self, old: Arc<MCPServer>, new: Arc<MCPServer>, context: Context) -> Verdict {
        if old.spec == new.spec { Verdict::allow() } else { self.create(new, context).await }
    }
}

/// What is valid and does less in this version than its author may think.
fn unbuilt(server: &MCPServer) -> Vec<String> {
    let spec = &server.spec;
    let guards = unbuilt_guards(spec)
        .into_iter()
        .map(|field| format!("{field} cannot be enforced by this version: the server gets no proxy"));
    let ignored = fields_without_effect(spec).into_iter().map(|field| format!("{field} has no effect in this version"));
    let transport = transport_not_built(spec)
        .map(|what| format!("the proxy of this version does not speak {what}: its pods will not become ready"));
    guards.chain(ignored).chain(transport).collect()
}
