//! Applies a version's schema as the API server does: adds defaults and drops unknown fields. Also returns the
//! schema's alternatives apart.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use serde_json::{Map, Value};

/// Members of every object that are the API server's own business.
pub(super) const ENVELOPE: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Puts in the defaults for what is absent, and for a null where null may not be.
pub(super) fn default(schema: &JSONSchemaProps, value: &mut Value) {
    match value {
        Value::Object(object) => {
            for (key, member) in schema.properties.iter().flatten() {
                let open = object.get(key).is_none_or(|value| value.is_null() && member.nullable != Some(true));
                if let Some(default) = member.default.as_ref().filter(|_| open) {
                    object.insert(key.clone(), default.0.clone());
                }
            }
            for (key, value) in object {
                if let Some(member) = member(schema, key) {
                    default(member, value);
                }
            }
        }
        Value::Array(elements) => {
            for element in elements {
                if let Some(items) = items(schema) {
                    default(items, element);
                }
            }
        }
        _ => {}
    }
}

/// Drops the members that the schema does not know.
pub(super) fn prune(schema: &JSONSchemaProps, value: &mut Value) {
    prune_below(schema, value, true);
}

fn prune_below(schema: &JSONSchemaProps, value: &mut Value, embedded: bool) {
    let keeps_unknown = schema.x_kubernetes_preserve_unknown_fields == Some(true);
    match value {
        Value::Object(object) => object.retain(|key, value| {
            if embedded && ENVELOPE.contains(&key.as_str()) {
                return true;
            }
            match member(schema, key) {
                Some(member) => {
                    prune_below(member, value, member.x_kubernetes_embedded_resource == Some(true));
                    true
                }
                None => keeps_unknown,
            }
        }),
        Value::Array(elements) => {
            for element in elements {
                if let Some(items) = items(schema) {
                    prune_below(items, element, items.x_kubernetes_embedded_resource == Some(true));
                }
            }
        }
        _ => {}
    }
}

/// The schema of a member.
pub(super) fn member<'s>(schema: &'s JSONSchemaProps, key: &str) -> Option<&'s JSONSchemaProps> {
    let named = schema.properties.as_ref().and_then(|properties| properties.get(key));
    named.or(match &schema.additional_properties {
        Some(JSONSchemaPropsOrBool::Schema(schema)) => Some(schema),
        _ => None,
    })
}

/// The schema of a list's elements.
pub(super) fn items(schema: &JSONSchemaProps) -> Option<&JSONSchemaProps> {
    match schema.items.as_ref()? {
        JSONSchemaPropsOrArray::Schema(schema) => Some(schema),
        JSONSchemaPropsOrArray::Schemas(schemas) => schemas.first(),
    }
}

/// Whether the members of such an object depend on each other.
pub(super) fn has_alternatives(schema: &JSONSchemaProps) -> bool {
    let some = |list: &Option<Vec<JSONSchemaProps>>| list.as_ref().is_some_and(|list| !list.is_empty());
    some(&schema.one_of) || some(&schema.any_of) || some(&schema.all_of) || schema.not.is_some()
}

/// The schema as plain ones, without `oneOf`, `anyOf`, `allOf` and `not`: a value of any of them is a value of it, as
/// far as the usual ways to write a choice go (one member of several, one value of a tag).
pub(super) fn alternatives(schema: &JSONSchemaProps) -> Vec<JSONSchemaProps> {
    let mut plain = schema.clone();
    let all = plain.all_of.take().unwrap_or_default();
    let (one, any) = (plain.one_of.take().unwrap_or_default(), plain.any_of.take().unwrap_or_default());
    if let Some(not) = plain.not.take() {
        without(&mut plain, not.required.iter().flatten());
    }
    for part in &all {
        merge(&mut plain, part);
    }
    if has_alternatives(&plain) {
        return alternatives(&plain);
    }
    let branches = |of: JSONSchemaProps, branches: &[JSONSchemaProps], only_one: bool| -> Vec<JSONSchemaProps> {
        if branches.is_empty() {
            return vec![of];
        }
        let chosen = branches.iter().enumerate().map(|(index, branch)| {
            let mut chosen = of.clone();
            let others = branches.iter().enumerate().filter(|(other, _)| only_one && *other != index);
            let foreign = others.flat_map(|(_, other)| other.required.iter().flatten());
            let own = |key: &&String| !branch.required.iter().flatten().any(|own| own == *key);
            without(&mut chosen, foreign.filter(own));
            merge(&mut chosen, branch);
            chosen
        });
        chosen.flat_map(|chosen| if has_alternatives(&chosen) { alternatives(&chosen) } else { vec![chosen] }).collect()
    };
    branches(plain, &one, true).into_iter().flat_map(|chosen| branches(chosen, &any, false)).collect()
}

fn without<'k>(schema: &mut JSONSchemaProps, keys: impl Iterator<Item = &'k String>) {
    for key in keys {
        schema.properties.as_mut().map(|properties| properties.remove(key));
    }
}

/// Adds what a part of a choice says to the schema around it.
fn merge(into: &mut JSONSchemaProps, part: &JSONSchemaProps) {
    macro_rules! take {
        ($($field:ident),+) => { $(if part.$field.is_some() { into.$field.clone_from(&part.$field); })+ };
    }
    take!(type_, format, enum_, pattern, nullable, items, additional_properties, one_of, any_of, all_of, not);
    take!(minimum, maximum, exclusive_minimum, exclusive_maximum, multiple_of, min_length, max_length);
    take!(min_items, max_items, unique_items, min_properties, max_properties);
    for key in part.required.iter().flatten() {
        let required = into.required.get_or_insert_default();
        if !required.contains(key) {
            required.push(key.clone());
        }
    }
    for (key, part) in part.properties.iter().flatten() {
        merge(into.properties.get_or_insert_default().entry(key.clone()).or_default(), part);
    }
}

