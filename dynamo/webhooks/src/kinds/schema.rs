//! Parts of schemas that no Rust type carries.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// An object whose members the API server keeps as they are. A field with this schema needs `#[serde(default)]`:
/// nothing else makes the field optional for the derive.
pub(super) fn open_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "nullable": true, "x-kubernetes-preserve-unknown-fields": true})
}

/// CEL rules of a spec whose fields stay as they were, set or not. The webhook says the same where the CRD in the
/// cluster has no such rules: those of Dynamo 0.7 and 0.8 have none, its guide promises them.
pub(super) fn immutable<const N: usize>(fields: [&str; N]) -> Value {
    let rule = |field: &str| {
        json!({
            "rule": format!("has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})"),
            "message": is_immutable(field),
            "fieldPath": format!(".{field}"),
        })
    };
    fields.map(rule).into_iter().collect()
}

/// The message for a user who changes this field of a spec.
pub(crate) fn is_immutable(field: &str) -> String {
    format!("spec.{field} is immutable and cannot be changed after creation")
}
