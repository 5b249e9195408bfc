//! Walks `managedFields` (format `FieldsV1`): which paths of a document does an entry hold?
//!
//! A node of the tree is an object whose keys are `f:NAME` (a field), `k:{…}` (the element of a list whose keys have
//! these values), `v:…` (the element of a set), `i:N` (the element at an index) and `.` (the node itself). A node
//! without keys is a leaf: a scalar, an empty object, or an atomic list or object, which is held as a whole. The API
//! server completes list keys with their defaults: a container port sent without `protocol` is recorded under
//! `k:{"containerPort":8080,"protocol":"TCP"}`.

use std::collections::{BTreeSet, HashMap};

use serde_json::{Map, Value};

/// The first path of `desired` that `held` (the `fieldsV1` of one manager's entry) does not hold; `None` when it holds
/// all of them. `apiVersion`, `kind`, `metadata.name` and `metadata.namespace` address a document and are never held.
pub(super) fn first_missing(held: &Value, desired: &Value) -> Option<String> {
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

/// The first path that `held` holds and `desired` does not state: a field of ours that has to be removed.
pub(super) fn first_excess(held: &Value, desired: &Value) -> Option<String> {
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
        Value::Array(elements) => {
            let list = HeldList::of(held);
            elements.iter().enumerate().find_map(|(index, element)| {
                let mut candidates = list.matching(index, element).peekable();
                if candidates.peek().is_none() {
                    return Some(format!("{path}[{index}]"));
                }
                // Two elements may differ in a key that we left to its default (8080/TCP, 8080/UDP): one that holds is
                // enough.
                let mut first = None;
                for candidate in candidates {
                    let missing = missing_value(candidate, element, &format!("{path}[{index}]"))?;
                    first.get_or_insert(missing);
                }
                first
            })
        }
        _ => None,
    }
}

/// The elements of a list that an entry holds, indexed by their keys: a server's author decides how many there are, and
/// comparing each with each would let one list of thousands hold up every other server.
struct HeldList<'a> {
    keyed: Vec<(Map<String, Value>, &'a Value)>,
    /// Places in `keyed`, by the name and value of one key.
    places: HashMap<(String, String), Vec<usize>>,
    /// Elements of sets, by their value.
    values: HashMap<String, &'a Value>,
    /// Elements of indexed lists.
    indexed: HashMap<usize, &'a Value>,
}

impl<'a> HeldList<'a> {
    fn of(held: &'a Value) -> Self {
        let mut list =
            Self { keyed: Vec::new(), places: HashMap::new(), values: HashMap::new(), indexed: HashMap::new() };
        for (key, node) in held.as_object().into_iter().flatten() {
            match Element::read(key) {
                Some(Element::Keys(keys)) => {
                    for (name, value) in &keys {
                        let places = list.places.entry((name.clone(), value.to_string())).or_default();
                        places.push(list.keyed.len());
                    }
                    list.keyed.push((keys, node));
                }
                Some(Element::Value(value)) => _ = list.values.insert(value, node),
                Some(Element::Index(index)) => _ = list.indexed.insert(index, node),
                None => {}
            }
        }
        list
    }

    /// The nodes that can stand for `element`, which is at `index` of its list.
    fn matching(&self, index: usize, element: &Value) -> impl Iterator<Item = &'a Value> {
        let value = if self.values.is_empty() { None } else { self.values.get(&element.to_string()) };
        let others = value.into_iter().chain(self.indexed.get(&index)).copied();
        // Every key that the element states has to be there, so the rarest of them leads to all that match.
        let names = self.keyed.first().map(|(keys, _)| keys);
        let rarest = names.into_iter().flat_map(Map::keys).filter_map(|name| {
            let value = element.get(name)?;
            Some(self.places.get(&(name.clone(), value.to_string())).map(Vec::as_slice).unwrap_or_default())
        });
        let places = rarest.min_by_key(|places| places.len()).unwrap_or_default();
        let keyed = places.iter().filter_map(|place| self.keyed.get(*place));
        keyed.filter(|(keys, _)| stands_for(keys, element)).map(|(_, node)| *node).chain(others)
    }
}

