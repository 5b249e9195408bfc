//! MCPToolConfig: which tools of a workload clients see, and under which names.

use std::collections::BTreeMap;

use mcp_api::v1beta1::MCPToolConfig;
use mcp_plan::{
    config::{Target, Words},
    problem::Problem,
    reference::Reference,
    settings::Settings,
};
use mcp_runconfig::{RunConfig, TOOL_CALL_FILTER, TOOL_FILTER, ToolOverride};

use crate::{config::ConfigKind, subject::Subject};

impl Subject for MCPToolConfig {
    const FINALIZER: Option<&'static str> = Some("toolhive.stacklok.dev/toolconfig-finalizer");
    const RESOURCES: [&'static str; 3] = ["mcptoolconfigs", "mcptoolconfigs/status", "mcptoolconfigs/finalizers"];

    fn references(&self) -> Vec<Reference> {
        Vec::new()
    }

    fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (at, tool) in self.spec.tools_filter.iter().flatten().enumerate() {
            if !is_tool(tool) {
                problems.push(Problem::new(format!("spec.toolsFilter[{at}]"), not_a_tool(tool)));
            }
        }
        let mut taken = BTreeMap::new();
        for (tool, change) in self.spec.tools_override.iter().flatten() {
            let field = format!("spec.toolsOverride[{tool}]");
            let name = change.name.as_deref().filter(|name| !name.is_empty());
            if !is_tool(tool) {
                problems.push(Problem::new(&*field, not_a_tool(tool)));
            }
            if let Some(name) = name.filter(|name| !is_tool(name)) {
                problems.push(Problem::new(format!("{field}.name"), not_a_tool(name)));
            }
            if name.is_none() && change.description.as_deref().is_none_or(str::is_empty) {
                problems.push(Problem::new(&*field, "changes nothing; set name or description, or remove it"));
            }
            if let Some(other) = name.and_then(|name| taken.insert(name, tool)) {
                let message =
                    format!("{:?} is already the name of {other:?}; choose another", name.unwrap_or_default());
                problems.push(Problem::new(format!("{field}.name"), message));
            }
        }
        problems
    }

    fn warnings(&self, _: &Settings) -> Vec<String> {
        let annotated = self.spec.tools_override.iter().flatten().filter(|(_, change)| change.annotations.is_some());
        annotated
            .map(|(tool, _)| format!("spec.toolsOverride[{tool}].annotations has no effect in this version"))
            .collect()
    }
}

impl ConfigKind for MCPToolConfig {
    const WORDS: Words = Words {
        condition: "ToolConfigValidated",
        valid: "ToolConfigValid",
        not_found: "ToolConfigNotFound",
        not_valid: "ToolConfigNotValid",
        // It names no Secret.
        data_not_found: "ToolConfigNotValid",
        data_not_valid: "ToolConfigNotValid",
        bundle: None,
    };
    const MIDDLEWARE: &'static [&'static str] = &[TOOL_FILTER, TOOL_CALL_FILTER];

    type Terms = ();

    fn render(&self, _: &Target, (): &(), document: &mut RunConfig) {
        let shown = self.spec.tools_override.iter().flatten().map(|(tool, change)| {
            let change = ToolOverride {
                name: change.name.clone().unwrap_or_default(),
                description: change.description.clone().unwrap_or_default(),
            };
            (tool.clone(), change)
        });
        document.tools_filter = self.spec.tools_filter.clone().unwrap_or_default();
        document.tools_override = shown.collect();
    }
}

/// Whether the RunConfig takes it as the name of a tool.
fn is_tool(name: &str) -> bool {
    !name.is_empty() && !name.contains([',', '\n', '\r'])
}

fn not_a_tool(name: &str) -> String {
    format!("{name:?} cannot name a tool; write its name without commas and line breaks")
}
