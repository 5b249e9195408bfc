//! One conversion step of an object with everything that it must not lose: stash, unknown members, objects that do not
//! convert.

use std::collections::{BTreeSet, HashSet};

use portcullis_review::three_way_merge;
use serde_json::Value;

use crate::edge::{ConvertedDocument, Edge, Identity};
use crate::json::Document;
use crate::problem::Problem;
use crate::stash::{Entry, NoRoom, Stash};
use crate::unknown::{self, Place, Step};
use crate::version::Codec;

/// An object that is being converted.
pub(crate) struct ObjectInConversion {
    pub(crate) document: Document,
    pub(crate) stash: Stash,
    /// The first problem of the conversion.
    pub(crate) problem: Option<Problem>,
    /// Whether data was left out, now or before, that its annotations had no room for.
    pub(crate) incomplete: bool,
    /// Whether missing fields were its only problem.
    pub(crate) partial: bool,
}

impl ObjectInConversion {
    /// Converts the object.
    pub(crate) fn go(&mut self, edge: Edge<'_>, identity: Identity<'_>) {
        let arrived = match edge.convert_document(identity, &self.document) {
            Ok(outcome) => self.arrive(edge, identity, outcome),
            Err(problem) => {
                // An object that was returned unchanged stays unchanged, and is restored when it is converted back.
                let part = if self.stash.has_whole() { None } else { edge.part(identity, &self.document) };
                let lacks_fields = part.is_some() || problem.is_missing_field();
                self.partial = lacks_fields && (self.partial || self.problem.is_none());
                match part {
                    Some(arrived) => self.arrive_in_part(edge, identity, problem, arrived),
                    None => self.arrive_as_it_is(edge, identity, problem),
                }
            }
        };
        self.document = arrived;
    }

    fn arrive(&mut self, edge: Edge<'_>, identity: Identity<'_>, outcome: ConvertedDocument) -> Document {
        let entry = self.stash.get(&edge.to.version);
        let restored = match &entry {
            Some(entry @ Entry { returned: Some(_), .. }) => restore(edge, identity, &outcome, entry),
            Some(entry) if says_the_same(edge, identity, &outcome, &entry.original) => {
                self.stash.remove(&edge.to.version);
                return entry.original.clone();
            }
            // The document that was kept whole did not convert, and has been fixed since.
            Some(_) | None => None,
        };
        self.stash.remove(&edge.to.version);
        self.stash.remove(&edge.from.version);
        // A member that was kept for a version was in it, so its schema has it.
        let kept = |place: &Place| entry.as_ref().is_some_and(|entry| unknown::get(&entry.original, place).is_some());
        let prunable: Vec<&Place> = outcome.added.iter().filter(|place| !kept(place)).collect();
        if !prunable.is_empty() {
            let mut pruned = restored.as_ref().map_or(&outcome.arrived, |restored| &restored.document).clone();
            for place in prunable {
                unknown::remove(&mut pruned, place);
            }
            if let Some(entry) = lost(&outcome.whole, edge.reversed().arrival(identity, &pruned))
                && self.keep(edge, &entry)
            {
                return restored.map_or(outcome.arrived, |restored| restored.document);
            }
        }
        let Arrival { document, back } = match restored {
            Some(restored) => restored,
            None if outcome.comes_back => return outcome.arrived,
            None => Arrival::of(edge, identity, outcome.arrived),
        };
        if let Some(entry) = lost(&outcome.whole, back) {
            self.keep(edge, &entry);
        }
        document
    }

    /// An object that lacks fields is converted without the values that depend on them alone.
    fn arrive_in_part(
        &mut self,
        edge: Edge<'_>,
        identity: Identity<'_>,
        problem: Problem,
        mut arrived: Document,
    ) -> Document {
        let document = std::mem::take(&mut self.document);
        if let Some(Entry { original, returned: Some(returned) }) = self.stash.get(&edge.to.version) {
            self.stash.remove(&edge.to.version);
            arrived = three_way_merge(&original, &returned, &arrived);
        }
        self.stash.remove(&edge.from.version);
        self.problem.get_or_insert(problem);
        if let Some(entry) = lost(&document, edge.reversed().arrival_in_part(identity, &arrived)) {
            self.keep(edge, &entry);
        }
        arrived
    }

