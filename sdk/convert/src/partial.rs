//! The conversion of an object that lacks fields which its type requires: the part that one field manager owns, as
//! server-side apply converts it.
//!
//! Converters take whole objects. So the object is converted twice, with different placeholders for missing fields, and
//! an empty object with the same placeholders. The result keeps the values that depend on the object.

use serde_json::{Map, Value, json};

use crate::edge::{Edge, Identity, document};
use crate::fill::{Filled, Filling, PAIRS};
use crate::json::Document;
use crate::problem::{Problem, unless_it_panics};
use crate::unknown;
use crate::version::Codec;

/// The largest object that is filled, in bytes: a client can make each empty element of a list need many values.
const MAX_LENGTH: usize = 256 * 1024;

impl Edge<'_> {
    /// The converted document of one that may lack fields. An error if it has another problem, or if the converter
    /// fails.
    pub(crate) fn arrival_in_part(self, identity: Identity<'_>, document: &Document) -> Result<Document, Problem> {
        self.arrival(identity, document).or_else(|problem| self.part(identity, document).ok_or(problem))
    }

    /// The converted document of one that does not decode, if it only lacks fields.
    pub(crate) fn part(self, identity: Identity<'_>, document: &Document) -> Option<Document> {
        if identity.length > MAX_LENGTH {
            return None;
        }
        PAIRS.into_iter().find_map(|pair| {
            let arrive = |document: &Document| {
                let [one, other] = pair.map(|filling| {
                    let filled = unless_it_panics(|| identity.filled(self.from, document, filling)).flatten()?;
                    self.arrival(identity, &filled).ok()
                });
                Some([one?, other?])
            };
            let (arrived, without) = (arrive(document)?, arrive(&json!({}))?);
            let part = dependent(arrived.each_ref(), without.each_ref().map(Some), Some(document));
            Some(part.unwrap_or_else(|| json!({})))
        })
    }
}

impl Identity<'_> {
    /// The document with values for the fields that its type requires and it lacks.
    fn filled(self, codec: &Codec, raw: &Document, filling: Filling) -> Option<Document> {
        let mut object = raw.clone();
        object["apiVersion"] = json!(codec.api_version);
        object["kind"] = json!(self.kind);
        object["metadata"] = serde_json::from_str(self.metadata).ok()?;
        let mut filled = document(&*(codec.fill)(Filled { value: Some(&object), filling }).ok()?)?;
        for place in unknown::unnoticed(raw, &filled)? {
            unknown::put_back(&mut filled, raw, &place);
        }
        Some(filled)
    }
}

/// The values of a document that depend on the one that it came from, `from`. `arrived` are two that differ in what
/// depends on missing fields, and `without` are what arrives of the empty object with the same values for them. A value
/// that is at the same place of `from` is no default.
fn dependent([one, other]: [&Value; 2], without: [Option<&Value>; 2], from: Option<&Value>) -> Option<Value> {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let member = |(key, value): (&String, &Value)| {
                let without = without.map(|value| value.and_then(|value| value.get(key)));
                let from = from.and_then(|from| from.get(key));
                Some((key.clone(), dependent([value, other.get(key)?], without, from)?))
            };
            let members: Map<String, Value> = one.iter().filter_map(member).collect();
            (!members.is_empty() || from.is_some_and(Value::is_object)).then_some(Value::Object(members))
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() && !one.is_empty() => {
            let from = |index: usize| from.and_then(|from| from.get(index));
            let elements = one.iter().zip(other).enumerate();
            let elements = elements.filter_map(|(index, (one, other))| {
                let element = dependent([one, other], [None, None], from(index));
                element.or_else(|| one.is_object().then(|| json!({})))
            });
            let elements: Vec<Value> = elements.collect();
            (!elements.is_empty()).then_some(Value::Array(elements))
        }
        _ => {
            let differs = |without: Option<&Value>, now: &Value| without.is_some_and(|without| without != now);
            let depends = if one == other {
                // A value that missing fields do not change is a default if the empty object gives it, too.
                without != [Some(one), Some(other)] || from == Some(one)
            } else {
                // A value that they change depends on them alone if the empty object gives the same, or none.
                differs(without[0], one) || differs(without[1], other)
            };
            depends.then(|| one.clone())
        }
    }
}
