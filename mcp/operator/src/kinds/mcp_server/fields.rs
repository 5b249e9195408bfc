//! Fields that this version does not act on.

use mcp_api::v1beta1::{MCPServerSpec, ProxyMode, Transport};

use crate::workload::checks::Unsupported;

/// What the spec asks for and this version does not do. None of the fields guards anything.
pub(super) fn unsupported(spec: &MCPServerSpec) -> Unsupported {
    let fields = [
        ("spec.telemetryConfigRef", spec.telemetry_config_ref.is_some()),
        ("spec.audit", spec.audit.as_ref().is_some_and(|audit| audit.enabled)),
        ("spec.groupRef", spec.group_ref.is_some()),
        ("spec.sessionStorage", spec.session_storage.is_some()),
    ];
    Unsupported::of(&fields, transport_not_built(spec))
}

/// What this version's runner cannot speak yet, if the spec asks for it.
fn transport_not_built(spec: &MCPServerSpec) -> Option<&'static str> {
    match (spec.transport, spec.proxy_mode) {
        (Transport::Stdio, ProxyMode::Sse) => Some("spec.proxyMode sse"),
        (Transport::Stdio, ProxyMode::StreamableHttp) => Some("spec.transport stdio inside a cluster"),
        (Transport::StreamableHttp | Transport::Sse, _) => None,
    }
}