    /// An object that does not convert is returned unchanged, so that it does not block lists, its own deletion, or its
    /// repair.
    fn arrive_as_it_is(&mut self, edge: Edge<'_>, identity: Identity<'_>, problem: Problem) -> Document {
        let document = std::mem::take(&mut self.document);
        let arrived = match self.stash.get(&edge.to.version) {
            Some(Entry { original, returned: None }) => {
                self.stash.remove(&edge.to.version);
                let arrived = match edge.reversed().arrival(identity, &original) {
                    Ok(then) if then == document => original.clone(),
                    Ok(_) => document.clone(),
                    // It was returned unchanged. A missing member may only have been pruned on the other side.
                    Err(_) => overlay(&original, &document),
                };
                if arrived == original || identity.known(edge.to, &arrived).is_ok() {
                    return arrived;
                }
                arrived
            }
            // An entry that needs a converted document waits for one.
            _ => document.clone(),
        };
        self.problem.get_or_insert(problem);
        self.keep(edge, &Entry::of_whole(document));
        arrived
    }

    /// Keeps an entry in the stash. Returns whether there was room; otherwise the object is converted without it, and
    /// is incomplete.
    fn keep(&mut self, edge: Edge<'_>, entry: &Entry) -> bool {
        let kept = self.stash.keep(&edge.from.version, entry);
        if let Err(NoRoom) = kept {
            let (from, to) = (&edge.from.version, &edge.to.version);
            self.incomplete = true;
            self.problem.get_or_insert_with(|| {
                Problem::whole(format!(
                    "annotations have no room for data of {from} that {to} does not know: it is left out"
                ))
            });
        }
        kept.is_ok()
    }
}

/// The entry to keep of a document for which the way back gives `back`; None where nothing is lost.
fn lost(whole: &Document, back: Result<Document, Problem>) -> Option<Entry> {
    match back {
        Ok(back) if back == *whole => None,
        Ok(back) => Some(Entry::of_difference(whole, &back)),
        Err(_) => Some(Entry::of_whole(whole.clone())),
    }
}

/// Whether an object has the same content as the one that was kept whole when it was converted the other way. Members
/// may be missing that the version does not know (the API server prunes them), or be there that its type writes anyway.
fn says_the_same(edge: Edge<'_>, identity: Identity<'_>, now: &ConvertedDocument, kept: &Document) -> bool {
    let then = edge.reversed().arrival(identity, kept);
    let then = then.as_ref().unwrap_or(kept);
    let known = |document: &Document| identity.known(edge.from, document).ok();
    known(then).is_some_and(|then| Some(then) == known(&now.whole))
        && now.unnoticed.iter().all(|place| unknown::get(&now.whole, place) == unknown::get(then, place))
}

/// A converted document, and the result of converting it back.
struct Arrival {
    document: Document,
    back: Result<Document, Problem>,
}

impl Arrival {
    fn of(edge: Edge<'_>, identity: Identity<'_>, document: Document) -> Self {
        Self { back: edge.reversed().arrival(identity, &document), document }
    }
}

