//! Members that a version's type does not know: where they are, and how they get to the other side.

use serde_ignored::Path;
use serde_json::Value;

/// One step from a value to one inside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Key(String),
    Index(usize),
}

/// Where a value is, from the top of the object.
pub(crate) type Place = Vec<Step>;

pub(crate) fn place(path: &Path<'_>) -> Place {
    match path {
        Path::Root => Place::new(),
        Path::Seq { parent, index } => and(parent, Step::Index(*index)),
        Path::Map { parent, key } => and(parent, Step::Key(key.clone())),
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => place(parent),
    }
}

fn and(parent: &Path<'_>, step: Step) -> Place {
    let mut place = place(parent);
    place.push(step);
    place
}

/// Whether the engine answers for the member itself, and no type has to know it.
pub(crate) fn is_engines(path: &Path<'_>) -> bool {
    match path {
        Path::Root => false,
        Path::Map { parent: Path::Root, key } => crate::object::is_engines(key),
        Path::Seq { parent, .. }
        | Path::Map { parent, .. }
        | Path::Some { parent }
        | Path::NewtypeStruct { parent }
        | Path::NewtypeVariant { parent } => is_engines(parent),
    }
}

pub(crate) fn get<'v>(value: &'v Value, place: &[Step]) -> Option<&'v Value> {
    place.iter().try_fold(value, |value, step| match step {
        Step::Key(key) => value.get(key),
        Step::Index(index) => value.get(index),
    })
}

/// Puts what `raw` has at a place into `known`, which is what a type says of `raw`. Where the two cannot be followed
/// side by side, because the type says it in another way, all that `raw` has there.
pub(crate) fn put_back(known: &mut Value, raw: &Value, place: &[Step]) {
    let Some((step, rest)) = place.split_first() else {
        *known = raw.clone();
        return;
    };
    match (step, &mut *known, raw) {
        (Step::Key(key), Value::Object(known), Value::Object(raw)) if raw.contains_key(key) => match known.get_mut(key)
        {
            Some(known) => put_back(known, &raw[key], rest),
            None => {
                known.insert(key.clone(), raw[key].clone());
            }
        },
        (Step::Index(index), Value::Array(known), Value::Array(raw))
            if known.len() == raw.len() && *index < raw.len() =>
        {
            put_back(&mut known[*index], &raw[*index], rest);
        }
        _ => *known = raw.clone(),
    }
}

/// Puts what `raw` has at a place into the object of another version, if its parent is there and nothing is in its
/// place. Says whether it did.
pub(crate) fn put_over(target: &mut Value, raw: &Value, place: &[Step]) -> bool {
    match (place, target, raw) {
        ([Step::Key(key)], Value::Object(target), Value::Object(raw)) => match raw.get(key) {
            Some(value) if !target.contains_key(key) => {
                target.insert(key.clone(), value.clone());
                true
            }
            _ => false,
        },
        ([Step::Key(key), rest @ ..], Value::Object(target), Value::Object(raw)) => {
            match (target.get_mut(key), raw.get(key)) {
                (Some(target), Some(raw)) => put_over(target, raw, rest),
                _ => false,
            }
        }
        ([Step::Index(index), rest @ ..], Value::Array(target), Value::Array(raw)) if target.len() == raw.len() => {
            match (target.get_mut(*index), raw.get(*index)) {
                (Some(target), Some(raw)) if is_same_element(target, raw) => put_over(target, raw, rest),
                _ => false,
            }
        }
        _ => false,
    }
}

pub(crate) fn remove(value: &mut Value, place: &[Step]) {
    if let Some((Step::Key(key), parent)) = place.split_last() {
        let parent = parent.iter().try_fold(value, |value, step| match step {
            Step::Key(key) => value.get_mut(key),
            Step::Index(index) => value.get_mut(index),
        });
        if let Some(parent) = parent.and_then(Value::as_object_mut) {
            parent.remove(key);
        }
    }
}

/// Whether an element of a list is the one that it came from, and not another one that took its place: it has the same
/// name, or says nothing that the other does not say.
fn is_same_element(target: &Value, raw: &Value) -> bool {
    let (Some(target), Some(raw)) = (target.as_object(), raw.as_object()) else { return target == raw };
    ["name", "key"].iter().any(|id| target.get(*id).is_some() && target.get(*id) == raw.get(*id))
        || target.iter().all(|(key, value)| raw.get(key) == Some(value))
}
