//! Walks `managedFields` (format `FieldsV1`): which paths of a document does an entry hold?
//!
//! A node of the tree is an object whose keys are `f:NAME` (a field), `k:{…}` (the element of a list whose keys have
//! these values), `v:…` (the element of a set), `i:N` (the element at an index) and `.` (the node itself). A node
//! without keys is a leaf: a scalar, an empty object, or an atomic list or object, which is held as a whole. The API
//! server completes list keys with their defaults: a container port sent without `protocol` is recorded under
//! `k:{"containerPort":8080,"protocol":"TCP"}`.

use serde_json::{Map, Value};

/// The first path of `desired` that `held` (the `fieldsV1` of one manager's entry) does not hold; `None` when it holds
/// all of them. `apiVersion`, `kind`, `metadata.name` and `metadata.namespace` address a document and are never held.
pub fn first_missing(held: &Value, desired: &Value) -> Option<String> {
    let members = desired.as_object()?;
    members.iter().find_map(|(key, member)| match key.as_str() {
        "apiVersion" | "kind" => None,
        "metadata" => {
            let node = child(held, "metadata");
            member.as_object()?.iter().find_map(|(key, member)| match key.as_str() {
                "name" | "namespace" => None,
                _ => missing_member(node, key, member, "metadata"),
            })
        }
        _ => missing_member(Some(held), key, member, ""),
    })
}

/// The first path that `held` holds and `desired` does not state: something of ours that has to go.
pub fn first_excess(held: &Value, desired: &Value) -> Option<String> {
    excess(held, desired, "")
}

fn child<'a>(node: &'a Value, name: &str) -> Option<&'a Value> {
    node.as_object()?.get(&format!("f:{name}"))
}

fn is_leaf(node: &Value) -> bool {
    node.as_object().is_none_or(Map::is_empty)
}

fn missing_member(node: Option<&Value>, key: &str, desired: &Value, parent: &str) -> Option<String> {
    let path = join(parent, key);
    let held = node.and_then(|node| child(node, key));
    match (held, desired) {
        // An empty list is recorded when it is atomic and not when it is keyed, so its absence says nothing.
        (None, Value::Array(elements)) if elements.is_empty() => None,
        (None, _) => Some(path),
        (Some(held), desired) => missing_value(held, desired, &path),
    }
}

fn missing_value(held: &Value, desired: &Value, path: &str) -> Option<String> {
    if is_leaf(held) {
        return None;
    }
    match desired {
        Value::Object(members) => {
            members.iter().find_map(|(key, member)| missing_member(Some(held), key, member, path))
        }
        Value::Array(elements) => elements.iter().enumerate().find_map(|(index, element)| {
            let mut candidates = elements_matching(held, index, element).peekable();
            if candidates.peek().is_none() {
                return Some(format!("{path}[{index}]"));
            }
            // Two elements may differ in a key that we left to its default (8080/TCP, 8080/UDP): one that holds is enough.
            let mut first = None;
            for candidate in candidates {
                let missing = missing_value(candidate, element, &format!("{path}[{index}]"))?;
                first.get_or_insert(missing);
            }
            first
        }),
        _ => None,
    }
}

/// The nodes under `held` that can stand for `element` of a list.
fn elements_matching<'a>(held: &'a Value, index: usize, element: &'a Value) -> impl Iterator<Item = &'a Value> + 'a {
    held.as_object()
        .into_iter()
        .flatten()
        .filter(move |(key, _)| matches_key(key, index, element))
        .map(|(_, node)| node)
}

fn matches_key(key: &str, index: usize, element: &Value) -> bool {
    if let Some(keys) = key.strip_prefix("k:") {
        let (Ok(Value::Object(keys)), Some(members)) = (serde_json::from_str(keys), element.as_object()) else {
            return false;
        };
        // A key that the element does not state was completed by the server with its default.
        let stated = keys.keys().any(|name| members.contains_key(name));
        stated && keys.iter().all(|(name, value)| members.get(name).is_none_or(|member| member == value))
    } else if let Some(value) = key.strip_prefix("v:") {
        serde_json::from_str::<Value>(value).is_ok_and(|value| &value == element)
    } else if let Some(position) = key.strip_prefix("i:") {
        position.parse() == Ok(index)
    } else {
        false
    }
}

fn excess(held: &Value, desired: &Value, path: &str) -> Option<String> {
    held.as_object()?.iter().find_map(|(key, node)| {
        if let Some(name) = key.strip_prefix("f:") {
            let path = join(path, name);
            match desired.get(name) {
                None | Some(Value::Null) => Some(path),
                Some(member) => excess(node, member, &path),
            }
        } else if key == "." {
            None
        } else {
            let elements = desired.as_array().map(Vec::as_slice).unwrap_or_default();
            match elements.iter().enumerate().find(|(index, element)| matches_key(key, *index, element)) {
                None => Some(format!("{path}[{key}]")),
                Some((index, element)) => excess(node, element, &format!("{path}[{index}]")),
            }
        }
    })
}

fn join(parent: &str, key: &str) -> String {
    if parent.is_empty() { key.to_owned() } else { format!("{parent}.{key}") }
}

#[cfg(test)]
#[path = "fields_tests.rs"]
mod tests;
