//! Manifests as YAML, the same bytes every time.

use serde_json::Value;

/// A document that YAML cannot hold.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the manifest as YAML: {0}")]
pub struct YamlError(#[from] serde_saphyr::ser::Error);

/// Writes the objects as YAML documents. Members that are null are dropped; those of an object are in the order of
/// their names, but for `apiVersion`, `kind` and `metadata`, which come first where people look for them.
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

/// Serialises the members in the order of the doc comment above, without nulls.
struct Document<'a>(&'a Value);

impl serde::Serialize for Document<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const FIRST: [&str; 3] = ["apiVersion", "kind", "metadata"];
        match self.0 {
            Value::Object(members) => {
                let mut kept: Vec<_> = members.iter().filter(|(_, value)| !value.is_null()).collect();
                let place = |name: &str| FIRST.iter().position(|first| *first == name).unwrap_or(FIRST.len());
                kept.sort_by(|(a, _), (b, _)| (place(a), *a).cmp(&(place(b), *b)));
                serializer.collect_map(kept.into_iter().map(|(name, value)| (name, Document(value))))
            }
            Value::Array(items) => serializer.collect_seq(items.iter().map(Document)),
            scalar => scalar.serialize(serializer),
        }
    }
}
