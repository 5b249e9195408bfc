//! Whether a chart renders what is generated.

use serde_json::{Map, Value, json};

/// That a chart renders these generated objects, and no others. It may differ from manifests on purpose: it says in words
/// what manifests leave to defaults, names images of its own version, leaves out what it does not generate, and gives
/// selectors as JSON.
///
/// # Panics
/// With the first object that differs.
pub fn assert_same(rendered: Vec<Value>, generated: Vec<Value>, about: &str) {
    let (rendered, generated) = (comparable(rendered), comparable(generated));
    let names = |objects: &[(String, Value)]| objects.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&rendered), names(&generated), "{about}");
    for ((name, rendered), (_, generated)) in rendered.iter().zip(&generated) {
        assert_eq!(rendered, generated, "{about}: {name}");
    }
}

/// Objects by kind, namespace and name, without what may differ.
fn comparable(objects: Vec<Value>) -> Vec<(String, Value)> {
    let named = |mut object: Value| {
        if let Some(container) = object.pointer_mut("/spec/template/spec/containers/0") {
            container["image"] = Value::Null;
            container["args"] = arguments(&container["args"]);
        }
        if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
            annotations.remove("helm.sh/resource-policy");
        }
        if let Some(metadata) = object["metadata"].as_object_mut() {
            let empty = |value: &Value| value.is_null() || value.as_object().is_some_and(Map::is_empty);
            metadata.retain(|name, value| !(["annotations", "labels"].contains(&name.as_str()) && empty(value)));
        }
        let word = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        (["/kind", "/metadata/namespace", "/metadata/name"].map(word).join(" "), object)
    };
    let mut objects: Vec<_> = objects.into_iter().map(named).collect();
    objects.sort_by(|(a, _), (b, _)| a.cmp(b));
    objects
}

fn arguments(arguments: &Value) -> Value {
    let (selector, kubectl) = (json!({ "matchLabels": { "team": "a" } }).to_string(), "team=a");
    let said = ["--release=", "--cluster-domain=", "--runner-image="];
    let arguments = arguments.as_array().into_iter().flatten().filter_map(Value::as_str);
    let arguments = arguments.map(|argument| argument.replace(&selector, kubectl));
    arguments.filter(|argument| !said.iter().any(|flag| argument.starts_with(flag))).collect()
}
