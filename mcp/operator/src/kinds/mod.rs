//! The kinds of this operator, a folder and a line each.

mod authz_config;
mod external_auth_config;
mod mcp_server;
mod oidc_config;
mod remote_proxy;
mod telemetry_config;
mod tool_config;
mod virtual_mcp_server;
mod webhook_config;

use mcp_api::{
    v1alpha1::MCPWebhookConfig,
    v1beta1::{
        MCPAuthzConfig, MCPExternalAuthConfig, MCPOIDCConfig, MCPRemoteProxy, MCPServer, MCPTelemetryConfig,
        MCPToolConfig, VirtualMCPServer,
    },
};

use crate::controllers::{Outsider, Registry};

/// Every kind, registered.
pub fn all() -> Registry {
    Registry::default()
        .workload::<MCPServer>()
        .workload::<MCPRemoteProxy>()
        .workload::<VirtualMCPServer>()
        .config::<MCPAuthzConfig>()
        .config::<MCPExternalAuthConfig>()
        .config::<MCPOIDCConfig>()
        .config::<MCPTelemetryConfig>()
        .config::<MCPToolConfig>()
        .config::<MCPWebhookConfig>()
        .outsider(Outsider {
            kind: "MCPServerEntry",
            plural: "mcpserverentries",
            of: "MCPExternalAuthConfig",
            name: "/spec/externalAuthConfigRef/name",
        })
}
