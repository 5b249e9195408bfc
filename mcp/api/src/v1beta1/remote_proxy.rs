//! MCPRemoteProxy: a proxy in front of an MCP server that runs elsewhere.
#![allow(clippy::duplicated_attributes, reason = "printer columns have the same type")]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Audit, AuthServerRef, AuthzConfig, OidcConfigRef, ResourceOverrides, ResourceRequirements, SessionAffinity,
    SessionStorage, TelemetryConfigRef,
};
use crate::reference::{LenientNameRef, NameRef, SecretKeyRef};

/// Which server the proxy stands in front of, how the proxy is reached and what guards it.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "toolhive.stacklok.dev",
    version = "v1beta1",
    kind = "MCPRemoteProxy",
    plural = "mcpremoteproxies",
    namespaced,
    status = "MCPRemoteProxyStatus",
    derive = "Default",
    derive = "PartialEq",
    shortname = "rp",
    shortname = "mcprp",
    category = "toolhive",
    doc = "MCPRemoteProxy puts a proxy in front of an MCP server that runs elsewhere; clients connect to the proxy.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Remote URL", type_ = "string", json_path = ".spec.remoteUrl"),
    printcolumn(name = "URL", type_ = "string", json_path = ".status.url"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    crates(kube_core = "::kube_core")
)]
#[serde(rename_all = "camelCase", remote = "Self")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!(has(self.authzConfig) && has(self.authzConfigRef))",
    "message": "authzConfig and authzConfigRef are mutually exclusive; use authzConfigRef to reference a shared MCPAuthzConfig",
}]))]
pub struct MCPRemoteProxySpec {
    /// Allows `remoteUrl` to resolve to an address of a private network. Loopback and link-local addresses stay
    /// refused.
    #[serde(default)]
    pub allow_private_endpoint: bool,
    /// Whether requests leave an audit record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audit: Option<Audit>,
    /// The authorization server that the proxy runs for its callers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_server_ref: Option<AuthServerRef>,
    /// What callers may do, said here. Use `authzConfigRef` to share it among proxies; not both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authz_config: Option<AuthzConfig>,
    /// What callers may do, said in an MCPAuthzConfig. Not together with `authzConfig`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authz_config_ref: Option<NameRef>,
    /// A path that the proxy puts before the endpoints it announces to SSE clients, for an ingress that strips it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint_prefix: Option<String>,
    /// The MCPExternalAuthConfig with which the proxy gets tokens for the remote server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_auth_config_ref: Option<LenientNameRef>,
    /// The MCPGroup this proxy belongs to. It has to exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_ref: Option<NameRef>,
    /// Headers that the proxy adds to each request for the remote server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header_forward: Option<HeaderForward>,
    /// How callers prove who they are. Without it, anyone who reaches the proxy may call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oidc_config_ref: Option<OidcConfigRef>,
    /// A PodTemplateSpec that is merged into the pods of the proxy, whose container is called `toolhive`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::open_object")]
    pub pod_template_spec: Option<serde_json::Value>,
    /// The port that the proxy and its Service listen on.
    #[serde(default = "MCPRemoteProxySpec::default_proxy_port")]
    #[schemars(range(min = 1, max = 65535))]
    pub proxy_port: i32,
    /// The address of the remote MCP server.
    #[schemars(regex(pattern = "^https?://"))]
    pub remote_url: String,
    /// How many pods run the proxy. Absent leaves the number to an autoscaler, or 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub replicas: Option<i32>,
    /// Additions to the objects made for the proxy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_overrides: Option<ResourceOverrides>,
    /// CPU and memory of the proxy's container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// The ServiceAccount of the proxy's pods. Absent, one is made.
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
    /// The transport of the remote server, which clients use as well.
    #[serde(default)]
    pub transport: RemoteTransport,
    /// Whether the proxy believes `X-Forwarded-*` headers. Set it only behind a proxy that overwrites them.
    #[serde(default)]
    pub trust_proxy_headers: bool,
    /// The MCPWebhookConfig whose webhooks see every request of this proxy's clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook_config_ref: Option<LenientNameRef>,
}

absent_spec_is_default!(MCPRemoteProxySpec);

impl MCPRemoteProxySpec {
    const fn default_proxy_port() -> i32 {
        8080
    }
}

impl Default for MCPRemoteProxySpec {
    /// The schema's defaults, and no address.
    fn default() -> Self {
        Self {
            allow_private_endpoint: false,
            audit: None,
            auth_server_ref: None,
            authz_config: None,
            authz_config_ref: None,
            endpoint_prefix: None,
            external_auth_config_ref: None,
            group_ref: None,
            header_forward: None,
            oidc_config_ref: None,
            pod_template_spec: None,
            proxy_port: Self::default_proxy_port(),
            remote_url: String::new(),
            replicas: None,
            resource_overrides: None,
            resources: None,
            service_account: None,
            session_affinity: SessionAffinity::default(),
            session_storage: None,
            shadow_policies_ref: None,
            telemetry_config_ref: None,
            tool_config_ref: None,
            transport: RemoteTransport::default(),
            trust_proxy_headers: false,
            webhook_config_ref: None,
        }
    }
}

string_enum! {
    /// Transports to an MCP server that runs elsewhere.
    #[derive(Default)]
    pub enum RemoteTransport {
        /// HTTP with server-sent events, of the protocol's first revision.
        Sse = "sse",
        /// Streamable HTTP.
        #[default]
        StreamableHttp = "streamable-http",
    }
}

/// Headers that are added to each request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeaderForward {
    /// Headers whose values are in Secrets.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["headerName"]))]
    pub add_headers_from_secret: Option<Vec<HeaderFromSecret>>,
    /// Headers with their values, which anyone who may read this object sees.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub add_plaintext_headers: Option<BTreeMap<String, String>>,
}

/// A header whose value is in a Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeaderFromSecret {
    /// The name of the header.
    #[schemars(length(min = 1, max = 255))]
    pub header_name: String,
    /// The key of a Secret that holds the value.
    pub value_secret_ref: SecretKeyRef,
}

/// What the operator has found out about the proxy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MCPRemoteProxyStatus {
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
    /// Where clients outside of the cluster reach the proxy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_url: Option<String>,
    /// What a person should know about the phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The `metadata.generation` that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// A digest of the configuration that `spec.oidcConfigRef` names, as last used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oidc_config_hash: Option<String>,
    /// The state of the proxy in one word. A word that this version does not know reads as none.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::string_enum::known")]
    pub phase: Option<RemoteProxyPhase>,
    /// A digest of the configuration that `spec.telemetryConfigRef` names, as last used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub telemetry_config_hash: Option<String>,
    /// A digest of the configuration that `spec.toolConfigRef` names, as last used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_config_hash: Option<String>,
    /// Where clients inside the cluster reach the proxy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// A digest of the configuration that `spec.webhookConfigRef` names, as last used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook_config_hash: Option<String>,
}

string_enum! {
    /// States of a remote proxy.
    pub enum RemoteProxyPhase {
        /// It is being created or its pods are starting.
        Pending = "Pending",
        /// At least one proxy pod serves.
        Ready = "Ready",
        /// Something has to be repaired; the message says what.
        Failed = "Failed",
        /// It is being deleted.
        Terminating = "Terminating",
    }
}