/// Whether the held element with these keys can be `element`: a key that it does not state was completed by the server
/// with its default.
fn stands_for(keys: &Map<String, Value>, element: &Value) -> bool {
    let stated = keys.keys().any(|name| element.get(name).is_some());
    stated && keys.iter().all(|(name, value)| element.get(name).is_none_or(|member| member == value))
}

/// The name of a list element in an entry.
enum Element {
    /// The values of its keys.
    Keys(Map<String, Value>),
    /// Its own value, as compact JSON.
    Value(String),
    Index(usize),
}

impl Element {
    fn read(key: &str) -> Option<Self> {
        if let Some(keys) = key.strip_prefix("k:") {
            serde_json::from_str(keys).ok().map(Self::Keys)
        } else if let Some(value) = key.strip_prefix("v:") {
            serde_json::from_str(value).ok().map(|value: Value| Self::Value(value.to_string()))
        } else {
            key.strip_prefix("i:")?.parse().ok().map(Self::Index)
        }
    }
}

/// The elements of a list that a document states, indexed by how an entry names them.
struct StatedList {
    length: usize,
    /// The keys by which the entry names elements.
    names: Vec<String>,
    /// The combinations of keys that elements state: mostly all keys. The server fills in those that an element leaves
    /// out.
    stated: BTreeSet<Vec<bool>>,
    /// The first place of each, by the values of the keys that it states.
    keyed: HashMap<Vec<Option<String>>, usize>,
    /// The first place of each, by its own value.
    values: HashMap<String, usize>,
}

impl StatedList {
    /// `held` names elements of the list.
    fn of(held: &Map<String, Value>, elements: &[Value]) -> Self {
        let keys = held.keys().find_map(|key| match Element::read(key) {
            Some(Element::Keys(keys)) => Some(keys),
            _ => None,
        });
        let names = keys.into_iter().flatten().map(|(name, _)| name).collect();
        let (stated, keyed, values) = (BTreeSet::new(), HashMap::new(), HashMap::new());
        let mut list = Self { length: elements.len(), names, stated, keyed, values };
        let is_set = held.keys().any(|key| key.starts_with("v:"));
        for (place, element) in elements.iter().enumerate() {
            let keys: Vec<_> = list.names.iter().map(|name| element.get(name).map(Value::to_string)).collect();
            if keys.iter().any(Option::is_some) {
                list.stated.insert(keys.iter().map(Option::is_some).collect());
                list.keyed.entry(keys).or_insert(place);
            }
            if is_set {
                list.values.entry(element.to_string()).or_insert(place);
            }
        }
        list
    }

    /// The index of the element that this entry names.
    fn place(&self, key: &str) -> Option<usize> {
        match Element::read(key)? {
            Element::Keys(keys) => {
                let values: Vec<String> =
                    self.names.iter().map(|name| keys.get(name).map(Value::to_string)).collect::<Option<_>>()?;
                let places = self.stated.iter().filter_map(|stated| {
                    let keys: Vec<_> =
                        stated.iter().zip(&values).map(|(stated, value)| stated.then(|| value.clone())).collect();
                    self.keyed.get(&keys).copied()
                });
                places.min()
            }
            Element::Value(value) => self.values.get(&value).copied(),
            Element::Index(index) => (index < self.length).then_some(index),
        }
    }
}

fn excess(held: &Value, desired: &Value, path: &str) -> Option<String> {
    let held = held.as_object()?;
    let mut list = None;
    held.iter().find_map(|(key, node)| {
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
            let place = list.get_or_insert_with(|| StatedList::of(held, elements)).place(key);
            match place.and_then(|place| Some((place, elements.get(place)?))) {
                None => Some(format!("{path}[{key}]")),
                Some((place, element)) => excess(node, element, &format!("{path}[{place}]")),
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
