//! Which tools clients see, and under which names (toolhive-runner §2.10).

use std::collections::BTreeMap;

use serde::{Serialize, Serializer, ser::SerializeMap as _};
use serde_json::{Map, Value};

use crate::{
    Parameters, ParseError,
    members::{Members, wrong_type},
};

/// Middleware `type` that filters and renames the tools of list answers.
pub const TOOL_FILTER: &str = "tool-filter";
/// Middleware `type` that refuses calls of hidden tools and restores the real name of renamed ones.
pub const TOOL_CALL_FILTER: &str = "tool-call-filter";

/// Parameters of the two tool filter middleware, which are always the same for both.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ToolFilterParameters {
    /// The names of the tools that clients see, as clients see them. Empty means all; written as null then.
    #[serde(serialize_with = "null_when_empty")]
    pub filter_tools: Vec<String>,
    /// How tools are presented, by the name that the MCP server gives them.
    #[serde(serialize_with = "with_every_member")]
    pub tools_override: BTreeMap<String, ToolOverride>,
    /// Members this version does not know.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// How one tool is presented to clients.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ToolOverride {
    /// Its name; empty means the MCP server's own.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its description; empty means the MCP server's own.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Members this version does not know.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Parameters for ToolFilterParameters {
    fn read(parameters: Value, path: &str) -> Result<Self, ParseError> {
        let mut members = Members::of(parameters, path)?;
        Ok(Self {
            filter_tools: members.strings("filter_tools")?,
            tools_override: overrides(&mut members)?,
            extra: members.rest(),
        })
    }
}

/// Reads the member `tools_override`.
pub(crate) fn overrides(members: &mut Members) -> Result<BTreeMap<String, ToolOverride>, ParseError> {
    let path = members.path("tools_override");
    let Some(value) = members.value("tools_override") else { return Ok(BTreeMap::new()) };
    let Value::Object(entries) = value else { return Err(wrong_type(&path, &value, "an object of objects")) };
    let read = |(tool, value)| {
        let mut members = Members::of(value, &format!("{path}.{tool}"))?;
        let name = members.string("name")?.unwrap_or_default();
        let description = members.string("description")?.unwrap_or_default();
        Ok((tool, ToolOverride { name, description, extra: members.rest() }))
    };
    entries.into_iter().map(read).collect()
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
        #[serde(flatten)]
        extra: &'a Map<String, Value>,
    }
    let mut map = serializer.serialize_map(Some(overrides.len()))?;
    for (tool, ToolOverride { name, description, extra }) in overrides {
        map.serialize_entry(tool, &Whole { name, description, extra })?;
    }
    map.end()
}
