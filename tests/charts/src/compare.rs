//! Whether a chart renders what is generated.

use serde_json::{Map, Value, json};

/// Panics with the first object that differs. Charts may differ from manifests on purpose: they say in words what
/// manifests leave to defaults, name images of their own version, give selectors as JSON, and have hooks.
pub fn assert_same(rendered: &[Value], generated: &[Value], about: &str) {
    let (rendered, generated) = (comparable(rendered), comparable(generated));
    let names = |objects: &[(String, Value)]| objects.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&rendered), names(&generated), "{about}");
    for ((name, rendered), (_, generated)) in rendered.iter().zip(&generated) {
        assert_eq!(rendered, generated, "{about}: {name}");
    }
}

/// Objects by kind, namespace and name, without what may differ.
fn comparable(objects: &[Value]) -> Vec<(String, Value)> {
    let named = |object: &Value| {
        let mut object = without_nothing(object);
        if let Some(container) = object.pointer_mut("/spec/template/spec/containers/0") {
            container["image"] = Value::Null;
            container["args"] = arguments(&container["args"]);
        }
        // The rules of a role have no order.
        if let Some(rules) = object.get_mut("rules").and_then(Value::as_array_mut) {
            rules.sort_by_key(Value::to_string);
        }
        // `generate` is given the bundle of an external certificate in a file.
        for webhook in object.get_mut("webhooks").and_then(Value::as_array_mut).into_iter().flatten() {
            webhook["clientConfig"].as_object_mut().and_then(|config| config.remove("caBundle"));
        }
        let word = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        (["/kind", "/metadata/namespace", "/metadata/name"].map(word).join(" "), object)
    };
    let of_helm = |object: &&Value| object.pointer("/metadata/annotations/helm.sh~1hook").is_none();
    let mut objects: Vec<_> = objects.iter().filter(of_helm).map(named).collect();
    objects.sort_by(|(a, _), (b, _)| a.cmp(b));
    objects
}

/// The value without nulls, empty objects and Helm's own annotations, and with whole numbers as integers.
fn without_nothing(value: &Value) -> Value {
    let means = |value: &Value| !value.is_null() && !value.as_object().is_some_and(Map::is_empty);
    match value {
        Value::Object(members) => {
            let members = members.iter().filter(|(name, _)| *name != "helm.sh/resource-policy");
            let members = members.map(|(name, value)| (name.clone(), without_nothing(value)));
            members.filter(|(_, value)| means(value)).collect()
        }
        Value::Array(items) => items.iter().map(without_nothing).collect(),
        Value::Number(number) => number.to_string().trim_end_matches(".0").parse().map_or(value.clone(), Value::Number),
        other => other.clone(),
    }
}

fn arguments(arguments: &Value) -> Value {
    let (selector, kubectl) = (json!({ "matchLabels": { "team": "a" } }).to_string(), "team=a");
    let said = ["--release=", "--cluster-domain=", "--runner-image="];
    let arguments = arguments.as_array().into_iter().flatten().filter_map(Value::as_str);
    let arguments = arguments.map(|argument| argument.replace(&selector, kubectl));
    arguments.filter(|argument| !said.iter().any(|flag| argument.starts_with(flag))).collect()
}
