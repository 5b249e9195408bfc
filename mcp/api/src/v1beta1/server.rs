//! MCPServer: an MCP server in a container, behind a proxy.
#![allow(clippy::duplicated_attributes, reason = "printer columns have the same type")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    AuthServerRef, AuthzConfig, EnvVar, OidcConfigRef, RateLimiting, ResourceOverrides, ResourceRequirements,
    SessionStorage,
};
use crate::reference::{LenientNameRef, NameRef};

/// What runs, how it is reached and what guards it.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "toolhive.stacklok.dev",
    version = "v1beta1",
    kind = "MCPServer",
    namespaced,
    status = "MCPServerStatus",
    derive = "Default",
    derive = "PartialEq",
    category = "toolhive",
    doc = "MCPServer runs an MCP server from a container image, with a proxy in front that clients connect to.",
    printcolumn(name = "Status", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".status.readyReplicas"),
    printcolumn(name = "URL", type_ = "string", json_path = ".status.url"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    crates(kube_core = "::kube_core")
)]
#[serde(rename_all = "camelCase", remote = "Self")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!(has(self.authzConfig) && has(self.authzConfigRef))",
        "message": "authzConfig and authzConfigRef are mutually exclusive; use authzConfigRef to reference a shared MCPAuthzConfig",
    },
    {
        "rule": "!has(self.rateLimiting) || (has(self.sessionStorage) && self.sessionStorage.provider == 'redis')",
        "message": "rateLimiting requires sessionStorage with provider 'redis'",
    },
    {
        "rule": "!(has(self.rateLimiting) && has(self.rateLimiting.perUser)) || has(self.oidcConfigRef) || has(self.externalAuthConfigRef)",
        "message": "rateLimiting.perUser requires authentication (oidcConfigRef or externalAuthConfigRef)",
    },
    {
        "rule": "!has(self.rateLimiting) || !has(self.rateLimiting.tools) || self.rateLimiting.tools.all(t, !has(t.perUser)) || has(self.oidcConfigRef) || has(self.externalAuthConfigRef)",
        "message": "per-tool perUser rate limiting requires authentication (oidcConfigRef or externalAuthConfigRef)",
    },
]))]
pub struct MCPServerSpec {
    /// Arguments for the MCP server's process.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub args: Option<Vec<String>>,
    /// Whether requests leave an audit record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audit: Option<Audit>,
    /// The authorization server that the proxy runs for its callers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_server_ref: Option<AuthServerRef>,
    /// What callers may do, said here. Use `authzConfigRef` to share it among servers; not both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authz_config: Option<AuthzConfig>,
    /// What callers may do, said in an MCPAuthzConfig. Not together with `authzConfig`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authz_config_ref: Option<NameRef>,
    /// How many pods run the MCP server itself. Absent leaves the number to an autoscaler, or 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub backend_replicas: Option<i32>,
    /// A path that the proxy puts before the endpoints it announces to SSE clients, for an ingress that strips it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint_prefix: Option<String>,
    /// Environment variables for the MCP server's container. Use `secrets` for what is confidential.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub env: Option<Vec<EnvVar>>,
    /// The MCPExternalAuthConfig with which the proxy gets tokens for what is behind it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_auth_config_ref: Option<LenientNameRef>,
    /// The MCPGroup this server belongs to. It has to exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_ref: Option<NameRef>,
    /// The image of the MCP server.
    pub image: String,
    /// The most bytes that the proxy reads of a request's body. 8 MiB when absent or 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_request_body_size: Option<i64>,
    /// The port that the MCP server listens on, for the transports sse and streamable-http.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub mcp_port: Option<i32>,
    /// How callers prove who they are. Without it, anyone who reaches the proxy may call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oidc_config_ref: Option<OidcConfigRef>,
    /// Deprecated: has no effect in a cluster. The MCP server's pod decides what its process may reach.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permission_profile: Option<PermissionProfile>,
    /// A PodTemplateSpec that is merged into the pods of the MCP server, whose container is called `mcp`. It does not
    /// change the proxy's pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::open_object")]
    pub pod_template_spec: Option<serde_json::Value>,
    /// The transport that clients use towards the proxy of a stdio server. The other transports pass through as they
    /// are.
    #[serde(default)]
    pub proxy_mode: ProxyMode,
    /// The port that the proxy and its Service listen on.
    #[serde(default = "MCPServerSpec::default_proxy_port")]
    #[schemars(range(min = 1, max = 65535))]
    pub proxy_port: i32,
    /// How long the proxy waits for a request to be read, its body included, as a duration such as `1m`. 30s when
    /// absent or 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "duration", "x-kubernetes-validations" = [{
        "rule": "duration(self) >= duration('0s')",
        "message": "proxyReadTimeout must be non-negative",
    }]))]
    pub proxy_read_timeout: Option<String>,
    /// How often this server may be called. Needs `sessionStorage` with Redis, where the counts are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limiting: Option<RateLimiting>,
    /// How many pods run the proxy. Absent leaves the number to an autoscaler, or 1. A stdio server has at most 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i32>,
    /// Additions to the objects made for the proxy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_overrides: Option<ResourceOverrides>,
    /// CPU and memory of the proxy's container. Those of the MCP server's container are set in `podTemplateSpec`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Keys of Secrets that the MCP server gets as environment variables.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name", "key"]))]
    pub secrets: Option<Vec<SecretEnv>>,
    /// The ServiceAccount of the MCP server's pods. Absent, one is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account: Option<String>,
    /// Whether the proxy's Service sends a client to the same pod each time.
    #[serde(default)]
    pub session_affinity: SessionAffinity,
    /// Where sessions are kept; several replicas need one that they share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_storage: Option<SessionStorage>,
    /// An MCPAuthzConfig whose policies are tried: evaluated on live calls, counted, and without effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shadow_policies_ref: Option<NameRef>,
    /// The MCPTelemetryConfig that says where traces and metrics go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub telemetry_config_ref: Option<TelemetryConfigRef>,
    /// The MCPToolConfig that chooses and renames tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_config_ref: Option<LenientNameRef>,
    /// How the proxy talks to the MCP server.
    #[serde(default)]
    pub transport: Transport,
    /// Whether the proxy believes `X-Forwarded-*` headers. Set it only behind a proxy that overwrites them.
    #[serde(default)]
    pub trust_proxy_headers: bool,
    /// Directories of the node to mount.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub volumes: Option<Vec<Volume>>,
    /// The MCPWebhookConfig whose webhooks see every request of this server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook_config_ref: Option<LenientNameRef>,
}