/// Restores what was kept for the version of the document that arrived: the original where the other side is unchanged,
/// the newer value where it was changed. Values that would contradict the object are left out. None where that changes
/// nothing.
fn restore(edge: Edge<'_>, identity: Identity<'_>, outcome: &ConvertedDocument, entry: &Entry) -> Option<Arrival> {
    let with = |Entry { original, returned }: &Entry, document: &Document| {
        let mut returned = returned.clone().unwrap_or_default();
        forget_nulls(&mut returned, document);
        let mut document = three_way_merge(original, &returned, document);
        remove_deleted(edge, identity, outcome, &mut document);
        let mut arrival = Arrival::of(edge, identity, document);
        if let Ok(back) = &mut arrival.back {
            prune_as(edge.from, identity, &outcome.whole, back);
        }
        arrival
    };
    let says = &outcome.whole;
    let restored = with(entry, &outcome.arrived);
    if restored.document == outcome.arrived {
        return None;
    }
    if restored.back.as_ref() == Ok(says) {
        return Some(restored);
    }
    let plain = edge.reversed().arrival(identity, &outcome.arrived).ok();
    let fits = |restored: &Arrival| {
        restored.back.as_ref().is_ok_and(|back| !contradicts(Some(says), plain.as_ref(), Some(back)))
    };
    if fits(&restored) {
        return Some(restored);
    }
    let mut best = None;
    for place in entry.places(identity.tries()).unwrap_or_default() {
        let before = best.as_ref().map_or(&outcome.arrived, |best: &Arrival| &best.document);
        let restored = with(&place, before);
        if fits(&restored) {
            best = Some(restored);
        }
    }
    best
}

/// Leaves out restored nulls where converting back gives nothing: the API server prunes null where the schema does not
/// allow it, and that is no edit.
fn forget_nulls(returned: &mut Value, arrived: &Value) {
    if let (Value::Object(returned), Value::Object(arrived)) = (returned, arrived) {
        returned.retain(|key, value| !value.is_null() || arrived.contains_key(key));
        for (key, value) in returned {
            forget_nulls(value, arrived.get(key).unwrap_or(&Value::Null));
        }
    }
}

/// Leaves out members that the type does not know and `says` does not have: the API server may have pruned them.
fn prune_as(codec: &Codec, identity: Identity<'_>, says: &Document, document: &mut Document) {
    if document != says
        && let Ok(known) = identity.known(codec, document)
    {
        for place in unknown::unnoticed(document, &known).unwrap_or_default() {
            if unknown::get(says, &place).is_none() {
                unknown::remove(document, &place);
            }
        }
    }
}

/// Leaves out of a restored document the unknown members that were deleted on the other side. Missing there, they
/// may also have been pruned by the API server, and then they are kept: unless another one beside them was not.
fn remove_deleted(edge: Edge<'_>, identity: Identity<'_>, outcome: &ConvertedDocument, restored: &mut Document) {
    let parents: HashSet<&[Step]> =
        outcome.unnoticed.iter().filter_map(|place| place.split_last()).map(|(_, parent)| parent).collect();
    if parents.is_empty() {
        return;
    }
    let Ok(known) = identity.known(edge.to, restored) else { return };
    for place in unknown::unnoticed(restored, &known).unwrap_or_default() {
        let beside = place.split_last().is_some_and(|(_, parent)| parents.contains(parent));
        if beside
            && unknown::get(&outcome.arrived, &place).is_none()
            && unknown::takes(&outcome.whole, restored, &place)
        {
            unknown::remove(restored, &place);
        }
    }
}

/// Whether the restored document, converted back, differs from the object at a path where the document that is not
/// restored agrees with it.
fn contradicts(says: Option<&Value>, plain: Option<&Value>, restored: Option<&Value>) -> bool {
    // A type writes null for NaN, and reads it as missing.
    let [says, plain, restored] = [says, plain, restored].map(|value| value.filter(|value| !value.is_null()));
    if restored == says || restored == plain {
        return false;
    }
    if let (Some(Value::Object(says)), Some(Value::Object(plain)), Some(Value::Object(restored))) =
        (says, plain, restored)
    {
        let keys: BTreeSet<&String> = says.keys().chain(plain.keys()).chain(restored.keys()).collect();
        return keys.into_iter().any(|key| contradicts(says.get(key), plain.get(key), restored.get(key)));
    }
    plain == says
}

/// Merges `over` into `under`.
fn overlay(under: &Value, over: &Value) -> Value {
    let (Value::Object(under), Value::Object(over)) = (under, over) else { return over.clone() };
    let mut both = under.clone();
    for (key, value) in over {
        let value = both.get(key).map_or_else(|| value.clone(), |under| overlay(under, value));
        both.insert(key.clone(), value);
    }
    Value::Object(both)
}
