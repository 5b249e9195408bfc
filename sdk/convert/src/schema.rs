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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_members_that_the_schema_has_stay() {
        let text = json!({ "type": "string" });
        let object = |properties: Value| json!({ "type": "object", "properties": properties });
        let free =
            json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": { "a": text } });
        let resource = json!({ "type": "object", "x-kubernetes-embedded-resource": true, "properties": {} });
        for (schema, value, kept) in [
            (object(json!({ "a": text })), json!({ "a": "x", "b": "y" }), json!({ "a": "x" })),
            (object(json!({ "a": text })), json!({ "a": 5 }), json!({})),
            (object(json!({ "a": text })), json!({ "a": null }), json!({ "a": null })),
            (object(json!({ "a": object(json!({})) })), json!({ "a": { "b": 1 } }), json!({ "a": {} })),
            (
                json!({ "type": "object", "additionalProperties": text }),
                json!({ "a": "x", "b": 1 }),
                json!({ "a": "x" }),
            ),
            (json!({ "type": "object", "additionalProperties": true }), json!({ "b": 1 }), json!({ "b": 1 })),
            (free, json!({ "a": 1, "b": { "c": 1 } }), json!({ "b": { "c": 1 } })),
            (resource, json!({ "kind": "K", "metadata": {}, "b": 1 }), json!({ "kind": "K", "metadata": {} })),
            (
                json!({ "type": "array", "items": object(json!({ "a": text })) }),
                json!([{ "a": "x", "b": 1 }, "z"]),
                json!([{ "a": "x" }]),
            ),
            (json!({ "x-kubernetes-int-or-string": true }), json!(5), json!(5)),
            (json!({ "type": "integer" }), json!(5), json!(5)),
        ] {
            let mut pruned = value;
            prune(&mut pruned, &schema);
            assert_eq!(pruned, kept, "{schema}");
        }
    }
}