/// The value as far as it counts: absent, null and empty are the same (as in most of Kubernetes' API, where they are
/// left out when written), and so are a whole number and the same number with a fraction of nothing, and a number and
/// its digits where the schema takes both (types of quantities write one as the other).
pub(super) fn normal(schema: Option<&JSONSchemaProps>, value: &Value) -> Value {
    match value {
        Value::Object(object) => {
            let below = |key: &String| schema.and_then(|schema| member(schema, key));
            let members = object.iter().map(|(key, value)| (key.clone(), normal(below(key), value)));
            Value::Object(members.filter(|(_, value)| !is_nothing(value)).collect::<Map<_, _>>())
        }
        Value::Array(elements) => elements.iter().map(|element| normal(schema.and_then(items), element)).collect(),
        Value::Number(number) if schema.is_some_and(|schema| schema.x_kubernetes_int_or_string == Some(true)) => {
            Value::String(number.to_string())
        }
        // Up to here every whole number is the same in both ways of writing it.
        Value::Number(number) => match number.as_f64() {
            #[allow(clippy::cast_possible_truncation, reason = "it is whole and small")]
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 9e15 => Value::from(float as i64),
            _ => value.clone(),
        },
        _ => value.clone(),
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(object) => object.is_empty(),
        Value::Array(elements) => elements.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema(value: Value) -> JSONSchemaProps {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn defaults_go_in_and_unknown_members_out_as_in_the_api_server() {
        let schema = schema(json!({"type": "object", "properties": {
            "spec": {"type": "object", "default": {}, "properties": {
                "size": {"type": "integer", "default": 1},
                "maybe": {"type": "string", "nullable": true, "default": "x"},
                "parts": {"type": "array", "items": {"type": "object", "properties": {"kind": {"type": "string", "default": "a"}}}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    "properties": {"known": {"type": "object", "properties": {}}}},
                "template": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {}},
                "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {}}},
            }},
        }}));
        let mut object = json!({});
        default(&schema, &mut object);
        assert_eq!(object, json!({"spec": {"size": 1, "maybe": "x"}}));

        let mut object = json!({"apiVersion": "a/v1", "kind": "A", "metadata": {"odd": 1}, "odd": 1, "spec": {
            "size": null, "maybe": null, "odd": 1, "kind": "odd", "parts": [{"odd": 1}],
            "free": {"odd": {"odd": 1}, "known": {"odd": 1}},
            "template": {"apiVersion": "v1", "kind": "B", "metadata": {"name": "b"}, "odd": 1}, "map": {"a": {"odd": 1}},
        }});
        default(&schema, &mut object);
        prune(&schema, &mut object);
        assert_eq!(
            object,
            json!({"apiVersion": "a/v1", "kind": "A", "metadata": {"odd": 1}, "spec": {
                "size": 1, "maybe": null, "parts": [{"kind": "a"}],
                "free": {"odd": {"odd": 1}, "known": {}},
                "template": {"apiVersion": "v1", "kind": "B", "metadata": {"name": "b"}}, "map": {"a": {}},
            }})
        );
    }

    #[test]
    fn a_choice_becomes_one_plain_schema_for_each_way_to_take_it() {
        let keys = |schema: &JSONSchemaProps| -> Vec<String> {
            schema.properties.iter().flatten().map(|(key, _)| key.clone()).collect()
        };
        let one = schema(
            json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}, "c": {"type": "string"}},
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
        );
        let plain = alternatives(&one);
        assert_eq!(plain.iter().map(keys).collect::<Vec<_>>(), [["a", "c"], ["b", "c"]]);
        assert_eq!(plain[1].required, Some(vec!["b".to_owned()]));

        let tagged = schema(
            json!({"type": "object", "properties": {"kind": {"type": "string"}, "n": {"type": "integer"}},
            "anyOf": [{"properties": {"kind": {"enum": ["x"]}}}, {"properties": {"kind": {"enum": ["y"]}, "n": {"minimum": 3}}}]}),
        );
        let plain = alternatives(&tagged);
        assert_eq!(plain[0].properties.as_ref().unwrap()["kind"].enum_.as_ref().unwrap()[0].0, "x");
        assert_eq!(plain[1].properties.as_ref().unwrap()["n"].minimum, Some(3.0));
        assert_eq!(plain[1].properties.as_ref().unwrap()["n"].type_.as_deref(), Some("integer"));

        let all =
            schema(json!({"type": "string", "allOf": [{"minLength": 1}, {"maxLength": 2}], "not": {"enum": ["a"]}}));
        assert_eq!((alternatives(&all)[0].min_length, alternatives(&all)[0].max_length), (Some(1), Some(2)));
    }

    #[test]
    fn absent_null_and_empty_count_the_same_and_other_things_do_not() {
        for same in [json!({}), json!({"a": null}), json!({"a": []}), json!({"a": {"b": {}}})] {
            assert_eq!(normal(None, &same), json!({}));
        }
        assert_eq!(normal(None, &json!({"a": 2.0})), normal(None, &json!({"a": 2})));
        let either = schema(json!({"properties": {"a": {"x-kubernetes-int-or-string": true}}}));
        assert_eq!(normal(Some(&either), &json!({"a": 2})), json!({"a": "2"}));
        for other in [json!({"a": ""}), json!({"a": 0}), json!({"a": false}), json!({"a": [null]}), json!({"a": 1e300})]
        {
            assert_eq!(normal(None, &other), other);
        }
    }
}
