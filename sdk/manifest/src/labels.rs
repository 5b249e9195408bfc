//! The labels that Kubernetes recommends (`app.kubernetes.io/…`).

use serde_json::{Map, Value, json};

/// The recommended labels of the objects of one installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labels {
    /// `app.kubernetes.io/name` and `part-of`: the operator's own name, the same in every installation.
    pub operator: String,
    /// `app.kubernetes.io/instance`: the name of the installation.
    pub release: String,
    /// `app.kubernetes.io/version`, where it is known and a valid label value.
    pub version: Option<String>,
}

impl Labels {
    /// The labels that select the Pods. They never change, because a Deployment's selector cannot.
    pub fn selector(&self) -> Value {
        json!({ "app.kubernetes.io/name": self.operator, "app.kubernetes.io/instance": self.release })
    }

    /// All labels, for objects of this `component` of the operator.
    pub fn all(&self, component: &str) -> Map<String, Value> {
        let mut labels = Map::new();
        let mut put = |name: &str, value: &str| labels.insert(format!("app.kubernetes.io/{name}"), json!(value));
        put("name", &self.operator);
        put("instance", &self.release);
        put("part-of", &self.operator);
        put("component", component);
        if let Some(version) = self.version.as_deref().filter(|version| is_value(version)) {
            put("version", version);
        }
        labels
    }

    /// Adds all labels to an object. Labels that it already has are kept.
    pub fn add_to(&self, object: &mut Value, component: &str) {
        let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
        let labels = metadata.entry("labels").or_insert_with(|| json!({}));
        if let Some(labels) = labels.as_object_mut() {
            for (name, value) in self.all(component) {
                labels.entry(name).or_insert(value);
            }
        }
    }
}

/// Whether it can be the value of a label: at most 63 letters, digits, `-`, `_` and `.`, with a letter or digit at both
/// ends. A version with build metadata (`1.2.3+abc`) cannot.
fn is_value(text: &str) -> bool {
    let end = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    text.len() <= 63
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && end(text.bytes().next())
        && end(text.bytes().last())
}
