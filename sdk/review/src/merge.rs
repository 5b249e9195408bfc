//! The three-way merge that carries typed edits over to a raw object.
//!
//! A type is a lossy view: it drops members that it does not know and writes defaults that the client did not send. So
//! its output is never compared with the raw object, only with its own output before the handler ran; the difference
//! between those two is what the handler did, and it is done again on the raw object.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

/// Members that identify an element of a list in the Kubernetes API (the merge keys of its own lists, and those that
/// CRDs use for the same), in the order they are tried.
const IDENTITIES: [&str; 9] = ["name", "key", "uid", "mountPath", "containerPort", "port", "ip", "topologyKey", "type"];

/// Applies the changes between `before` and `after`, two views of `raw`, to `raw`: a three-way merge. Values that are
/// the same in both stay as in `raw`; where they differ, `after` wins.
///
/// Members that only `raw` has are kept as long as `after` has their parent. Elements of lists are matched by their
/// value, or by the member that identifies them (`name`, `key`, …), also when they moved.
///
/// Recurses as deep as the documents are nested; `serde_json` reads [`MAX_DEPTH`](crate::MAX_DEPTH) levels.
pub fn three_way_merge(raw: &Value, before: &Value, after: &Value) -> Value {
    if before == after {
        return raw.clone();
    }
    match (raw, before, after) {
        (Value::Object(raw), Value::Object(before), Value::Object(after)) => {
            Value::Object(carry_object(raw, before, after))
        }
        // A different length means that the type dropped or added elements, and they cannot be matched.
        (Value::Array(raw), Value::Array(before), Value::Array(after)) if raw.len() == before.len() => {
            Value::Array(carry_array(raw, before, after))
        }
        _ => after.clone(),
    }
}

fn carry_object(
    raw: &Map<String, Value>,
    before: &Map<String, Value>,
    after: &Map<String, Value>,
) -> Map<String, Value> {
    let mut merged = raw.clone();
    for (key, value) in after {
        match (before.get(key), raw.get(key)) {
            (Some(old), _) if old == value => {}
            (Some(old), Some(under)) => {
                merged.insert(key.clone(), three_way_merge(under, old, value));
            }
            // Take the whole value, though only a part may have changed: where raw has nothing, the rest was the type's
            // default, and a part of it need not decode.
            _ => {
                merged.insert(key.clone(), value.clone());
            }
        }
    }
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        merged.remove(key);
    }
    merged
}

/// Elements that are the same before and after keep what the type does not know of them, wherever they moved.
fn carry_array(raw: &[Value], before: &[Value], after: &[Value]) -> Vec<Value> {
    let places = places(raw, before);
    let of = |index: usize| places[index].map(|place| (&raw[place], &before[index]));
    after
        .iter()
        .zip(origins(before, after))
        .map(|(value, origin)| {
            origin.and_then(of).map_or_else(|| value.clone(), |(raw, before)| three_way_merge(raw, before, value))
        })
        .collect()
}

/// Returns, for each element before, the index of the element in `raw` that it is a view of. That is mostly its own;
/// but a type that keeps a set has its elements in another order.
fn places(raw: &[Value], before: &[Value]) -> Vec<Option<usize>> {
    let mut places = origins(raw, before);
    let known: HashSet<usize> = places.iter().flatten().copied().collect();
    for (index, place) in places.iter_mut().enumerate() {
        // An element that the type gave another name.
        if place.is_none() && !known.contains(&index) {
            *place = Some(index);
        }
    }
    places
}

/// Returns, for each element after, the index of the element before that it came from, in time linear in the length of
/// the lists.
fn origins(before: &[Value], after: &[Value]) -> Vec<Option<usize>> {
    let mut origins = vec![None; after.len()];
    let mut taken = vec![false; before.len()];

    // Match the same value in the same place first, then the same value elsewhere.
    for (index, value) in after.iter().enumerate() {
        if before.get(index) == Some(value) {
            (origins[index], taken[index]) = (Some(index), true);
        }
    }
    let mut moved: HashMap<&Value, Vec<usize>> = HashMap::new();
    for from in (0..before.len()).rev().filter(|&from| !taken[from]) {
        moved.entry(&before[from]).or_default().push(from);
    }
    for (index, value) in after.iter().enumerate() {
        if origins[index].is_none()
            && let Some(from) = moved.get_mut(value).and_then(Vec::pop)
        {
            (origins[index], taken[from]) = (Some(from), true);
        }
    }

    // Then the same identity, where it is the only one of its kind on both sides.
    for identity in IDENTITIES {
        let (was, is) = (unique(before, identity), unique(after, identity));
        for (index, value) in after.iter().enumerate() {
            let id = value.get(identity).filter(|_| origins[index].is_none());
            if let Some(id) = id
                && is.get(id) == Some(&Some(index))
                && let Some(Some(from)) = was.get(id)
                && !taken[*from]
            {
                (origins[index], taken[*from]) = (Some(*from), true);
            }
        }
    }

    // The remaining elements were edited in place if both sides have the same number of them and no name changed: a new
    // name is a new element, and must not inherit another's fields.
    let left: Vec<usize> = (0..before.len()).filter(|&from| !taken[from]).collect();
    let open: Vec<usize> = (0..after.len()).filter(|&index| origins[index].is_none()).collect();
    if left.len() == open.len() {
        for (from, index) in left.into_iter().zip(open) {
            if before[from].get("name") == after[index].get("name") {
                origins[index] = Some(from);
            }
        }
    }
    origins
}

/// Maps each value of the identifying member to its index; `None` if it occurs more than once.
fn unique<'v>(list: &'v [Value], identity: &str) -> HashMap<&'v Value, Option<usize>> {
    let mut places = HashMap::new();
    for (index, element) in list.iter().enumerate() {
        if let Some(id) = element.get(identity) {
            places.entry(id).and_modify(|place| *place = None).or_insert(Some(index));
        }
    }
    places
}
