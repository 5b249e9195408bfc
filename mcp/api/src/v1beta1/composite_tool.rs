//! Composite tools: workflows over the tools of several servers, offered as one tool.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ToolAnnotations;

/// A tool that runs a workflow over other tools.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CompositeTool {
    /// Hints about the tool's behaviour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<ToolAnnotations>,
    /// What the tool does, as clients see it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The name that clients see and call.
    pub name: String,
    /// What the tool answers. Without it, the answer of the last step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<CompositeToolOutput>,
    /// The JSON Schema of the tool's arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::open_object")]
    pub parameters: Option<serde_json::Value>,
    /// The steps of the workflow. Those that do not depend on each other run together.
    pub steps: Vec<WorkflowStep>,
    /// How long one run of the workflow may take, as a duration such as `5m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^([0-9]+(\\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$"))]
    pub timeout: Option<String>,
}

/// The answer of a composite tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CompositeToolOutput {
    /// The members of the answer, by name.
    pub properties: BTreeMap<String, OutputProperty>,
    /// The names of the members that have to be there for a run to succeed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required: Option<Vec<String>>,
}

/// One member of a composite tool's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OutputProperty {
    /// The value when the template yields none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::anything")]
    pub default: Option<serde_json::Value>,
    /// What the member means.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The members of an object, in the same form, instead of `value`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::open_object")]
    pub properties: Option<serde_json::Value>,
    /// The JSON type of the member.
    #[serde(rename = "type")]
    pub kind: OutputPropertyType,
    /// A template over the results of the steps that yields the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

string_enum! {
    /// JSON types of an answer's members.
    pub enum OutputPropertyType {
        /// A string.
        String = "string",
        /// A whole number.
        Integer = "integer",
        /// A number.
        Number = "number",
        /// True or false.
        Boolean = "boolean",
        /// An object.
        Object = "object",
        /// A list.
        Array = "array",
    }
}

/// One step of a workflow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowStep {
    /// The arguments of the tool call. Strings in them may be templates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::open_object")]
    pub arguments: Option<serde_json::Value>,
    /// A template that yields the list whose items a `forEach` step goes through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collection: Option<String>,
    /// A template; the step is skipped where it does not yield true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    /// What other steps see as this step's result when it is skipped or has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::anything")]
    pub default_results: Option<serde_json::Value>,
    /// The ids of the steps that have to be done before this one starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depends_on: Option<Vec<String>>,
    /// The name of the step, unique in the workflow.
    pub id: String,
    /// The name under which the templates of a `forEach` step see the item.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub item_var: Option<String>,
    /// How many items a `forEach` step goes through at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::integer")]
    pub max_iterations: Option<i64>,
    /// How many items a `forEach` step works on at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::integer")]
    pub max_parallel: Option<i64>,
    /// What an `elicitation` step asks the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What happens when the user dismisses an `elicitation`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_cancel: Option<StepAnswerHandling>,
    /// What happens when the user declines an `elicitation`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_decline: Option<StepAnswerHandling>,
    /// What happens when the step fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_error: Option<StepErrorHandling>,
    /// The JSON Schema of what an `elicitation` step asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::open_object")]
    pub schema: Option<serde_json::Value>,
    /// The step that a `forEach` step runs for each item, in the same form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::open_object")]
    pub step: Option<serde_json::Value>,
    /// How long the step may take, as a duration such as `30s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^([0-9]+(\\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$"))]
    pub timeout: Option<String>,
    /// The tool that is called, as `WORKLOAD.TOOL`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// What the step does.
    #[serde(rename = "type", default)]
    pub kind: StepType,
}

string_enum! {
    /// Kinds of steps.
    #[derive(Default)]
    pub enum StepType {
        /// Calls a tool.
        #[default]
        Tool = "tool",
        /// Asks the user.
        Elicitation = "elicitation",
        /// Runs another step for each item of a list.
        ForEach = "forEach",
    }
}

/// What a failing step means for the workflow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepErrorHandling {
    /// What happens.
    #[serde(default)]
    pub action: ErrorAction,
    /// How often the step is tried again, for action `retry`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::integer")]
    pub retry_count: Option<i64>,
    /// How long the first retry waits, as a duration such as `1s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^([0-9]+(\\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$"))]
    pub retry_delay: Option<String>,
}

string_enum! {
    /// What may happen after a step has failed.
    #[derive(Default)]
    pub enum ErrorAction {
        /// The workflow fails.
        #[default]
        Abort = "abort",
        /// The workflow goes on.
        Continue = "continue",
        /// The step is tried again.
        Retry = "retry",
    }
}

/// What a user's refusal means for the workflow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StepAnswerHandling {
    /// What happens.
    #[serde(default)]
    pub action: RefusalAction,
}

string_enum! {
    /// What may happen after a user has refused.
    #[derive(Default)]
    pub enum RefusalAction {
        /// The workflow ends without its other steps, and succeeds.
        SkipRemaining = "skip_remaining",
        /// The workflow fails.
        #[default]
        Abort = "abort",
        /// The workflow goes on.
        Continue = "continue",
    }
}
