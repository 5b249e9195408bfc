//! Edits of an object: what a user changes in one version while the object is on its way.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use serde_json::Value;

use super::schema::{ENVELOPE, has_alternatives, member, normal};
use crate::difference::escaped;

/// One member that gets another value, or goes.
#[derive(Clone, Debug)]
pub(super) struct Edit {
    path: Vec<String>,
    value: Option<Value>,
}

/// The edits that lead from an object to a donor of the same schema, each of them alone a valid one: members that
/// differ, as deep as members do not depend on each other. Lists are changed whole.
pub(super) fn edits(schema: &JSONSchemaProps, object: &Value, donor: &Value) -> Vec<Edit> {
    let mut edits = Vec::new();
    walk(Some(schema), object, donor, &mut Vec::new(), &mut edits);
    edits
}

fn walk(
    schema: Option<&JSONSchemaProps>,
    object: &Value,
    donor: &Value,
    path: &mut Vec<String>,
    edits: &mut Vec<Edit>,
) {
    let (Some(here), Some(there)) = (object.as_object(), donor.as_object()) else { return };
    let keys = here.keys().chain(there.keys().filter(|key| !here.contains_key(*key)));
    let top = path.is_empty();
    for key in keys.filter(|key| !top || !ENVELOPE.contains(&key.as_str())) {
        let (old, new) = (here.get(key), there.get(key));
        let below = schema.and_then(|schema| member(schema, key));
        if normal(below, old.unwrap_or(&Value::Null)) == normal(below, new.unwrap_or(&Value::Null)) {
            continue;
        }
        path.push(key.clone());
        match (old, new) {
            (Some(old @ Value::Object(_)), Some(new @ Value::Object(_))) if !below.is_some_and(has_alternatives) => {
                walk(below, old, new, path, edits);
            }
            _ => edits.push(Edit { path: path.clone(), value: new.cloned() }),
        }
        path.pop();
    }
}

impl Edit {
    /// The path of the member that goes, if one goes.
    pub(super) fn removed(&self) -> Option<&[String]> {
        self.value.is_none().then_some(&self.path)
    }

    /// Does it.
    pub(super) fn apply(&self, object: &mut Value) {
        let Some((last, parents)) = self.path.split_last() else { return };
        let parent = parents.iter().try_fold(object, |value, key| value.get_mut(key));
        let Some(parent) = parent.and_then(Value::as_object_mut) else { return };
        match &self.value {
            Some(value) => _ = parent.insert(last.clone(), value.clone()),
            None => _ = parent.remove(last),
        }
    }
}

impl std::fmt::Display for Edit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for key in &self.path {
            write!(f, "/{}", escaped(key))?;
        }
        match &self.value {
            Some(value) => write!(f, " = {value}"),
            None => f.write_str(" removed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn edits_are_single_members_and_whole_choices() {
        let schema: JSONSchemaProps = serde_json::from_value(json!({"properties": {"spec": {"properties": {
            "a": {"type": "string"}, "list": {"type": "array"},
            "choice": {"type": "object", "oneOf": [{"required": ["x"]}, {"required": ["y"]}]},
            "map": {"type": "object"},
        }}}}))
        .unwrap();
        let object = json!({"kind": "A", "spec": {"a": "1", "choice": {"x": 1}, "list": [1], "map": {"k": 1}}});
        let donor = json!({"kind": "B", "spec": {"list": [1, 2], "choice": {"y": 1}, "map": {"k": 1, "l": 2}}});
        let edits = edits(&schema, &object, &donor);
        let told: Vec<String> = edits.iter().map(Edit::to_string).collect();
        assert_eq!(told, ["/spec/a removed", r#"/spec/choice = {"y":1}"#, "/spec/list = [1,2]", "/spec/map/l = 2"]);
        let mut edited = object;
        for edit in &edits {
            edit.apply(&mut edited);
        }
        assert_eq!(edited["spec"], donor["spec"]);
    }
}
