//! VirtualMCPServer: the tools of a group of MCP servers, offered as one server.
#![allow(clippy::duplicated_attributes, reason = "printer columns have the same type")]

pub mod config;
mod status;

use std::collections::BTreeMap;

use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::config::VirtualServerConfig;
pub use self::status::{
    CircuitBreakerState, DiscoveredBackend, VirtualMCPServerStatus, VirtualServerPhase, VirtualServerRuntime,
};
use super::{
    AuthzConfig, ImagePullSecret, OidcConfigRef, SessionAffinity, SessionStorage, TelemetryConfigRef,
    auth_server::EmbeddedAuthServer,
};
use crate::reference::{LenientNameRef, NameRef};

/// Whose tools are offered, who may call them, and how the servers behind are called.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "toolhive.stacklok.dev",
    version = "v1beta1",
    kind = "VirtualMCPServer",
    namespaced,
    status = "VirtualMCPServerStatus",
    derive = "Default",
    derive = "PartialEq",
    shortname = "vmcp",
    shortname = "virtualmcp",
    category = "toolhive",
    doc = "VirtualMCPServer offers the tools of every MCP server of a group to clients, as one MCP server.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "URL", type_ = "string", json_path = ".status.url"),
    printcolumn(name = "Backends", type_ = "integer", json_path = ".status.backendCount"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    crates(kube_core = "::kube_core")
)]
#[serde(rename_all = "camelCase", remote = "Self")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!has(self.config) || !has(self.config.rateLimiting) || (has(self.sessionStorage) && self.sessionStorage.provider == 'redis')",
        "message": "config.rateLimiting requires sessionStorage with provider 'redis'",
    },
    {
        "rule": "!(has(self.config) && has(self.config.rateLimiting) && has(self.config.rateLimiting.perUser)) || (has(self.incomingAuth) && self.incomingAuth.type == 'oidc')",
        "message": "config.rateLimiting.perUser requires incomingAuth.type oidc",
    },
    {
        "rule": "!has(self.config) || !has(self.config.rateLimiting) || !has(self.config.rateLimiting.tools) || self.config.rateLimiting.tools.all(t, !has(t.perUser)) || (has(self.incomingAuth) && self.incomingAuth.type == 'oidc')",
        "message": "per-tool perUser rate limiting requires incomingAuth.type oidc",
    },
    {
        "rule": "!has(self.config) || !has(self.config.sessionStorage) || !has(self.config.sessionStorage.tls)",
        "message": "config.sessionStorage.tls is ignored by the operator; set sessionStorage.tls instead",
    },
    {
        "rule": "!(has(self.embeddingServerRef) && has(self.config) && has(self.config.optimizer) && has(self.config.optimizer.embeddingProvider) && self.config.optimizer.embeddingProvider == 'openai')",
        "message": "embeddingServerRef provisions a managed TEI server and cannot be combined with optimizer.embeddingProvider 'openai'; openai mode uses embeddingService directly",
    },
    {
        "rule": "!has(self.authServerUpstreamFilter) || has(self.authServerConfig)",
        "message": "authServerUpstreamFilter requires authServerConfig to be set",
    },
    {
        "rule": "!has(self.authServerUpstreamFilter) || (has(self.authServerConfig) && has(self.authServerConfig.upstreamProviders) && size(self.authServerConfig.upstreamProviders) >= 2)",
        "message": "authServerUpstreamFilter requires at least two configured upstream providers",
    },
]))]
pub struct VirtualMCPServerSpec {
    /// The authorization server that the virtual server runs for its callers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_server_config: Option<EmbeddedAuthServer>,
    /// Which identity providers of `authServerConfig` a caller is sent to, by the caller's groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_server_upstream_filter: Option<AuthServerUpstreamFilter>,
    /// How the virtual server behaves. The operator fills in what other members of the spec say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<VirtualServerConfig>,
    /// The EmbeddingServer that the optimizer finds tools with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embedding_server_ref: Option<LenientNameRef>,
    /// The MCPGroup whose servers are offered. It has to exist.
    pub group_ref: NameRef,
    /// Secrets that the image of the virtual server is pulled with.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub image_pull_secrets: Option<Vec<ImagePullSecret>>,
    /// How callers prove who they are, and what they may do.
    pub incoming_auth: IncomingAuth,
    /// How the virtual server proves who it is to the servers behind it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outgoing_auth: Option<OutgoingAuth>,
    /// Names of request headers that are passed on to the servers behind.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub passthrough_headers: Option<Vec<String>>,
    /// A PodTemplateSpec that is merged into the pods of the virtual server, whose container is called `vmcp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::open_object")]
    pub pod_template_spec: Option<serde_json::Value>,
    /// How many pods run the virtual server. Absent leaves the number to an autoscaler, or 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i32>,
    /// The ServiceAccount of the pods. Absent, one is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account: Option<String>,
    /// The type of the Service.
    #[serde(default)]
    pub service_type: ServiceType,
    /// Whether the Service sends a client to the same pod each time.
    #[serde(default)]
    pub session_affinity: SessionAffinity,
    /// Where sessions are kept; several replicas need one that they share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_storage: Option<SessionStorage>,
    /// The MCPTelemetryConfig that says where traces and metrics go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub telemetry_config_ref: Option<TelemetryConfigRef>,
}

