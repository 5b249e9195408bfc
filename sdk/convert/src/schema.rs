//! Schemas of a CustomResourceDefinition, as far as they say which members a version has.

use serde_json::Value;

/// Removes members that the schema `to` does not have: the API server prunes them of a whole object itself, and refuses a converted part of one
/// with them. Removes values of another type than it asks for, too, but for those that are wrong by the schema `from` already: somebody has to
/// see them to put them right.
pub(crate) fn prune(value: &mut Value, to: &Value, from: &Value) {
    let keeps = |value: &mut Value, to: &Value, from: &Value| {
        let fits = fits(value, to);
        if fits {
            prune(value, to, from);
        }
        fits || !self::fits(value, from)
    };
    match value {
        Value::Object(members) => {
            let open = &to["additionalProperties"];
            let keeps_unknown = to["x-kubernetes-preserve-unknown-fields"] == true || *open == true;
            let is_resource = to["x-kubernetes-embedded-resource"] == true;
            members.retain(|key, value| {
                let from = from["properties"].get(key).unwrap_or(&from["additionalProperties"]);
                match to["properties"].get(key) {
                    Some(to) => keeps(value, to, from),
                    None if open.is_object() => keeps(value, open, from),
                    None => keeps_unknown || is_resource && matches!(&**key, "apiVersion" | "kind" | "metadata"),
                }
            });
        }
        Value::Array(elements) => elements.retain_mut(|element| keeps(element, &to["items"], &from["items"])),
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
