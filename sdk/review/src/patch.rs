//! JSON Patches (RFC 6902) made by comparing two documents.

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, RemoveOperation, ReplaceOperation};
use serde_json::{Map, Value};

/// A JSON Patch that was verified to turn the raw object into the edited one.
#[derive(Clone, Debug)]
pub struct Patch {
    operations: json_patch::Patch,
    json: Vec<u8>,
}

impl Patch {
    pub(crate) fn new(operations: json_patch::Patch) -> Result<Self, PatchError> {
        let json = serde_json::to_vec(&operations).map_err(PatchError::Write)?;
        Ok(Self { operations, json })
    }

    /// Returns the operations as a JSON array.
    pub fn as_json(&self) -> &[u8] {
        &self.json
    }

    /// Returns the operations.
    pub fn operations(&self) -> &[PatchOperation] {
        &self.operations.0
    }
}

/// A patch that must not be sent: the API server treats a bad patch as an internal error, whatever the failure policy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PatchError {
    /// A document is not JSON, or nested too deep.
    #[error("object is not valid JSON: {0}")]
    Object(#[source] serde_json::Error),
    /// The patch does not apply to the raw object.
    #[error("patch does not apply: {0}")]
    Apply(#[from] json_patch::PatchError),
    /// The patch applies, but its result is not the edited object.
    #[error("patch does not produce the edited object")]
    Mismatch,
    /// The object or the patch cannot be serialized.
    #[error("cannot serialize to JSON: {0}")]
    Write(#[source] serde_json::Error),
}

/// Returns the operations that turn `from` into `to`, always the same for the same two documents.
///
/// `replace` and `remove` name only paths that `from` has. A member that is `null` is changed with `add`, since the API
/// server's library treats a null member as absent when it replaces it.
pub fn diff(from: &Value, to: &Value) -> json_patch::Patch {
    let mut operations = Vec::new();
    walk(from, to, &mut PointerBuf::new(), &mut operations);
    json_patch::Patch(operations)
}

fn walk(from: &Value, to: &Value, path: &mut PointerBuf, out: &mut Vec<PatchOperation>) {
    match (from, to) {
        (Value::Object(from), Value::Object(to)) => walk_object(from, to, path, out),
        (Value::Array(from), Value::Array(to)) => walk_array(from, to, path, out),
        _ if from == to => {}
        (Value::Null, _) if !path.is_root() => out.push(add(path, to)),
        _ => out.push(replace(path, to)),
    }
}

fn walk_object(
    from: &Map<String, Value>,
    to: &Map<String, Value>,
    path: &mut PointerBuf,
    out: &mut Vec<PatchOperation>,
) {
    for (key, value) in to {
        path.push_back(key);
        match from.get(key) {
            Some(old) => walk(old, value, path, out),
            None => out.push(add(path, value)),
        }
        path.pop_back();
    }
    for key in from.keys().filter(|key| !to.contains_key(*key)) {
        path.push_back(key);
        out.push(PatchOperation::Remove(RemoveOperation { path: path.clone() }));
        path.pop_back();
    }
}

/// Compares arrays without their common head and tail, so that an element inserted at the front is one operation.
fn walk_array(from: &[Value], to: &[Value], path: &mut PointerBuf, out: &mut Vec<PatchOperation>) {
    let head = from.iter().zip(to).take_while(|(a, b)| a == b).count();
    let tail = from[head..].iter().rev().zip(to[head..].iter().rev()).take_while(|(a, b)| a == b).count();
    let (old, new) = (&from[head..from.len() - tail], &to[head..to.len() - tail]);
    let both = old.len().min(new.len());
    if old[..both].iter().zip(new).any(|(a, b)| a.is_null() && a != b) {
        // A null element can neither be replaced nor added over.
        out.push(replace(path, &Value::Array(to.to_vec())));
        return;
    }
    for (index, (a, b)) in old.iter().zip(new).enumerate() {
        path.push_back(head + index);
        walk(a, b, path, out);
        path.pop_back();
    }
    path.push_back(head + both);
    for _ in both..old.len() {
        out.push(PatchOperation::Remove(RemoveOperation { path: path.clone() }));
    }
    path.pop_back();
    for (index, value) in new.iter().enumerate().skip(both) {
        path.push_back(head + index);
        out.push(add(path, value));
        path.pop_back();
    }
}

fn add(path: &PointerBuf, value: &Value) -> PatchOperation {
    PatchOperation::Add(AddOperation { path: path.clone(), value: value.clone() })
}

fn replace(path: &PointerBuf, value: &Value) -> PatchOperation {
    PatchOperation::Replace(ReplaceOperation { path: path.clone(), value: value.clone() })
}
