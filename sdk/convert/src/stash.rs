//! The stash: an annotation that keeps what a version cannot express until the object is back in one that can.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::STASH;
use crate::json::Document;
use crate::object::is_engines;

/// The longest stash that is written, or read, in bytes: 64 KiB.
pub(crate) const LIMIT: usize = 64 * 1024;

/// The entries of an object's stash by the version that they are of.
pub(crate) struct Stash {
    /// Each as JSON. Entries of versions that the engine does not have are kept unchanged.
    entries: BTreeMap<String, Box<RawValue>>,
    /// The longest that it may become, in bytes.
    longest: usize,
}

/// The data that are kept for one version.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Entry<D = Document> {
    /// The values of the document that the way there and back changes.
    #[serde(rename = "o")]
    pub(crate) original: D,
    /// The values at the same paths after converting back. None where the document is kept whole, because it was
    /// returned unchanged or because nothing comes back.
    #[serde(rename = "r", skip_serializing_if = "Option::is_none")]
    pub(crate) returned: Option<D>,
}

/// The document is larger than [`LIMIT`], or than the object's annotations leave room for.
pub(crate) struct NoRoom;

impl Stash {
    /// Reads the annotation. Users can write annotations: any other text counts as none. `room` is what the object's
    /// other annotations leave for it, its name included.
    pub(crate) fn read(annotation: Option<&str>, room: usize) -> Self {
        let entries = annotation.filter(|text| text.len() <= LIMIT).and_then(|text| serde_json::from_str(text).ok());
        Self { entries: entries.unwrap_or_default(), longest: room.saturating_sub(STASH.len()).min(LIMIT) }
    }

    /// The annotation; None where there is nothing to keep.
    pub(crate) fn write(&self) -> Option<String> {
        if self.entries.is_empty() {
            return None;
        }
        serde_json::to_string(&self.entries).ok()
    }

    /// The entry of a version, unless it is no entry.
    pub(crate) fn get(&self, version: &str) -> Option<Entry> {
        // Entries are read one by one: an entry may be as deep as an object, and is one level deeper in the stash.
        let entry: Entry<&RawValue> = serde_json::from_str(self.entries.get(version)?.get()).ok()?;
        // Users can write annotations, but a stash must not change the object's name or kind.
        let document = |json: &RawValue| {
            let mut members = serde_json::from_str::<Map<String, Value>>(json.get()).ok()?;
            members.retain(|key, _| !is_engines(key));
            Some(Value::Object(members))
        };
        let returned = match entry.returned {
            Some(json) => Some(document(json)?),
            None => None,
        };
        Some(Entry { original: document(entry.original)?, returned })
    }

    /// Whether there is an entry of a document that is kept whole.
    pub(crate) fn has_whole(&self) -> bool {
        self.entries.keys().any(|version| self.get(version).is_some_and(|entry| entry.returned.is_none()))
    }

    pub(crate) fn remove(&mut self, version: &str) {
        self.entries.remove(version);
    }

    /// Keeps an entry instead of the one that the version has, if there is room.
    pub(crate) fn keep(&mut self, version: &str, entry: &Entry) -> Result<(), NoRoom> {
        let entry = serde_json::value::to_raw_value(entry).map_err(|_| NoRoom);
        self.remove(version);
        self.entries.insert(version.to_owned(), entry?);
        // Measure the written text: users can put in versions whose names take more bytes when they are escaped.
        if self.write().is_none_or(|text| text.len() > self.longest) {
            self.remove(version);
            return Err(NoRoom);
        }
        Ok(())
    }
}

impl Entry {
    /// Finds the paths at which two documents differ, with the value of each. Lists that differ are kept whole. A
    /// parent stays in both as long as both have it, so that one that is deleted later can be told apart from one that
    /// was never there.
    pub(crate) fn of_difference(original: &Document, returned: &Document) -> Self {
        let (original, returned) = difference(original, returned);
        Self { original, returned: Some(returned) }
    }

    /// A document without a counterpart.
    pub(crate) fn of_whole(original: Document) -> Self {
        Self { original, returned: None }
    }

    /// One entry for each place at which the two sides differ; None if there are more than `most`.
    pub(crate) fn places(&self, most: usize) -> Option<Vec<Self>> {
        let mut places = Vec::new();
        split(&self.original, self.returned.as_ref()?, most, &mut places, &|original, returned| Self {
            original,
            returned: Some(returned),
        })?;
        Some(places)
    }
}

fn difference(one: &Value, other: &Value) -> (Value, Value) {
    let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else { return (one.clone(), other.clone()) };
    let (mut left, mut right) = (Map::new(), Map::new());
    for (key, value) in one {
        match other.get(key) {
            Some(same) if same == value => {}
            Some(different) => {
                let (value, different) = difference(value, different);
                left.insert(key.clone(), value);
                right.insert(key.clone(), different);
            }
            None => {
                left.insert(key.clone(), value.clone());
            }
        }
    }
    for (key, value) in other.iter().filter(|(key, _)| !one.contains_key(*key)) {
        right.insert(key.clone(), value.clone());
    }
    (Value::Object(left), Value::Object(right))
}

/// Calls `wrap` with the two sides of each place alone, within their parents.
fn split(
    one: &Value,
    other: &Value,
    most: usize,
    places: &mut Vec<Entry>,
    wrap: &dyn Fn(Value, Value) -> Entry,
) -> Option<()> {
    let (Some(left), Some(right)) = (one.as_object(), other.as_object()) else {
        places.push(wrap(one.clone(), other.clone()));
        return (places.len() <= most).then_some(());
    };
    let single = |key: &str, value: Value| Value::Object(Map::from_iter([(key.to_owned(), value)]));
    for (key, value) in left {
        match right.get(key) {
            Some(different) => split(value, different, most, places, &|value, different| {
                wrap(single(key, value), single(key, different))
            })?,
            None => places.push(wrap(single(key, value.clone()), Value::Object(Map::new()))),
        }
    }
    for (key, value) in right.iter().filter(|(key, _)| !left.contains_key(*key)) {
        places.push(wrap(Value::Object(Map::new()), single(key, value.clone())));
    }
    (places.len() <= most).then_some(())
}
