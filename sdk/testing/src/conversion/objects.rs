//! Objects as a schema admits them, made by proptest: large ones at first, and the smallest that still shows a problem
//! in the end.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{JSONSchemaProps, JSONSchemaPropsOrBool};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

use super::scalars::{integer, number, string};
use super::schema::{ENVELOPE, alternatives, default, items};

/// Elements of a list and members of a map, where the schema does not say.
const FEW: usize = 3;
/// Below here nothing optional is made: schemas of whole pods are wide.
const DEEP: u32 = 6;

/// Whole objects of a version, with defaults put in as the API server does.
pub(super) fn object(
    api_version: &str,
    kind: &str,
    namespaced: bool,
    schema: &JSONSchemaProps,
) -> BoxedStrategy<Value> {
    let mut body = schema.clone();
    body.type_ = Some("object".to_owned());
    body.properties.get_or_insert_default().retain(|key, _| !ENVELOPE.contains(&key.as_str()));
    body.required.get_or_insert_default().retain(|key| !ENVELOPE.contains(&key.as_str()));
    let (api_version, kind) = (json!(api_version), json!(kind));
    let whole = (value(&body, 0), metadata(namespaced)).prop_map(move |(mut object, metadata)| {
        object["apiVersion"] = api_version.clone();
        object["kind"] = kind.clone();
        object["metadata"] = metadata;
        default(&body, &mut object);
        object
    });
    whole.boxed()
}

/// Generates metadata that the API server keeps for every object, and that a conversion must keep too.
fn metadata(namespaced: bool) -> impl Strategy<Value = Value> {
    let text = || string(&JSONSchemaProps::default());
    let parts = (
        prop::option::of(prop::collection::btree_map("[a-z]{1,5}", "[a-z0-9]{0,5}", 0..FEW)),
        prop::option::of(prop::collection::btree_map("[a-z]{1,5}(/[a-z]{1,5})?", text(), 0..FEW)),
        any::<(bool, bool, bool)>(),
    );
    parts.prop_map(move |(labels, annotations, (finalized, owned, managed))| {
        let mut metadata = json!({"name": "generated", "uid": "0b2b3c1e-9a0e-4a8e-8a51-3f6d3f1c9d11", "generation": 3,
            "resourceVersion": "71", "creationTimestamp": "2026-01-01T00:00:00Z"});
        let mut put = |key: &str, value: Option<Value>| value.map(|value| metadata[key] = value);
        put("namespace", namespaced.then(|| json!("default")));
        put("labels", labels.map(|labels| json!(labels)));
        put("annotations", annotations.map(|annotations| json!(annotations)));
        put("finalizers", finalized.then(|| json!(["demo.example/cleanup"])));
        put(
            "ownerReferences",
            owned.then(
                || json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "u", "controller": true}]),
            ),
        );
        put(
            "managedFields",
            managed.then(|| {
                json!([{"manager": "kubectl", "operation": "Apply", "fieldsType": "FieldsV1",
            "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {".": {}}}}])
            }),
        );
        metadata
    })
}

/// Values that the schema admits.
pub(super) fn value(schema: &JSONSchemaProps, depth: u32) -> BoxedStrategy<Value> {
    let value = if schema.x_kubernetes_int_or_string == Some(true) {
        // Its `anyOf` says the same once more.
        prop_oneof![(0..65536_i64).prop_map(Value::from), "[0-9]{1,2}%".prop_map(Value::from)].boxed()
    } else {
        let plain = alternatives(schema).into_iter().map(|plain| plain_value(&plain, depth)).collect::<Vec<_>>();
        proptest::strategy::Union::new(plain).boxed()
    };
    if schema.nullable == Some(true) {
        return prop_oneof![1 => Just(Value::Null), 7 => value].boxed();
    }
    value
}

fn plain_value(schema: &JSONSchemaProps, depth: u32) -> BoxedStrategy<Value> {
    if let Some(values) = schema.enum_.as_ref().filter(|values| !values.is_empty()) {
        return select(values.iter().map(|value| value.0.clone()).collect::<Vec<_>>()).boxed();
    }
    let free = schema.x_kubernetes_preserve_unknown_fields == Some(true);
    match schema.type_.as_deref() {
        Some("string") => string(schema).prop_map(Value::from).boxed(),
        Some("integer") => integer(schema).prop_map(Value::from).boxed(),
        Some("number") => number(schema).boxed(),
        Some("boolean") => any::<bool>().prop_map(Value::from).boxed(),
        Some("array") => list(schema, depth),
        Some("object") => map(schema, free, depth),
        _ if schema.properties.is_some() => map(schema, free, depth),
        _ => anything().boxed(),
    }
}

