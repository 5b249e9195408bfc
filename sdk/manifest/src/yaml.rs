//! Manifests as YAML, the same bytes every time.

use serde_json::Value;
use serde_saphyr::FlowSeq;

/// A value that cannot be written as YAML.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the manifest as YAML: {0}")]
pub struct YamlError(#[from] serde_saphyr::ser::Error);

/// Writes the objects as YAML documents. Null members are dropped; the others are sorted by name, after `apiVersion`,
/// `kind` and `metadata`.
pub fn to_yaml(objects: &[Value]) -> Result<String, YamlError> {
    let mut text = String::new();
    for (index, object) in objects.iter().enumerate() {
        if index > 0 {
            text.push_str("---\n");
        }
        text.push_str(&serde_saphyr::to_string(&Document(object))?);
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    Ok(text)
}

/// The members that are written, in the order in which they are.
fn in_order(object: &Value) -> impl Iterator<Item = (&str, &Value)> {
    const FIRST: [&str; 3] = ["apiVersion", "kind", "metadata"];
    let members = object.as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), value));
    let mut kept: Vec<_> = members.filter(|(_, value)| !value.is_null()).collect();
    let place = |name: &str| FIRST.iter().position(|first| *first == name).unwrap_or(FIRST.len());
    kept.sort_by(|(a, _), (b, _)| (place(a), a).cmp(&(place(b), b)));
    kept.into_iter()
}

/// Members of a rule of a role or a webhook. Each stands on one line, so that a role is read rule by rule.
const OF_RULES: [&str; 6] = ["apiGroups", "apiVersions", "operations", "resourceNames", "resources", "verbs"];

/// Serialises the members in the order of [`to_yaml`], without nulls.
struct Document<'a>(&'a Value);

/// Serialises a member of an object.
struct Member<'a>(&'a str, &'a Value);

impl serde::Serialize for Member<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.1 {
            Value::Array(items) if OF_RULES.contains(&self.0) && items.iter().all(Value::is_string) => {
                FlowSeq(items).serialize(serializer)
            }
            value => Document(value).serialize(serializer),
        }
    }
}

impl serde::Serialize for Document<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(_) => {
                serializer.collect_map(in_order(self.0).map(|(name, value)| (name, Member(name, value))))
            }
            Value::Array(items) => serializer.collect_seq(items.iter().map(Document)),
            scalar => scalar.serialize(serializer),
        }
    }
}
