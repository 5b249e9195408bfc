//! The references of a VirtualMCPServer.

use std::collections::BTreeSet;

use mcp_api::{
    names::condition,
    v1beta1::{
        AuthzConfig, MCPAuthzConfig, MCPExternalAuthConfig, MCPOIDCConfig, MCPTelemetryConfig, MCPToolConfig,
        VirtualMCPServer, VirtualMCPServerSpec,
        virtual_server::{BackendAuth, BackendAuthType},
    },
};
use mcp_plan::{
    config::{ConfigUse, PolicyTerms, Role},
    reference::{Reference, Source},
};

use crate::config::ConfigKind as _;

/// The field that refers to the login.
pub(super) const LOGIN: &str = "spec.incomingAuth.oidcConfigRef";
/// The field that refers to the configuration of traces and metrics.
pub(super) const TELEMETRY: &str = "spec.telemetryConfigRef";
/// The field that refers to a configuration of who may call what.
pub(super) const POLICIES: &str = "spec.incomingAuth.authzConfigRef";
/// The consequence of a missing configuration: the end of a sentence.
pub(super) const MISSING: &str = "until then the virtual server counts as failed";

/// The policies in a ConfigMap that `spec.incomingAuth.authzConfig` names.
pub(super) struct Policies<'a> {
    pub(super) config_map: &'a str,
    pub(super) key: &'a str,
}

impl Policies<'_> {
    pub(super) fn source(&self) -> Source {
        Source::ConfigMap(self.config_map.to_owned())
    }

    pub(super) fn reference(&self) -> Reference {
        let field = "spec.incomingAuth.authzConfig.configMap";
        Reference {
            while_missing: "until then nothing is known of its policies",
            ..Reference::to_source(field, &self.source()).with_key(self.key)
        }
    }
}

/// The policies in a ConfigMap, where that is where they are.
pub(super) fn policies(server: &VirtualMCPServer) -> Option<Policies<'_>> {
    let AuthzConfig { config_map, .. } = server.spec.incoming_auth.authz_config.as_ref()?;
    config_map.as_ref().map(|it| Policies { config_map: &it.name, key: &it.key })
}

/// The MCPOIDCConfig by which its clients log in.
pub(super) fn login(spec: &VirtualMCPServerSpec) -> Option<ConfigUse> {
    let it = spec.incoming_auth.oidc_config_ref.as_ref()?;
    Some(MCPOIDCConfig::used(Role::Guard, LOGIN, &it.name, &it.into()))
}

/// The configurations beside the login, each once: MCPToolConfigs, who may call what, and where its traces and metrics go.
pub(super) fn others(spec: &VirtualMCPServerSpec) -> impl Iterator<Item = ConfigUse> {
    let telemetry = spec.telemetry_config_ref.as_ref();
    let used = telemetry.map(|it| MCPTelemetryConfig::used(Role::Setting, TELEMETRY, &it.name, &it.service_name));
    let policies = spec.incoming_auth.authz_config_ref.as_ref().filter(|it| !it.name.is_empty());
    let policies = policies.map(|it| MCPAuthzConfig::used(Role::Guard, POLICIES, &it.name, &PolicyTerms::default()));
    tools(spec).chain(policies).chain(used).chain(credentials(spec))
}

/// The MCPExternalAuthConfigs with which the servers behind are called, each once.
fn credentials(spec: &VirtualMCPServerSpec) -> impl Iterator<Item = ConfigUse> {
    let each = backends(spec).filter(|it| it.kind == BackendAuthType::ExternalAuthConfigRef);
    let names = each.filter_map(|it| Some(&*it.external_auth_config_ref.as_ref()?.name));
    let names: BTreeSet<_> = names.filter(|name| !name.is_empty()).collect();
    names.into_iter().map(|name| MCPExternalAuthConfig::used(Role::Guard, "spec.outgoingAuth", name, &()))
}

/// The MCPToolConfigs, each once.
fn tools(spec: &VirtualMCPServerSpec) -> impl Iterator<Item = ConfigUse> {
    let aggregation = spec.config.as_ref().and_then(|config| config.aggregation.as_ref());
    let tools = aggregation.into_iter().flat_map(|it| it.tools.iter().flatten());
    let names = tools.filter_map(|it| Some(&*it.tool_config_ref.as_ref()?.name)).filter(|name| !name.is_empty());
    let names: BTreeSet<_> = names.collect();
    let field = "spec.config.aggregation.tools[].toolConfigRef";
    names.into_iter().map(move |name| MCPToolConfig::used(Role::Guard, field, name, &()))
}

/// References to kinds that this version does not have, each with the condition that tells of it.
pub(super) fn unbuilt(server: &VirtualMCPServer) -> Vec<(&'static str, Reference)> {
    let spec = &server.spec;
    let mut all = Vec::new();
    let mut add = |condition, kind, field, name: &str| {
        if !name.is_empty() {
            all.push((condition, Reference::unbuilt(kind, field, name)));
        }
    };
    add(condition::GROUP_REF_VALIDATED, "MCPGroup", "spec.groupRef", &spec.group_ref.name);
    if let Some(it) = &spec.embedding_server_ref {
        add(condition::EMBEDDING_SERVER_READY, "EmbeddingServer", "spec.embeddingServerRef", &it.name);
    }
    for it in spec.config.iter().flat_map(|config| config.composite_tool_refs.iter().flatten()) {
        let (condition, kind) = (condition::COMPOSITE_TOOL_REFS_VALIDATED, "VirtualMCPCompositeToolDefinition");
        add(condition, kind, "spec.config.compositeToolRefs", &it.name);
    }
    all
}

/// The authentication to the backends: the default, and that of single ones.
fn backends(spec: &VirtualMCPServerSpec) -> impl Iterator<Item = &BackendAuth> {
    let outgoing = spec.outgoing_auth.iter();
    outgoing.flat_map(|it| it.default.iter().chain(it.backends.iter().flat_map(|all| all.values())))
}
