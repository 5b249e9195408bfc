//! MCPAuthzConfig: who may call what.
#![allow(clippy::duplicated_attributes, reason = "printer columns have the same type")]

use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::ConfigStatus;

/// Rules on what callers may do, and the party that decides by them.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "toolhive.stacklok.dev",
    version = "v1beta1",
    kind = "MCPAuthzConfig",
    namespaced,
    status = "ConfigStatus",
    derive = "Default",
    derive = "PartialEq",
    shortname = "authzcfg",
    category = "toolhive",
    doc = "MCPAuthzConfig says who may call what on the workloads that refer to it.",
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.type"),
    printcolumn(name = "Valid", type_ = "string", json_path = ".status.conditions[?(@.type=='Valid')].status"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    crates(kube_core = "::kube_core")
)]
#[serde(remote = "Self")]
pub struct MCPAuthzConfigSpec {
    /// The rules. Of type `cedarv1`: `policies`, `entities_json`, `group_claim_name`, `role_claim_name`, `group_entity_type`,
    /// `multi_valued_claims` and `primary_upstream_provider`. Of type `httpv1`: `http` with `url`, `timeout` in seconds and
    /// `insecure_skip_verify`; `context` with `include_args` and `include_operation`; `claim_mapping`.
    #[schemars(schema_with = "crate::schema::open_object")]
    pub config: Map<String, Value>,
    /// The party that decides: `cedarv1` is the proxy, by Cedar policies; `httpv1` is a policy decision point that the proxy asks.
    #[serde(rename = "type")]
    #[schemars(length(min = 1))]
    pub kind: String,
}

absent_spec_is_default!(MCPAuthzConfigSpec);