absent_spec_is_default!(MCPServerSpec);

impl MCPServerSpec {
    const fn default_proxy_port() -> i32 {
        8080
    }
}

impl Default for MCPServerSpec {
    /// The schema's defaults, and no image.
    fn default() -> Self {
        Self {
            args: None,
            audit: None,
            auth_server_ref: None,
            authz_config: None,
            authz_config_ref: None,
            backend_replicas: None,
            endpoint_prefix: None,
            env: None,
            external_auth_config_ref: None,
            group_ref: None,
            image: String::new(),
            max_request_body_size: None,
            mcp_port: None,
            oidc_config_ref: None,
            permission_profile: None,
            pod_template_spec: None,
            proxy_mode: ProxyMode::default(),
            proxy_port: Self::default_proxy_port(),
            proxy_read_timeout: None,
            rate_limiting: None,
            replicas: None,
            resource_overrides: None,
            resources: None,
            secrets: None,
            service_account: None,
            session_affinity: SessionAffinity::default(),
            session_storage: None,
            shadow_policies_ref: None,
            telemetry_config_ref: None,
            tool_config_ref: None,
            transport: Transport::default(),
            trust_proxy_headers: false,
            volumes: None,
            webhook_config_ref: None,
        }
    }
}

string_enum! {
    /// Transports between proxy and MCP server.
    #[derive(Default)]
    pub enum Transport {
        /// The standard streams of the MCP server's process.
        #[default]
        Stdio = "stdio",
        /// Streamable HTTP.
        StreamableHttp = "streamable-http",
        /// HTTP with server-sent events, of the protocol's first revision.
        Sse = "sse",
    }
}

