//! MCPToolConfig: which tools of an MCP server clients see, and under which names.

use std::collections::BTreeMap;

use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ConfigStatus;

/// Which tools clients see, and how the proxy presents them.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "toolhive.stacklok.dev",
    version = "v1beta1",
    kind = "MCPToolConfig",
    namespaced,
    status = "ConfigStatus",
    derive = "Default",
    derive = "PartialEq",
    shortname = "tc",
    shortname = "toolconfig",
    category = "toolhive",
    doc = "MCPToolConfig selects and renames the tools of every MCP server that refers to it.",
    printcolumn(name = "Valid", type_ = "string", json_path = ".status.conditions[?(@.type=='Valid')].status"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    crates(kube_core = "::kube_core")
)]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct MCPToolConfigSpec {
    /// The names of the tools that clients may see and call, as `toolsOverride` renames them. All tools when absent
    /// or empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub tools_filter: Option<Vec<String>>,
    /// How the proxy presents tools, by the name that the MCP server gives them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools_override: Option<BTreeMap<String, ToolOverride>>,
}

absent_spec_is_default!(MCPToolConfigSpec);

/// How the proxy presents one tool. Needs a name or a description.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolOverride {
    /// Hints about the tool's behaviour that replace the MCP server's. What is absent stays as the server says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<ToolAnnotations>,
    /// The description that clients see. The MCP server's own when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The name that clients see and call. The MCP server's own when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Hints about a tool's behaviour, as the Model Context Protocol defines them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolAnnotations {
    /// Whether the tool may destroy data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destructive_hint: Option<bool>,
    /// Whether a repeated call with the same arguments changes nothing more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotent_hint: Option<bool>,
    /// Whether the tool reaches systems outside of the MCP server's own domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_world_hint: Option<bool>,
    /// Whether the tool only reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only_hint: Option<bool>,
    /// The title that clients show to people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}
