//! W15: what the API server keeps of an object is what the operator reads.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};

use super::{Said, View, fail};

/// The most fields that a finding names.
const NAMED: usize = 5;

/// W15
pub(super) fn fields(view: &View<'_>) -> Said {
    let View { subject, snapshot, .. } = *view;
    let mut notes = Vec::new();
    for kind in &subject.kinds {
        let Some(look) = snapshot.crds.get(&kind.crd) else { continue };
        // W2 tells of one that is not there.
        let Some(crd) = look.known()? else { continue };
        for (version, wanted) in &kind.schemas {
            let found = crd.spec.versions.iter().find(|found| found.name == *version && found.served);
            let Some(found) = found else {
                notes.push(fail(format!("the CRD {} does not serve {version}", kind.crd), subject.apply("crds")));
                continue;
            };
            let mut lacks = Vec::new();
            match found.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref()) {
                Some(found) => missing(wanted, found, "", &mut lacks),
                None => continue,
            }
            if lacks.is_empty() {
                continue;
            }
            let more = lacks.len().saturating_sub(NAMED);
            lacks.truncate(NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let message = format!(
                "the CRD {} does not have {}{more} in {version}: the API server drops what is written there",
                kind.crd,
                lacks.join(", ")
            );
            notes.push(fail(message, subject.apply("crds")));
        }
    }
    Ok(notes)
}

/// The paths of fields that `wanted` has and the API server would drop under `found`.
fn missing(wanted: &JSONSchemaProps, found: &JSONSchemaProps, path: &str, lacks: &mut Vec<String>) {
    if found.x_kubernetes_preserve_unknown_fields == Some(true) {
        return;
    }
    for (name, wanted) in wanted.properties.iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let map = match &found.additional_properties {
            Some(JSONSchemaPropsOrBool::Schema(values)) => Some(&**values),
            _ => None,
        };
        match found.properties.as_ref().and_then(|found| found.get(name)).or(map) {
            Some(found) => missing(wanted, found, &path, lacks),
            None => lacks.push(path),
        }
    }
    if let (Some(JSONSchemaPropsOrArray::Schema(wanted)), Some(JSONSchemaPropsOrArray::Schema(found))) =
        (&wanted.items, &found.items)
    {
        missing(wanted, found, &format!("{path}[]"), lacks);
    }
    if let (Some(JSONSchemaPropsOrBool::Schema(wanted)), Some(JSONSchemaPropsOrBool::Schema(found))) =
        (&wanted.additional_properties, &found.additional_properties)
    {
        missing(wanted, found, &format!("{path}[*]"), lacks);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_field_that_would_be_dropped_is_missing() {
        let text = || json!({ "type": "string" });
        let object = |properties: Value| json!({ "type": "object", "properties": properties });
        let list = |items: Value| json!({ "type": "array", "items": items });
        let map = |values: Value| json!({ "type": "object", "additionalProperties": values });
        let free = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        for (wanted, found, expected) in [
            (object(json!({ "a": text() })), object(json!({ "a": text(), "b": text() })), vec![]),
            (object(json!({ "a": text(), "b": text() })), object(json!({ "a": text() })), vec!["b"]),
            (
                object(json!({ "a": object(json!({ "b": text() })) })),
                object(json!({ "a": object(json!({})) })),
                vec!["a.b"],
            ),
            (object(json!({ "a": object(json!({ "b": text() })) })), object(json!({ "a": free })), vec![]),
            (
                object(json!({ "a": list(object(json!({ "b": text() }))) })),
                object(json!({ "a": list(object(json!({}))) })),
                vec!["a[].b"],
            ),
            (
                object(json!({ "a": map(object(json!({ "b": text() }))) })),
                object(json!({ "a": map(object(json!({}))) })),
                vec!["a[*].b"],
            ),
            (object(json!({ "a": object(json!({ "b": text() })) })), object(json!({ "a": map(text()) })), vec![]),
        ] {
            let [wanted, found] =
                [wanted, found].map(|schema| serde_json::from_value::<JSONSchemaProps>(schema).unwrap());
            let mut lacks = Vec::new();
            missing(&wanted, &found, "", &mut lacks);
            assert_eq!(lacks, expected);
        }
    }
}