absent_spec_is_default!(VirtualMCPServerSpec);

string_enum! {
    /// Types of a Service.
    #[derive(Default)]
    pub enum ServiceType {
        /// Reachable inside of the cluster.
        #[default]
        ClusterIp = "ClusterIP",
        /// Reachable on a port of every node.
        NodePort = "NodePort",
        /// Reachable through a load balancer.
        LoadBalancer = "LoadBalancer",
    }
}

/// How callers prove who they are, and what they may do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "self.type == 'oidc' ? has(self.oidcConfigRef) : true",
        "message": "spec.incomingAuth.oidcConfigRef is required when type is oidc",
    },
    {
        "rule": "!(has(self.authzConfig) && has(self.authzConfigRef))",
        "message": "authzConfig and authzConfigRef are mutually exclusive; use authzConfigRef to reference a shared MCPAuthzConfig",
    },
]))]
pub struct IncomingAuth {
    /// What callers may do, said here. Use `authzConfigRef` to share it among servers; not both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authz_config: Option<AuthzConfig>,
    /// What callers may do, said in an MCPAuthzConfig. Not together with `authzConfig`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authz_config_ref: Option<NameRef>,
    /// How tokens of callers are checked. Required for type `oidc`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oidc_config_ref: Option<OidcConfigRef>,
    /// Whether callers prove who they are.
    #[serde(rename = "type")]
    pub kind: IncomingAuthType,
}

string_enum! {
    /// Whether callers prove who they are.
    #[derive(Default)]
    pub enum IncomingAuthType {
        /// They do not: anyone who reaches the virtual server may call.
        #[default]
        Anonymous = "anonymous",
        /// They show tokens of an OpenID Connect provider.
        Oidc = "oidc",
    }
}

/// How the virtual server proves who it is to the servers behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OutgoingAuth {
    /// For single servers, by their names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backends: Option<BTreeMap<String, BackendAuth>>,
    /// For all servers that `backends` does not name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<BackendAuth>,
    /// Where the other answers come from.
    #[serde(default)]
    pub source: OutgoingAuthSource,
}

string_enum! {
    /// Where it is said how servers are called.
    #[derive(Default)]
    pub enum OutgoingAuthSource {
        /// With each server: its own `externalAuthConfigRef`.
        #[default]
        Discovered = "discovered",
        /// In this object alone.
        Inline = "inline",
    }
}

/// How one server is called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackendAuth {
    /// The MCPExternalAuthConfig, for type `externalAuthConfigRef`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_auth_config_ref: Option<LenientNameRef>,
    /// Where it is said.
    #[serde(rename = "type")]
    pub kind: BackendAuthType,
}

string_enum! {
    /// Where it is said how a server is called.
    pub enum BackendAuthType {
        /// With the server.
        Discovered = "discovered",
        /// In an MCPExternalAuthConfig.
        ExternalAuthConfigRef = "externalAuthConfigRef",
    }
}

/// Which identity providers a caller is sent to, by the caller's groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuthServerUpstreamFilter {
    /// The claim that lists the caller's groups. `groups` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub claim: Option<String>,
    /// The names of the providers for callers that no rule fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 100), extend("x-kubernetes-list-type" = "set"))]
    pub default_upstreams: Option<Vec<String>>,
    /// The rules; a caller gets the providers of all that fit.
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub rules: Vec<UpstreamFilterRule>,
}

/// The identity providers of some groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpstreamFilterRule {
    /// The groups; one of them is enough.
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "set"))]
    pub groups: Vec<String>,
    /// The names of the providers in `authServerConfig`.
    #[schemars(length(min = 1, max = 100), extend("x-kubernetes-list-type" = "set"))]
    pub upstream_providers: Vec<String>,
}
