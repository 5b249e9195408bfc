//! The entities of a configuration. Cedar keeps all ancestors of each, and calls itself for each level of them: their number is bounded before.

use std::collections::{HashMap, HashSet};

use cedar_policy::{Entities, EntityUid, EvalResult};
use serde_json::{Map, Value};

use crate::PolicyError;

/// The most entities.
const ENTITIES: usize = 10_000;
/// The most levels of parents above an entity.
const LEVELS: usize = 64;
/// The most pairs of an entity and one of its ancestors.
const PAIRS: usize = 100_000;

/// Reads `entities_json`.
///
/// # Errors
/// It is not what Cedar reads, or more than it can keep.
pub(crate) fn read(json: &str) -> Result<Entities, PolicyError> {
    if matches!(json.trim(), "" | "null") {
        return Ok(Entities::empty());
    }
    let mut value: Value = serde_json::from_str(json).map_err(|error| PolicyError::Entities(error.to_string()))?;
    if let Value::Array(entities) = &mut value {
        if entities.len() > ENTITIES {
            return Err(PolicyError::TooManyEntities("more than 10,000 entities"));
        }
        for (at, entity) in entities.iter_mut().enumerate() {
            // Cedar would read an array of the members, too, in which nothing below finds the parents.
            let entity = entity.as_object_mut().ok_or_else(|| PolicyError::Entities(format!("[{at}] is no object")))?;
            // Both may be left out where ToolHive reads them.
            entity.entry("attrs").or_insert_with(|| Value::Object(Map::new()));
            entity.entry("parents").or_insert_with(|| Value::Array(Vec::new()));
        }
        check_ancestors(&parents(entities))?;
    }
    Entities::from_json_value(value, None).map_err(|error| problem(&error))
}

pub(crate) fn problem(error: &cedar_policy::entities_errors::EntitiesError) -> PolicyError {
    PolicyError::Entities(describe(error))
}

/// The parents of each entity that there is, or that is one's parent, by their places. One that Cedar does not read is left out: it refuses it.
fn parents(entities: &[Value]) -> Vec<Vec<usize>> {
    let (mut places, mut all) = (HashMap::new(), Vec::new());
    let mut place = |uid: &Value, all: &mut Vec<Vec<usize>>| {
        let uid = EntityUid::from_json(uid.clone()).ok()?;
        let at = *places.entry(uid).or_insert(all.len());
        if at == all.len() {
            all.push(Vec::new());
        }
        Some(at)
    };
    for entity in entities {
        let Some(at) = entity.get("uid").and_then(|uid| place(uid, &mut all)) else { continue };
        for parent in entity.get("parents").and_then(Value::as_array).into_iter().flatten() {
            let parent = place(parent, &mut all);
            all[at].extend(parent);
        }
    }
    all.iter_mut().for_each(sort);
    all
}

/// Refuses too many ancestors, and circles. Parents come before their children, without recursion.
fn check_ancestors(parents: &[Vec<usize>]) -> Result<(), PolicyError> {
    let mut children = vec![Vec::new(); parents.len()];
    for (child, parents) in parents.iter().enumerate() {
        for parent in parents {
            children[*parent].push(child);
        }
    }
    let mut missing: Vec<usize> = parents.iter().map(Vec::len).collect();
    let mut ready: Vec<usize> = (0..parents.len()).filter(|at| missing[*at] == 0).collect();
    let (mut ancestors, mut levels) = (vec![Vec::new(); parents.len()], vec![0; parents.len()]);
    let (mut done, mut pairs) = (0, 0);
    while let Some(at) = ready.pop() {
        let mut own: Vec<usize> =
            parents[at].iter().flat_map(|parent| ancestors[*parent].iter().chain([parent])).copied().collect();
        sort(&mut own);
        pairs += own.len();
        levels[at] = parents[at].iter().map(|parent| levels[*parent] + 1).max().unwrap_or(0);
        if levels[at] > LEVELS {
            return Err(PolicyError::TooManyEntities("more than 64 levels of parents above each other"));
        }
        if pairs > PAIRS {
            return Err(PolicyError::TooManyEntities("more than 100,000 pairs of an entity and one of its ancestors"));
        }
        ancestors[at] = own;
        done += 1;
        for child in &children[at] {
            missing[*child] -= 1;
            if missing[*child] == 0 {
                ready.push(*child);
            }
        }
    }
    if done < parents.len() { Err(PolicyError::Entities("an entity is its own ancestor".to_owned())) } else { Ok(()) }
}

fn sort(places: &mut Vec<usize>) {
    places.sort_unstable();
    places.dedup();
}

/// The entities whose attributes or ancestors policies can ask for that name these: they come to others by attributes. Claims and arguments are never
/// entities.
pub(crate) fn reachable(mut wanted: Vec<EntityUid>, configured: &Entities) -> HashSet<EntityUid> {
    let mut found = HashSet::new();
    while let Some(uid) = wanted.pop() {
        if let Some(entity) = configured.get(&uid).filter(|_| !found.contains(&uid)) {
            let values = entity.attrs().chain(entity.tags()).filter_map(|(_, value)| value.ok());
            values.for_each(|value| named(&value, &mut wanted));
        }
        found.insert(uid);
    }
    found
}

fn named(value: &EvalResult, uids: &mut Vec<EntityUid>) {
    match value {
        EvalResult::EntityUid(uid) => uids.push(uid.clone()),
        EvalResult::Set(set) => set.iter().for_each(|value| named(value, uids)),
        EvalResult::Record(record) => record.iter().for_each(|(_, value)| named(value, uids)),
        EvalResult::Bool(_) | EvalResult::Long(_) | EvalResult::String(_) | EvalResult::ExtensionValue(_) => {}
    }
}

/// An error with its causes.
fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let part = error.to_string();
        if !text.ends_with(&part) {
            text = format!("{text}: {part}");
        }
        cause = error.source();
    }
    text
}
