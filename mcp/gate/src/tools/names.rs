//! The names of tools: what the MCP server calls them, and what clients do.

use std::collections::{BTreeMap, BTreeSet};

use mcp_middleware::{BuildContext, BuildError};
use mcp_runconfig::{ParseError, ToolFilterParameters, ToolOverride};

/// Which tools there are for clients, and how they are presented.
#[derive(Debug)]
pub(crate) struct ToolNames {
    /// The names that clients see; empty means all.
    shown: BTreeSet<String>,
    /// The presentation of tools, by the MCP server's name.
    overrides: BTreeMap<String, ToolOverride>,
    /// The MCP server's name of each renamed tool, by its new name.
    renamed: BTreeMap<String, String>,
}

impl ToolNames {
    pub(crate) fn new(parameters: ToolFilterParameters) -> Result<Self, ParseError> {
        let ToolFilterParameters { filter_tools, tools_override: overrides, .. } = parameters;
        let mut renamed = BTreeMap::new();
        for (tool, ToolOverride { name, .. }) in overrides.iter().filter(|(_, presented)| !presented.name.is_empty()) {
            if let Some(other) = renamed.insert(name.clone(), tool.clone()) {
                let member = format!("parameters.tools_override.{tool}.name");
                let problem = format!("{name:?} is the name of {other:?} too");
                return Err(ParseError::new(member, problem, "give each tool a name of its own"));
            }
        }
        Ok(Self { shown: filter_tools.into_iter().collect(), overrides, renamed })
    }

    /// The names that an entry of the chain asks for.
    pub(crate) fn build(parameters: ToolFilterParameters, context: &BuildContext) -> Result<Self, BuildError> {
        Self::new(parameters).map_err(|error| context.error(&error.field, error.problem, error.fix))
    }

    /// The client's name of a tool of the MCP server; `None` when clients do not see it.
    pub(crate) fn presented<'a>(&'a self, tool: &'a str) -> Option<&'a str> {
        let name = match self.overrides.get(tool) {
            Some(presented) if !presented.name.is_empty() => &presented.name,
            // Calls by this name go to the tool that was given it.
            _ if self.renamed.contains_key(tool) => return None,
            _ => tool,
        };
        (self.shown.is_empty() || self.shown.contains(name)).then_some(name)
    }

    /// The description that clients see in place of the MCP server's.
    pub(crate) fn description(&self, tool: &str) -> Option<&str> {
        self.overrides.get(tool).map(|presented| presented.description.as_str()).filter(|text| !text.is_empty())
    }

    /// The MCP server's name of the tool that a client calls `name`; `None` when there is none for clients.
    pub(crate) fn tool<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        let tool = self.renamed.get(name).map_or(name, String::as_str);
        (self.presented(tool) == Some(name)).then_some(tool)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use mcp_runconfig::Parameters as _;
    use serde_json::{Value, json};

    use super::*;

    pub(in super::super) fn names(parameters: Value) -> ToolNames {
        ToolNames::new(ToolFilterParameters::read(parameters, "p").unwrap()).unwrap()
    }

    #[test]
    fn two_tools_cannot_get_one_name() {
        let overrides = json!({"tools_override": {"a": {"name": "x"}, "b": {"name": "x"}}});
        let error = ToolNames::new(ToolFilterParameters::read(overrides, "p").unwrap()).unwrap_err().to_string();
        assert!(error.contains(r#"tools_override.b.name: "x" is the name of "a" too"#), "{error}");
    }
}
