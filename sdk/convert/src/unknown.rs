//! Members that a version's type ignores: their paths, and how they are copied to the other version.

use std::rc::Rc;

use serde_json::Value;

/// One step from a value to one inside it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    // Shared: the author of an object can make a key long, with many paths below it.
    Key(Rc<str>),
    Index(usize),
}

/// The path of a value, from the top of the object.
pub(crate) type Place = Vec<Step>;

/// Finds the members of `raw` that its type, which writes `known`, does not notice: those that it does not know, and
/// those that it takes for missing (null, an empty list). A list of which the type keeps other elements counts as a
/// whole. `None` if the keys on the way to them are more than [`MOST`] bytes together, because each is looked up
/// several times.
pub(crate) fn unnoticed(raw: &Value, known: &Value) -> Option<Vec<Place>> {
    let mut places = Vec::new();
    walk(raw, known, &mut Place::new(), &mut places);
    let steps = places.iter().flatten().map(|step| match step {
        Step::Key(key) => key.len() + 1,
        Step::Index(_) => 1,
    });
    (steps.sum::<usize>() <= MOST).then_some(places)
}

const MOST: usize = 4 * 1024 * 1024;

fn walk(raw: &Value, known: &Value, at: &mut Place, places: &mut Vec<Place>) {
    match (raw, known) {
        (Value::Object(raw), Value::Object(known)) => {
            for (key, value) in raw {
                at.push(Step::Key(key.as_str().into()));
                match known.get(key) {
                    Some(known) => walk(value, known, at, places),
                    None => places.push(at.clone()),
                }
                at.pop();
            }
        }
        (Value::Array(raw), Value::Array(known)) if raw.len() == known.len() => {
            for (index, (value, known)) in raw.iter().zip(known).enumerate() {
                at.push(Step::Index(index));
                walk(value, known, at, places);
                at.pop();
            }
        }
        (Value::Array(_), Value::Array(_)) => places.push(at.clone()),
        _ => {}
    }
}

pub(crate) fn get<'v>(value: &'v Value, place: &[Step]) -> Option<&'v Value> {
    place.iter().try_fold(value, |value, step| match step {
        Step::Key(key) => value.get(&**key),
        Step::Index(index) => value.get(index),
    })
}

/// Copies the value of `raw` at a path into `known`, the type's view of `raw`. Where the two cannot be followed side by
/// side, because the type writes another structure, copies all that `raw` has there.
pub(crate) fn put_back(known: &mut Value, raw: &Value, place: &[Step]) {
    let Some((step, rest)) = place.split_first() else {
        *known = raw.clone();
        return;
    };
    match (step, &mut *known, raw) {
        (Step::Key(key), Value::Object(known), Value::Object(raw)) if raw.contains_key(&**key) => {
            match known.get_mut(&**key) {
                Some(known) => put_back(known, &raw[&**key], rest),
                None => {
                    known.insert(key.to_string(), raw[&**key].clone());
                }
            }
        }
        (Step::Index(index), Value::Array(known), Value::Array(raw))
            if known.len() == raw.len() && *index < raw.len() =>
        {
            put_back(&mut known[*index], &raw[*index], rest);
        }
        _ => *known = raw.clone(),
    }
}

/// Copies the value of `raw` at a path into the object of another version, if its parent is there and the path is free.
/// Returns whether it did.
pub(crate) fn put_over(target: &mut Value, raw: &Value, place: &[Step]) -> bool {
    if !takes(target, raw, place) {
        return false;
    }
    if let (Some(value), Some((Step::Key(key), parent))) = (get(raw, place), place.split_last())
        && let Some(parent) = get_mut(target, parent).and_then(Value::as_object_mut)
    {
        parent.insert(key.to_string(), value.clone());
    }
    true
}

/// Whether the value of `raw` at a path can be copied into `target`: its parent is there and the path is free.
pub(crate) fn takes(target: &Value, raw: &Value, place: &[Step]) -> bool {
    match (place, target, raw) {
        ([Step::Key(key)], Value::Object(target), Value::Object(raw)) => {
            raw.contains_key(&**key) && !target.contains_key(&**key)
        }
        ([Step::Key(key), rest @ ..], Value::Object(target), Value::Object(raw)) => {
            target.get(&**key).zip(raw.get(&**key)).is_some_and(|(target, raw)| takes(target, raw, rest))
        }
        ([Step::Index(index), rest @ ..], Value::Array(target), Value::Array(raw)) => {
            let both = target.get(*index).zip(raw.get(*index)).filter(|_| target.len() == raw.len());
            both.is_some_and(|(target, raw)| is_same_element(target, raw) && takes(target, raw, rest))
        }
        _ => false,
    }
}

/// Whether it has content: a null or empty value means no more than a missing one.
pub(crate) fn says_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Array(elements) => !elements.is_empty(),
        Value::Object(members) => !members.is_empty(),
        _ => true,
    }
}

pub(crate) fn remove(value: &mut Value, place: &[Step]) {
    if let Some((Step::Key(key), parent)) = place.split_last()
        && let Some(parent) = get_mut(value, parent).and_then(Value::as_object_mut)
    {
        parent.remove(&**key);
    }
}

fn get_mut<'v>(value: &'v mut Value, place: &[Step]) -> Option<&'v mut Value> {
    place.iter().try_fold(value, |value, step| match step {
        Step::Key(key) => value.get_mut(&**key),
        Step::Index(index) => value.get_mut(index),
    })
}

/// Whether an element of a list is the one that it came from, and not a replacement: it has the same
/// name, or has no value that the other lacks.
fn is_same_element(target: &Value, raw: &Value) -> bool {
    let (Some(target), Some(raw)) = (target.as_object(), raw.as_object()) else { return target == raw };
    ["name", "key"].iter().any(|id| target.get(*id).is_some() && target.get(*id) == raw.get(*id))
        || target.iter().all(|(key, value)| raw.get(key) == Some(value))
}
