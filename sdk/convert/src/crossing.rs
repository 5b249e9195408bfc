//! The way of one object from one version to the next, as documents: with the members that the types do not know.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::{Map, Value};

use crate::object::begin;
use crate::problem::Problem;
use crate::unknown::{self, Place};
use crate::version::{Codec, Converter, Object};

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

/// A document that its version's type took.
pub(crate) struct Reading {
    object: Box<dyn Object>,
    /// What the type says of it.
    pub(crate) known: Document,
    /// Where the members are that it does not know.
    pub(crate) unknown: Vec<Place>,
}

/// An object that went from one version to the next.
pub(crate) struct Crossing {
    /// The document that went: what its type says, and what the type does not know.
    pub(crate) whole: Document,
    /// What the type alone says.
    pub(crate) known: Document,
    /// Where the members are that it does not know.
    pub(crate) unknown: Vec<Place>,
    /// The document that arrived.
    pub(crate) arrived: Document,
}

impl<'g> Hop<'g> {
    pub(crate) fn reversed(self) -> Self {
        Self { from: self.to, to: self.from, there: self.back, back: self.there }
    }

    /// Takes a document over. Members that the type does not know are put at the same place where that is free, its
    /// parent is there, and the other version does not know them either.
    pub(crate) fn cross(self, identity: Identity<'_>, document: &Document) -> Result<Crossing, Problem> {
        let Reading { object, known, unknown } = identity.read(self.from, document)?;
        let mut whole = known.clone();
        for place in &unknown {
            unknown::put_back(&mut whole, document, place);
        }
        let mut arrived = self.convert(object)?;
        let placed: Vec<&Place> =
            unknown.iter().filter(|place| unknown::put_over(&mut arrived, document, place)).collect();
        if !placed.is_empty() {
            let strange = identity.read(self.to, &arrived).map(|reading| reading.unknown).unwrap_or_default();
            for place in placed.into_iter().filter(|place| !strange.contains(place)) {
                unknown::remove(&mut arrived, place);
            }
        }
        Ok(Crossing { whole, known, unknown, arrived })
    }

    fn convert(self, object: Box<dyn Object>) -> Result<Document, Problem> {
        let problem = |what: &str| {
            Problem::whole(format!("the converter from {} to {} {what}", self.from.version, self.to.version))
        };
        let written = catch_unwind(AssertUnwindSafe(|| {
            let object = (self.there)(object)?;
            document(&*object)
        }));
        match written {
            Ok(Some(document)) => Ok(document),
            Ok(None) => Err(problem("made an object that does not write as JSON")),
            // The text of a panic may hold values of the object, so it stays where the panic hook wrote it.
            Err(_) => Err(problem("panicked")),
        }
    }
}

impl Identity<'_> {
    /// Reads a document as a version.
    pub(crate) fn read(self, codec: &Codec, document: &Document) -> Result<Reading, Problem> {
        let json = self.write(codec, document);
        let read = catch_unwind(AssertUnwindSafe(|| {
            let mut unknown = Vec::new();
            let object = codec.read(&json, &mut |path| {
                if !unknown::is_engines(path) {
                    unknown.push(unknown::place(path));
                }
            });
            match object {
                Ok(object) => {
                    let known = document_of(&*object, codec)?;
                    Ok(Reading { object, known, unknown })
                }
                Err(_) => Err(codec.explain(&json)),
            }
        }));
        read.unwrap_or_else(|_| Err(Problem::whole(format!("the type of {} panicked", codec.version))))
    }

    fn write(self, codec: &Codec, document: &Document) -> String {
        let mut json = Vec::with_capacity(4096);
        begin(&mut json, &codec.api_version, self.kind);
        json.extend_from_slice(self.metadata.as_bytes());
        write_members(&mut json, document);
        json.push(b'}');
        crate::object::into_string(json)
    }
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

fn document_of(object: &dyn Object, codec: &Codec) -> Result<Document, Problem> {
    document(object).ok_or_else(|| Problem::whole(format!("the type of {} does not write as JSON", codec.version)))
}
