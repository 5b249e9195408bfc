//! DynamoGraphDeploymentRequest.

use serde_json::{Map, Value};

use super::{Findings, RuleContext, Rules};
use crate::kinds::{DynamoGraphDeploymentRequest, DynamoGraphDeploymentRequestSpec};

/// The refusal of GPU discovery under a restricted operator.
const NO_DISCOVERY: &str = "spec.enableGpuDiscovery can only be set to true for cluster-wide operators. \
    Namespace-restricted operators cannot access cluster nodes for GPU discovery. Please set enableGpuDiscovery to false and \
    provide hardware configuration (hardware.min_num_gpus_per_engine, hardware.max_num_gpus_per_engine, \
    hardware.num_gpus_per_node) in spec.profilingConfig.config";

impl Rules for DynamoGraphDeploymentRequest {
    fn check(&self, context: &RuleContext) -> Findings {
        let config = self.spec.profiling_config.config.as_ref().map(Value::to_string);
        check_text(&self.spec, config.as_deref(), context)
    }

    /// The webhook lets every change pass; the controller says of a request that is being profiled that it is immutable.
    fn check_change(&self, _: &Self, _: &str, _: &RuleContext) -> Findings {
        Findings::default()
    }
}

/// Validates a request whose `profilingConfig.config` is this text, as Dynamo keeps it.
pub fn check_text(spec: &DynamoGraphDeploymentRequestSpec, config: Option<&str>, context: &RuleContext) -> Findings {
    let (mut errors, mut warnings) = (Vec::new(), Vec::new());
    let config = config.filter(|config| !config.is_empty());
    if spec.profiling_config.profiler_image.is_empty() {
        errors.push("spec.profilingConfig.profilerImage is required".to_owned());
    }
    if config.is_none() {
        errors.push("spec.profilingConfig.config is required and must not be empty".to_owned());
    }
    if spec.enable_gpu_discovery && context.restricted_to.is_some() {
        errors.push(NO_DISCOVERY.to_owned());
    }
    match config.map(parsed) {
        Some(Err(problem)) => errors.push(format!("failed to parse spec.profilingConfig.config: {problem}")),
        Some(Ok(config)) => {
            let overwritten =
                [("engine", "backend", "backend", &spec.backend), ("deployment", "model", "model", &spec.model)];
            warnings.extend(overwritten.into_iter().filter_map(|(part, member, field, by)| {
                let given = config.get(part)?.as_object()?.get(member)?.as_str()?;
                (!given.is_empty() && given != by).then(|| {
                    format!(
                        "spec.profilingConfig.config.{part}.{member} ({given}) will be overwritten by spec.{field} ({by})"
                    )
                })
            }));
        }
        None => {}
    }
    Findings::of(&errors, warnings)
}

/// The members of the text. Dynamo reads it as YAML, and its errors are those of Go's libraries. What the API server hands
/// on is JSON, so of those that YAML has, users never see one: this is the one that Dynamo's tests know.
fn parsed(text: &str) -> Result<Map<String, Value>, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| {
        format!("error converting YAML to JSON: yaml: line {}: did not find expected ',' or '}}'", error.line())
    })?;
    let found = match value {
        Value::Object(members) => return Ok(members),
        Value::Null => return Ok(Map::new()),
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
    };
    Err(format!(
        "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {found} into Go value of type \
         map[string]interface {{}}"
    ))
}