fn list(schema: &JSONSchemaProps, depth: u32) -> BoxedStrategy<Value> {
    let Some(element) = items(schema).map(|items| value(items, depth + 1)) else {
        return vec(anything(), 0..FEW).prop_map(Value::from).boxed();
    };
    let (least, most) = sizes(schema.min_items, schema.max_items, depth);
    let keys = schema.x_kubernetes_list_map_keys.clone().unwrap_or_default();
    let kind = schema.x_kubernetes_list_type.as_deref();
    let unique = schema.unique_items == Some(true) || matches!(kind, Some("set" | "map"));
    let elements = vec(element, least..=most).prop_map(move |mut elements| {
        if unique {
            let mut seen = Vec::new();
            elements.retain(|element| {
                let identity = match keys.as_slice() {
                    [] => element.clone(),
                    keys => keys.iter().map(|key| element[key].clone()).collect(),
                };
                let first = !seen.contains(&identity);
                seen.push(identity);
                first
            });
        }
        elements
    });
    elements
        .prop_filter("fewer elements than there must be", move |list| list.len() >= least)
        .prop_map(Value::from)
        .boxed()
}

fn map(schema: &JSONSchemaProps, free: bool, depth: u32) -> BoxedStrategy<Value> {
    let properties = schema.properties.clone().unwrap_or_default();
    let required = schema.required.clone().unwrap_or_default();
    let count = f64::from(u32::try_from(properties.len()).unwrap_or(u32::MAX)).max(1.0);
    // Wide and deep schemas would make objects of megabytes otherwise.
    let chance = (f64::from(12_u32.saturating_sub(2 * depth)) / count).min(0.7);
    let members: Vec<BoxedStrategy<Option<(String, Value)>>> = properties
        .iter()
        .filter(|(key, _)| depth < DEEP || required.contains(key))
        .map(|(key, member)| {
            let named = (Just(key.clone()), value(member, depth + 1));
            if required.contains(key) {
                named.prop_map(Some).boxed()
            } else {
                prop::option::weighted(chance, named).boxed()
            }
        })
        .collect();
    let (least, most) = sizes(schema.min_properties, schema.max_properties, depth);
    let others = match &schema.additional_properties {
        Some(JSONSchemaPropsOrBool::Schema(schema)) => {
            vec(("[a-z][a-z0-9.-]{0,5}", value(schema, depth + 1)), least..=most).boxed()
        }
        Some(JSONSchemaPropsOrBool::Bool(true)) => vec(("[a-z]{1,5}", anything()), least..=most).boxed(),
        // The prefix keeps it from being a member that is known in another version.
        _ if free => vec(("junk-[a-z]{1,3}", anything()), 0..FEW).boxed(),
        _ => Just(Vec::new()).boxed(),
    };
    let embedded = schema.x_kubernetes_embedded_resource == Some(true);
    (members, others)
        .prop_map(move |(members, others)| {
            let mut object: Map<String, Value> = others.into_iter().chain(members.into_iter().flatten()).collect();
            if embedded {
                let head = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "embedded"}});
                object.extend(head.as_object().cloned().unwrap_or_default());
            }
            Value::Object(object)
        })
        .boxed()
}

/// Any JSON, of the kind that people put where the schema does not look.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        (-5_i64..5).prop_map(Value::from),
        Just(json!(0.5)),
        Just(json!(9_007_199_254_740_993_i64)),
        string(&JSONSchemaProps::default()).prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 6, 2, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,3}", inner, 0..3).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

fn sizes(least: Option<i64>, most: Option<i64>, depth: u32) -> (usize, usize) {
    let size = |bound: i64| usize::try_from(bound).unwrap_or_default();
    let least = least.map_or(0, size);
    let few = if depth < DEEP { FEW } else { 0 };
    (least, most.map_or(usize::MAX, size).min(least + few).max(least))
}
