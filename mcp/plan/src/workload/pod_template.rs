//! The user's `podTemplateSpec`: read, and merged into the pods of the workload.

use k8s_openapi::{DeepMerge, api::core::v1::PodTemplateSpec};
use serde_json::Value;

use super::names;
use crate::problem::Problem;

/// The field that holds it.
pub(super) const FIELD: &str = "spec.podTemplateSpec";

/// A pod template as it was read.
#[derive(Clone, Debug)]
pub struct Template {
    /// The fields of it that this version knows.
    pub known: PodTemplateSpec,
    /// The fields that it does not know, which have no effect: sent to an API server that does not know them either,
    /// they would keep the pods from being made.
    pub ignored: Vec<String>,
}

impl Template {
    /// The warnings for its author: a sentence for each kind of setting without effect.
    pub fn notes(&self) -> Vec<String> {
        const SAID: usize = 10;
        let labels = self.known.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
        let mut notes = names::selector_label_notes(&format!("{FIELD}.metadata.labels"), labels);
        if self.ignored.is_empty() {
            return notes;
        }
        let more = if self.ignored.len() > SAID { ", ..." } else { "" };
        let said = self.ignored.iter().take(SAID).map(String::as_str).collect::<Vec<_>>().join(", ");
        notes.push(format!("{said}{more} is not a field of a pod that this version knows, and has no effect"));
        notes
    }
}

/// Reads a pod template for pods whose own container is called `container`.
///
/// # Errors
/// Names the field, what is wrong with it and how to mend it.
pub fn decode(template: &Value, container: &str) -> Result<Template, Problem> {
    let mut template = template.clone();
    if let Some(path) = directive(&template, FIELD) {
        let message = "patch directives are not supported here; list what the pod should have, by name".to_owned();
        return Err(Problem { field: path, message });
    }
    numbers_to_quantities(&mut template);
    let decoded: PodTemplateSpec = serde_path_to_error::deserialize(&template).map_err(|error| {
        let path = error.path().to_string();
        let field = if path == "." { FIELD.to_owned() } else { format!("{FIELD}.{path}") };
        Problem { field, message: error.inner().to_string() }
    })?;
    let known = serde_json::to_value(&decoded).unwrap_or_default();
    let mut ignored = Vec::new();
    lost(&template, &known, FIELD, &mut ignored);
    if let Some(spec) = &decoded.spec {
        let lists = [
            ("containers", spec.containers.as_slice()),
            ("initContainers", spec.init_containers.as_deref().unwrap_or_default()),
        ];
        for (list, containers) in lists {
            if let Some(at) = containers.iter().position(|container| container.name.is_empty()) {
                let field = format!("{FIELD}.spec.{list}[{at}].name");
                let message = format!("is missing; the container that the operator makes is called {container:?}");
                return Err(Problem { field, message });
            }
        }
    }
    Ok(Template { known: decoded, ignored })
}

/// Puts the user's template over the generated one, list entries by their names, except for what selects the pods and
/// tells when they change.
pub fn merge(generated: &mut PodTemplateSpec, mut user: PodTemplateSpec) {
    if let Some(labels) = user.metadata.as_mut().and_then(|metadata| metadata.labels.as_mut()) {
        names::remove_selector_labels(labels);
    }
    // An empty name asks for none, and the pod would run as the account `default`.
    let accounts = user.spec.iter_mut().flat_map(|pod| [&mut pod.service_account_name, &mut pod.service_account]);
    accounts.filter(|name| name.as_deref() == Some("")).for_each(|name| *name = None);
    let own = generated.metadata.clone();
    generated.merge_from(user);
    generated.metadata.merge_from(own);
}

/// The path of the first strategic-merge directive (`$patch`, `$setElementOrder/…`, `$retainKeys`, …).
fn directive(value: &Value, path: &str) -> Option<String> {
    match value {
        Value::Object(members) => members.iter().find_map(|(key, member)| {
            let path = format!("{path}.{key}");
            if key.starts_with('$') { Some(path) } else { directive(member, &path) }
        }),
        Value::Array(items) => {
            items.iter().enumerate().find_map(|(at, item)| directive(item, &format!("{path}[{at}]")))
        }
        _ => None,
    }
}

/// Quantities may be written as numbers (`cpu: 2`); the types here know strings only.
fn numbers_to_quantities(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                match (key.as_str(), &mut *member) {
                    ("limits" | "requests" | "overhead", Value::Object(amounts)) => {
                        amounts.values_mut().for_each(number_to_text);
                    }
                    ("sizeLimit" | "divisor" | "storage", amount) => number_to_text(amount),
                    _ => numbers_to_quantities(member),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(numbers_to_quantities),
        _ => {}
    }
}

fn number_to_text(value: &mut Value) {
    if let Value::Number(number) = value {
        *value = Value::String(number.to_string());
    }
}

/// The paths of the members that are in `written` and not in `known`. Nulls and empty containers mean nothing.
fn lost(written: &Value, known: &Value, path: &str, paths: &mut Vec<String>) {
    match written {
        Value::Object(members) => {
            for (key, member) in members {
                let path = format!("{path}.{key}");
                match known.get(key) {
                    Some(known) => lost(member, known, &path, paths),
                    None if is_empty(member) => {}
                    None => paths.push(path),
                }
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                lost(item, known.get(at).unwrap_or(&Value::Null), &format!("{path}[{at}]"), paths);
            }
        }
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.iter().all(is_empty),
        Value::Object(members) => members.values().all(is_empty),
        _ => false,
    }
}