string_enum! {
    /// Transports between clients and the proxy of a stdio server.
    #[derive(Default)]
    pub enum ProxyMode {
        /// HTTP with server-sent events, of the protocol's first revision.
        Sse = "sse",
        /// Streamable HTTP.
        #[default]
        StreamableHttp = "streamable-http",
    }
}

string_enum! {
    /// How a Service spreads connections.
    #[derive(Default)]
    pub enum SessionAffinity {
        /// By client address.
        #[default]
        ClientIp = "ClientIP",
        /// Freely.
        None = "None",
    }
}

/// Whether requests are recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Audit {
    /// Whether the proxy writes an audit record for each request.
    #[serde(default)]
    pub enabled: bool,
}

/// A permission profile and where it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("required" = ["name", "type"]))] // the default comes first, so `type` may still be left out
pub struct PermissionProfile {
    /// The key of the ConfigMap that holds the profile, for type `configmap`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The name of the built-in profile, `none` or `network`, or of the ConfigMap.
    pub name: String,
    /// Where the profile is.
    #[serde(default, rename = "type")]
    pub kind: PermissionProfileType,
}

string_enum! {
    /// Where a permission profile is.
    #[derive(Default)]
    pub enum PermissionProfileType {
        /// It comes with the proxy.
        #[default]
        Builtin = "builtin",
        /// In a ConfigMap.
        ConfigMap = "configmap",
    }
}

/// A key of a Secret as an environment variable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretEnv {
    /// The key inside the Secret's data.
    pub key: String,
    /// The name of the Secret.
    pub name: String,
    /// The name of the variable. The key when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_env_name: Option<String>,
}

/// A directory of the node inside the MCP server's container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Volume {
    /// The directory on the node.
    pub host_path: String,
    /// Where the container sees it.
    pub mount_path: String,
    /// The name of the volume, unique within the list.
    pub name: String,
    /// Whether the container may only read it.
    #[serde(default)]
    pub read_only: bool,
}

/// A telemetry configuration, and the name this server has in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TelemetryConfigRef {
    /// The name of the MCPTelemetryConfig.
    #[schemars(length(min = 1))]
    pub name: String,
    /// The service name in traces and metrics. The server's own name when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_name: Option<String>,
}

/// What the operator has found out about the server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MCPServerStatus {
    /// A digest of the configuration that `spec.authServerRef` names, as last used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_server_config_hash: Option<String>,
    /// A digest of the configuration that `spec.authzConfigRef` names, as last used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authz_config_hash: Option<String>,
    /// What holds and what does not; `Ready` sums it up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Option<Vec<Condition>>,
    /// A digest of the configuration that `spec.externalAuthConfigRef` names, as last used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_auth_config_hash: Option<String>,
    /// What a person should know about the phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The `metadata.generation` that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// A digest of the configuration that `spec.oidcConfigRef` names, as last used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oidc_config_hash: Option<String>,
    /// The state of the server in one word. A word that this version does not know reads as none.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::string_enum::known")]
    pub phase: Option<Phase>,
    /// How many proxy pods serve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// A digest of the configuration that `spec.telemetryConfigRef` names, as last used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub telemetry_config_hash: Option<String>,
    /// A digest of the configuration that `spec.toolConfigRef` names, as last used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_config_hash: Option<String>,
    /// Where clients inside the cluster reach the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// A digest of the configuration that `spec.webhookConfigRef` names, as last used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook_config_hash: Option<String>,
}

string_enum! {
    /// States of a server.
    pub enum Phase {
        /// It is being created or its pods are starting.
        Pending = "Pending",
        /// At least one proxy pod serves.
        Ready = "Ready",
        /// Something has to be repaired; the message says what.
        Failed = "Failed",
        /// It is being deleted.
        Terminating = "Terminating",
        /// It is scaled to zero.
        Stopped = "Stopped",
    }
}
