//! Fields this version cannot act on, and what that means.

use mcp_api::v1beta1::{MCPServerSpec, ProxyMode, Transport};

/// Guards that the spec asks for and this version cannot put in front of the server. While there is one, the server
/// gets no proxy at all.
pub fn unbuilt_guards(spec: &MCPServerSpec) -> Vec<&'static str> {
    let guards = [
        ("spec.oidcConfigRef", spec.oidc_config_ref.is_some()),
        ("spec.externalAuthConfigRef", spec.external_auth_config_ref.is_some()),
        ("spec.authServerRef", spec.auth_server_ref.is_some()),
        ("spec.authzConfig", spec.authz_config.is_some()),
        ("spec.authzConfigRef", spec.authz_config_ref.is_some()),
        ("spec.rateLimiting", spec.rate_limiting.is_some()),
        ("spec.toolConfigRef", spec.tool_config_ref.is_some()),
    ];
    set(&guards)
}

/// Fields that the spec sets and that change nothing in this version. None of them guards anything.
pub fn fields_without_effect(spec: &MCPServerSpec) -> Vec<&'static str> {
    let fields = [
        ("spec.telemetryConfigRef", spec.telemetry_config_ref.is_some()),
        ("spec.audit", spec.audit.as_ref().is_some_and(|audit| audit.enabled)),
        ("spec.groupRef", spec.group_ref.is_some()),
        ("spec.sessionStorage", spec.session_storage.is_some()),
    ];
    set(&fields)
}

/// What this version's runner cannot speak yet, if the spec asks for it.
pub fn transport_not_built(spec: &MCPServerSpec) -> Option<&'static str> {
    match (spec.transport, spec.proxy_mode) {
        (Transport::Sse, _) => Some("spec.transport sse"),
        (Transport::Stdio, ProxyMode::Sse) => Some("spec.proxyMode sse"),
        (Transport::Stdio, ProxyMode::StreamableHttp) => Some("spec.transport stdio inside a cluster"),
        (Transport::StreamableHttp, _) => None,
    }
}

fn set(fields: &[(&'static str, bool)]) -> Vec<&'static str> {
    fields.iter().filter(|(_, set)| *set).map(|(field, _)| *field).collect()
}
