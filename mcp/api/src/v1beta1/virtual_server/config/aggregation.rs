//! How the tools of several servers become one list.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reference::LenientNameRef;
use crate::v1beta1::ToolOverride;

/// How the tools of several servers become one list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Aggregation {
    /// What happens where two servers have a tool of one name.
    #[serde(default)]
    pub conflict_resolution: ConflictResolution,
    /// How it happens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conflict_resolution_config: Option<ConflictResolutionConfig>,
    /// Whether tools are offered of servers that `tools` does not name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_tool_visibility: Option<ToolVisibility>,
    /// Offers no tool of any server, only composite ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclude_all_tools: Option<bool>,
    /// What is offered of single servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<WorkloadTools>>,
}

string_enum! {
    /// What happens where two servers have a tool of one name.
    #[derive(Default)]
    pub enum ConflictResolution {
        /// Every tool's name begins with its server's.
        #[default]
        Prefix = "prefix",
        /// The server that comes first in a list wins.
        Priority = "priority",
        /// Overrides have to give each a name of its own.
        Manual = "manual",
    }
}

/// How conflicts are resolved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConflictResolutionConfig {
    /// The prefix; `{workload}` in it is the server's name.
    #[serde(default = "ConflictResolutionConfig::default_prefix_format")]
    pub prefix_format: String,
    /// The names of the servers, for `priority`: the first wins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_order: Option<Vec<String>>,
}

impl ConflictResolutionConfig {
    fn default_prefix_format() -> String {
        "{workload}_".into()
    }
}

string_enum! {
    /// Whether tools are offered.
    pub enum ToolVisibility {
        /// They are.
        Allow = "allow",
        /// They are not.
        Deny = "deny",
    }
}

/// What is offered of one server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadTools {
    /// Offers none of its tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclude_all: Option<bool>,
    /// The names of the tools that are offered. All when absent or empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<Vec<String>>,
    /// How tools are presented, by the name that the server gives them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overrides: Option<BTreeMap<String, ToolOverride>>,
    /// An MCPToolConfig that says both instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_config_ref: Option<LenientNameRef>,
    /// The name of the server's object.
    pub workload: String,
}

/// A server that is called beside those of the group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StaticBackend {
    /// A file with the authorities that its certificate may come from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_bundle_path: Option<String>,
    /// Texts about the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, String>>,
    /// The name of the server, unique within the virtual server.
    pub name: String,
    /// How it is called.
    pub transport: StaticBackendTransport,
    /// Where the server runs.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<StaticBackendType>,
    /// The address of the server.
    #[schemars(regex(pattern = "^https?://"))]
    pub url: String,
}

string_enum! {
    /// Transports to a server.
    pub enum StaticBackendTransport {
        /// HTTP with server-sent events, of the protocol's first revision.
        Sse = "sse",
        /// Streamable HTTP.
        StreamableHttp = "streamable-http",
    }
}

string_enum! {
    /// Where a server runs.
    pub enum StaticBackendType {
        /// Outside of the cluster, as an MCPServerEntry says.
        Entry = "entry",
        /// Not said.
        Unspecified = "",
    }
}
