//! The rules that a DynamoComponentDeployment and each service of a graph have in common.

use crate::kinds::Component;

/// The Dynamo namespace that all graphs share.
const GLOBAL: &str = "dynamo";

/// Validates the component at `path`, which belongs to this graph of this namespace. The first error ends it, and with it
/// the warnings.
pub(super) fn check(component: &Component, path: &str, namespace: &str, graph: &str) -> Result<Vec<String>, String> {
    let mut warnings = Vec::new();
    if let Some(given) = component.dynamo_namespace.as_ref().filter(|given| !given.is_empty()) {
        let global = component.global_dynamo_namespace == Some(true);
        let taken = if global { GLOBAL.to_owned() } else { format!("{namespace}-{graph}") };
        warnings.push(format!(
            "{path}.dynamoNamespace is deprecated and ignored. Value '{given}' will be replaced with '{taken}'. Remove this \
             field from your configuration"
        ));
    }
    if component.replicas.is_some_and(|replicas| replicas < 0) {
        return Err(format!("{path}.replicas must be non-negative"));
    }
    let empty = |text: Option<&String>| text.is_none_or(String::is_empty);
    if component.ingress.as_ref().is_some_and(|it| it.enabled == Some(true) && empty(it.host.as_ref())) {
        return Err(format!("{path}.ingress.host is required when ingress is enabled"));
    }
    let mut mounts = component.volume_mounts.iter().flatten();
    if let Some(index) = mounts.position(|it| !it.use_as_compilation_cache && empty(it.mount_point.as_ref())) {
        return Err(format!("{path}.volumeMounts[{index}].mountPoint is required when useAsCompilationCache is false"));
    }
    if let Some(memory) = &component.shared_memory
        && memory.disabled != Some(true)
        && memory.size.as_ref().is_none_or(crate::kinds::Quantity::is_zero)
    {
        return Err(format!("{path}.sharedMemory.size is required when disabled is false"));
    }
    if component.autoscaling.is_some() {
        warnings.push(format!(
            "{path}.autoscaling is deprecated and ignored. Use DynamoGraphDeploymentScalingAdapter with HPA, KEDA, or Planner \
             for autoscaling instead. See docs/kubernetes/autoscaling.md"
        ));
    }
    Ok(warnings)
}
