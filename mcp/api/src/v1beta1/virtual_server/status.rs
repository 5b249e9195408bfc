//! What is known about a VirtualMCPServer.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the operator and the virtual server have found out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualMCPServerStatus {
    /// A digest of the configuration that `spec.incomingAuth.authzConfigRef` names, as last used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authz_config_hash: Option<String>,
    /// How many servers behind can be called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_count: Option<i32>,
    /// What holds and what does not; `Ready` sums it up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Option<Vec<Condition>>,
    /// The servers behind, as the virtual server sees them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub discovered_backends: Option<Vec<DiscoveredBackend>>,
    /// What a person should know about the phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The `metadata.generation` that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// A digest of the configuration that `spec.incomingAuth.oidcConfigRef` names, as last used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oidc_config_hash: Option<String>,
    /// The state of the virtual server in one word. A word that this version does not know reads as none.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::string_enum::known")]
    #[schemars(extend("default" = "Pending"))]
    pub phase: Option<VirtualServerPhase>,
    /// What the virtual server itself reports. The operator reads it and never writes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<VirtualServerRuntime>,
    /// A digest of the configuration that `spec.telemetryConfigRef` names, as last used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub telemetry_config_hash: Option<String>,
    /// Where clients inside the cluster reach the virtual server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// What the virtual server itself reports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualServerRuntime {
    /// How many servers behind can be called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_count: Option<i32>,
    /// What the virtual server has found out about itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Option<Vec<Condition>>,
    /// The servers behind, as the virtual server sees them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub discovered_backends: Option<Vec<DiscoveredBackend>>,
    /// What a person should know about the phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The state in one word. A word that this version does not know reads as none.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::string_enum::known")]
    pub phase: Option<VirtualServerPhase>,
}

string_enum! {
    /// States of a virtual server.
    pub enum VirtualServerPhase {
        /// It is being created or its pods are starting.
        Pending = "Pending",
        /// It serves.
        Ready = "Ready",
        /// It serves, but not every server behind it can be called.
        Degraded = "Degraded",
        /// Something has to be repaired; the message says what.
        Failed = "Failed",
    }
}

/// A server behind the virtual server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DiscoveredBackend {
    /// The MCPExternalAuthConfig that it is called with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_config_ref: Option<String>,
    /// How the virtual server proves who it is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_type: Option<String>,
    /// Whether calls are let through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub circuit_breaker_state: Option<CircuitBreakerState>,
    /// When `circuitBreakerState` last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub circuit_last_changed: Option<String>,
    /// How many health checks failed in a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::integer")]
    pub consecutive_failures: Option<i64>,
    /// When its health was last checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub last_health_check: Option<String>,
    /// The revision of the protocol that it speaks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp_revision: Option<String>,
    /// What a person should know about `status`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The name of the server's object.
    pub name: String,
    /// Its state: `ready`, `degraded`, `unavailable`, `unauthenticated` or `unknown`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Where the virtual server calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

string_enum! {
    /// States of a circuit breaker.
    pub enum CircuitBreakerState {
        /// Calls are let through.
        Closed = "closed",
        /// Calls are refused at once.
        Open = "open",
        /// One call is let through, to see whether the server is back.
        HalfOpen = "half-open",
    }
}
