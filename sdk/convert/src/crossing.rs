//! The way of one object from one version to the next, as documents: with the members that the types do not know.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::{Map, Value};

use crate::problem::Problem;
use crate::source::Source;
use crate::trace::Trace;
use crate::unknown::{self, Place};
use crate::version::{Codec, Converter, Object};
use crate::watch::Notice;

/// With more members than this that make a difference, or places that contradict, the rest is not tried one by one.
pub(crate) const MOST_PLACES: usize = 64;

/// An object without `apiVersion`, `kind` and `metadata`. Always a [`Value::Object`].
pub(crate) type Document = Value;

/// Two versions, of which one is the hub, and the converters between them.
#[derive(Clone, Copy)]
pub(crate) struct Hop<'g> {
    pub(crate) from: &'g Codec,
    pub(crate) to: &'g Codec,
    pub(crate) there: &'g Converter,
    pub(crate) back: &'g Converter,
}

/// What all versions of an object share, as converters see it.
#[derive(Clone, Copy)]
pub(crate) struct Identity<'o> {
    pub(crate) kind: &'o str,
    /// The metadata as JSON, without managed fields and the engine's annotations.
    pub(crate) metadata: &'o str,
}

/// An object that went from one version to the next.
pub(crate) struct Crossing {
    /// The document that went: what its type says, and what the type takes no notice of.
    pub(crate) whole: Document,
    /// Where the members are that it takes no notice of.
    pub(crate) unnoticed: Vec<Place>,
    /// The document that arrived.
    pub(crate) arrived: Document,
    /// Whether the way back of what arrived is known to give `whole`.
    pub(crate) comes_back: bool,
}

/// What a converter made.
struct Made {
    document: Document,
    /// What it says.
    trace: Trace,
    /// Whether the way back says what the source said.
    comes_back: bool,
}

impl Hop<'_> {
    pub(crate) fn reversed(self) -> Self {
        Self { from: self.to, to: self.from, there: self.back, back: self.there }
    }

    /// Takes a document over. Members that the type takes no notice of are put at the same place where that is free,
    /// its parent is there, and they make no difference to the other version.
    pub(crate) fn cross(self, identity: Identity<'_>, document: &Document) -> Result<Crossing, Problem> {
        let object = identity.read(self.from, document)?;
        let known = self::document(&*object).ok_or_else(|| does_not_write(self.from))?;
        let unnoticed = unknown::unnoticed(document, &known);
        let Made { document: mut arrived, trace, mut comes_back } = self.convert(object)?;
        if !unnoticed.is_empty() {
            let added = self.add(identity, &mut arrived, &trace, document, &unnoticed);
            comes_back &= added && unnoticed.iter().all(|place| unknown::takes(&known, &arrived, place));
        }
        let mut whole = known;
        for place in &unnoticed {
            unknown::put_back(&mut whole, document, place);
        }
        Ok(Crossing { whole, unnoticed, arrived, comes_back })
    }

    /// Says whether all of the members could be added.
    fn add(
        self,
        identity: Identity<'_>,
        arrived: &mut Document,
        trace: &Trace,
        from: &Document,
        places: &[Place],
    ) -> bool {
        let says =
            |document: &Document| identity.read(self.to, document).ok().and_then(|object| trace_of(&*object).ok());
        let added: Vec<&Place> = places.iter().filter(|place| unknown::put_over(arrived, from, place)).collect();
        if says(arrived).as_ref() == Some(trace) {
            return added.len() == places.len();
        }
        for place in &added {
            unknown::remove(arrived, place);
        }
        if let Some(before) = says(arrived) {
            for place in added.into_iter().take(MOST_PLACES) {
                if unknown::put_over(arrived, from, place) && says(arrived).as_ref() != Some(&before) {
                    unknown::remove(arrived, place);
                }
            }
        }
        false
    }

    fn convert(self, mut object: Box<dyn Object>) -> Result<Made, Problem> {
        let made = catch_unwind(AssertUnwindSafe(|| {
            let metadata = object.metadata().clone();
            let before = trace_of(&*object).ok()?;
            let object = (self.there)(object)?;
            let trace = trace_of(&*object).ok()?;
            Some((document(&*object)?, object, metadata, before, trace))
        }));
        // The text of a panic may hold values of the object, so it stays where the panic hook wrote it.
        let (from, to) = (&self.from.version, &self.to.version);
        let panicked = |_| Problem::whole(format!("the converter from {from} to {to} panicked"));
        let Some((document, mut object, metadata, before, trace)) = made.map_err(panicked)? else {
            return Err(does_not_write(self.to));
        };
        let back = catch_unwind(AssertUnwindSafe(|| {
            *object.metadata() = metadata;
            (self.back)(object).and_then(|object| trace_of(&*object).ok())
        }));
        let comes_back = back.ok().flatten().is_some_and(|after| after == before);
        Ok(Made { document, trace, comes_back })
    }
}

impl Identity<'_> {
    /// What a version's type says of a document.
    pub(crate) fn known(self, codec: &Codec, document: &Document) -> Result<Document, Problem> {
        let object = self.read(codec, document)?;
        self::document(&*object).ok_or_else(|| does_not_write(codec))
    }

    /// Reads a document as a version.
    fn read(self, codec: &Codec, document: &Document) -> Result<Box<dyn Object>, Problem> {
        let members: Vec<(&str, String)> =
            document.as_object().into_iter().flatten().map(|(key, value)| (&**key, value.to_string())).collect();
        let members: Vec<(&str, &str)> = members.iter().map(|(key, value)| (*key, &**value)).collect();
        let (api_version, kind, metadata) = (&*codec.api_version, self.kind, self.metadata);
        let source = Source { api_version, kind, metadata, members: &members };
        let read = catch_unwind(AssertUnwindSafe(|| {
            codec.read(source, &Notice::default()).map_err(|_| codec.explain(source))
        }));
        read.unwrap_or_else(|_| Err(Problem::whole(format!("the type of {} panicked", codec.version))))
    }
}

fn does_not_write(codec: &Codec) -> Problem {
    Problem::whole(format!("the type of {} does not write as a JSON object", codec.version))
}

fn trace_of(object: &dyn Object) -> serde_json::Result<Trace> {
    let mut trace = Trace::default();
    object.trace(&mut trace)?;
    Ok(trace)
}

/// Appends the members of a document, each with a comma before it.
pub(crate) fn write_members(out: &mut Vec<u8>, document: &Document) {
    for (key, value) in document.as_object().into_iter().flatten() {
        out.push(b',');
        crate::review::write_string(out, key);
        out.push(b':');
        // A document always writes as JSON, and memory does not refuse.
        let _ = serde_json::to_writer(&mut *out, value);
    }
}

fn document(object: &dyn Object) -> Option<Document> {
    let mut json = vec![b'{'];
    object.write(&mut json).ok()?;
    json.push(b'}');
    serde_json::from_slice::<Map<String, Value>>(&json).ok().map(Value::Object)
}
