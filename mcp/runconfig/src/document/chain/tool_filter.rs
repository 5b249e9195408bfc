//! Which tools clients see, and under which names (toolhive-runner §2.10).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};

/// Middleware `type` that filters and renames the tools of list answers.
pub const TOOL_FILTER: &str = "tool-filter";
/// Middleware `type` that refuses calls of hidden tools and restores the real name of renamed ones.
pub const TOOL_CALL_FILTER: &str = "tool-call-filter";

/// Parameters of the two tool filter middleware, which are always the same for both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolFilterParameters {
    /// The names of the tools that clients see, as clients see them. Empty means all; written as null then.
    #[serde(serialize_with = "null_when_empty")]
    pub filter_tools: Vec<String>,
    /// The presentation of tools, by the name that the MCP server gives them.
    #[serde(serialize_with = "with_every_member")]
    pub tools_override: BTreeMap<String, ToolOverride>,
}

/// The presentation of one tool to clients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolOverride {
    /// Its name; empty means the MCP server's own.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its description; empty means the MCP server's own.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
}

fn null_when_empty<S: Serializer>(tools: &[String], serializer: S) -> Result<S::Ok, S::Error> {
    if tools.is_empty() { serializer.serialize_none() } else { tools.serialize(serializer) }
}

/// In the middleware's parameters, unlike in the document's own member, empty names and descriptions are written.
fn with_every_member<S: Serializer>(
    overrides: &BTreeMap<String, ToolOverride>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Whole<'a> {
        name: &'a str,
        description: &'a str,
    }
    serializer.collect_map(
        overrides.iter().map(|(tool, ToolOverride { name, description })| (tool, Whole { name, description })),
    )
}
