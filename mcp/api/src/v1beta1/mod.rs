//! Kinds that are stored as `v1beta1`, and what they share.

mod auth;
pub mod auth_server;
mod authz_config;
pub mod composite_tool;
mod config_status;
pub mod external_auth;
mod oidc_config;
mod overrides;
mod rate_limit;
mod remote_proxy;
mod server;
mod session_storage;
mod telemetry_config;
mod tool_config;
pub mod virtual_server;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::crd::CustomResourceExt as _;

pub use self::{
    auth::{
        AuthServerKind, AuthServerRef, AuthzConfig, AuthzConfigMapRef, AuthzConfigType, InlineAuthzConfig,
        OidcConfigRef,
    },
    authz_config::{MCPAuthzConfig, MCPAuthzConfigSpec},
    config_status::ConfigStatus,
    external_auth::{ExternalAuthSpec, MCPExternalAuthConfig},
    oidc_config::{InlineOidcConfig, KubernetesServiceAccountConfig, MCPOIDCConfig, MCPOIDCConfigSpec, OidcConfigType},
    overrides::{
        EnvVar, ImagePullSecret, MetadataOverrides, ProxyDeploymentOverrides, ResourceList, ResourceOverrides,
        ResourceRequirements,
    },
    rate_limit::{RateLimitBucket, RateLimiting, ToolRateLimit},
    remote_proxy::{
        HeaderForward, HeaderFromSecret, MCPRemoteProxy, MCPRemoteProxySpec, MCPRemoteProxyStatus, RemoteProxyPhase,
        RemoteTransport,
    },
    server::{
        Audit, MCPServer, MCPServerSpec, MCPServerStatus, PermissionProfile, PermissionProfileType, Phase, ProxyMode,
        SecretEnv, SessionAffinity, TelemetryConfigRef, Transport, Volume,
    },
    session_storage::{SessionStorage, SessionStorageProvider, SessionStorageTls},
    telemetry_config::{
        MCPTelemetryConfig, MCPTelemetryConfigSpec, OpenTelemetry, OpenTelemetryMetrics, OpenTelemetryTracing,
        Prometheus, SensitiveHeader,
    },
    tool_config::{MCPToolConfig, MCPToolConfigSpec, ToolAnnotations, ToolOverride},
    virtual_server::{VirtualMCPServer, VirtualMCPServerSpec, VirtualMCPServerStatus, VirtualServerPhase},
};
pub use crate::reference::{CaBundleRef, ConfigMapKeyRef, LenientNameRef, NameRef, SecretKeyRef, WorkloadRef};

/// Every kind that is stored as this version, as its type derives it.
pub(crate) fn derived() -> Vec<CustomResourceDefinition> {
    vec![
        MCPAuthzConfig::crd(),
        MCPExternalAuthConfig::crd(),
        MCPOIDCConfig::crd(),
        MCPRemoteProxy::crd(),
        MCPServer::crd(),
        MCPTelemetryConfig::crd(),
        MCPToolConfig::crd(),
        VirtualMCPServer::crd(),
    ]
}
