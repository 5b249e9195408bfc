//! Schemas of a CustomResourceDefinition, as far as they say which members a version has.

use serde_json::Value;

/// Removes members that the schema does not have, and values of another type than it asks for. The API server prunes the former of a
/// whole object itself; a converted part of one, which belongs to a single field manager, it refuses with them.
pub(crate) fn prune(value: &mut Value, schema: &Value) {
    let keeps = |value: &mut Value, schema: &Value| {
        let fits = fits(value, schema);
        if fits {
            prune(value, schema);
        }
        fits
    };
    match value {
        Value::Object(members) => {
            let open = &schema["additionalProperties"];
            let keeps_unknown = schema["x-kubernetes-preserve-unknown-fields"] == true || *open == true;
            let is_resource = schema["x-kubernetes-embedded-resource"] == true;
            members.retain(|key, value| match schema["properties"].get(key) {
                Some(schema) => keeps(value, schema),
                None if open.is_object() => keeps(value, open),
                None => keeps_unknown || is_resource && matches!(&**key, "apiVersion" | "kind" | "metadata"),
            });
        }
        Value::Array(elements) => elements.retain_mut(|element| keeps(element, &schema["items"])),
        _ => {}
    }
}

fn fits(value: &Value, schema: &Value) -> bool {
    if value.is_null() {
        return true;
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return value.is_string() || value.is_number();
    }
    match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer" | "number") => value.is_number(),
        _ => true,
    }
}
