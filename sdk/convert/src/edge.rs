//! The conversion of one object from one version to the next, as documents: with the members that the types do not
//! know.

use kube_core::ObjectMeta;
use portcullis_review::error_chain;
use serde_json::{Map, Value};

use crate::json::Document;
use crate::pieces::Pieces;
use crate::problem::{Problem, unless_it_panics};
use crate::trace::Trace;
use crate::unknown::{self, Place};
use crate::version::{Codec, Converter, Object};
use crate::watch::Notice;

/// Two versions, of which one is the hub, and the converters between them.
#[derive(Clone, Copy)]
pub(crate) struct Edge<'g> {
    pub(crate) from: &'g Codec,
    pub(crate) to: &'g Codec,
    pub(crate) there: &'g Converter,
    pub(crate) back: &'g Converter,
}

/// The part of an object that all versions share, as it is passed to converters.
#[derive(Clone, Copy)]
pub(crate) struct Identity<'o> {
    pub(crate) kind: &'o str,
    /// The metadata as JSON, without managed fields and the engine's annotations.
    pub(crate) metadata: &'o str,
    /// The size of the object as it was received, with its stash.
    pub(crate) length: usize,
}

/// An object that was converted from one version to the next.
pub(crate) struct ConvertedDocument {
    /// The source document: the members that its type writes, and those that the type ignores.
    pub(crate) whole: Document,
    /// The paths of the members that the type ignores.
    pub(crate) unnoticed: Vec<Place>,
    /// The converted document.
    pub(crate) arrived: Document,
    /// The ignored members that were copied into it and have content. The API server prunes them again where the schema
    /// of the version lacks them.
    pub(crate) added: Vec<Place>,
    /// Whether converting back is known to give `whole`.
    pub(crate) comes_back: bool,
}

impl Edge<'_> {
    pub(crate) fn reversed(self) -> Self {
        Self { from: self.to, to: self.from, there: self.back, back: self.there }
    }

    /// Converts a document. Members that the type ignores are copied to the same path where that is free, its parent
    /// exists, and they do not change the other version.
    pub(crate) fn convert_document(
        self,
        identity: Identity<'_>,
        document: &Document,
    ) -> Result<ConvertedDocument, Problem> {
        unless_it_panics(|| self.try_to_convert_document(identity, document)).unwrap_or_else(|| Err(self.panicked()))
    }

    fn try_to_convert_document(
        self,
        identity: Identity<'_>,
        document: &Document,
    ) -> Result<ConvertedDocument, Problem> {
        let mut object = identity.read(self.from, document, &Notice::default())?;
        let known = self::document(&*object).ok_or_else(|| does_not_write(self.from))?;
        let unnoticed = unknown::unnoticed(document, &known)
            .ok_or_else(|| Problem::whole(format!("has too many members that {} does not know", self.from.version)))?;
        let (before, metadata) = (trace_of(&*object).ok(), object.metadata().clone());
        let (object, mut arrived) = self.convert(object)?;
        let says = trace_of(&*object).ok();
        let mut comes_back = before.is_some() && self.trace_back(object, metadata) == before;
        let mut added = Vec::new();
        if !unnoticed.is_empty() {
            added = self.add(identity, &mut arrived, says.as_ref(), document, &unnoticed);
            comes_back &=
                added.len() == unnoticed.len() && unnoticed.iter().all(|place| unknown::takes(&known, &arrived, place));
        }
        let mut whole = known;
        for place in &unnoticed {
            unknown::put_back(&mut whole, document, place);
        }
        added.retain(|place| unknown::get(document, place).is_some_and(unknown::says_something));
        Ok(ConvertedDocument { whole, unnoticed, arrived, added, comes_back })
    }

    /// Returns the converted document alone.
    pub(crate) fn arrival(self, identity: Identity<'_>, document: &Document) -> Result<Document, Problem> {
        unless_it_panics(|| self.try_to_arrive(identity, document)).unwrap_or_else(|| Err(self.panicked()))
    }

    fn try_to_arrive(self, identity: Identity<'_>, document: &Document) -> Result<Document, Problem> {
        let notice = Notice::default();
        let object = identity.read(self.from, document, &notice)?;
        let mut trace = Trace::default().with_digests(notice.is_buffered());
        match object.trace(&mut trace) {
            Ok(()) if !notice.passed_over(&trace) => self.convert(object).map(|(_, arrived)| arrived),
            _ => self.convert_document(identity, document).map(|outcome| outcome.arrived),
        }
    }

    /// Returns the members that could be added.
    fn add(
        self,
        identity: Identity<'_>,
        arrived: &mut Document,
        says_now: Option<&Trace>,
        from: &Document,
        places: &[Place],
    ) -> Vec<Place> {
        let says = |document: &Document| {
            identity.read(self.to, document, &Notice::default()).ok().and_then(|object| trace_of(&*object).ok())
        };
        let added: Vec<Place> =
            places.iter().filter(|place| unknown::put_over(arrived, from, place)).cloned().collect();
        if says_now.is_some() && says(arrived).as_ref() == says_now {
            return added;
        }
        for place in &added {
            unknown::remove(arrived, place);
        }
        let Some(before) = says(arrived) else { return Vec::new() };
        let mut fits = |place: &Place| {
            let fits = unknown::put_over(arrived, from, place) && says(arrived).as_ref() == Some(&before);
            if !fits {
                unknown::remove(arrived, place);
            }
            fits
        };
        added.into_iter().take(identity.tries()).filter(|place| fits(place)).collect()
    }

    /// A panic of a type while it is serialised or dropped. A panic of a converter has its own error.
    fn panicked(self) -> Problem {
        Problem::whole(format!("the type of {} or {} panicked", self.from.version, self.to.version))
    }

    fn convert(self, object: Box<dyn Object>) -> Result<(Box<dyn Object>, Document), Problem> {
        let made = unless_it_panics(|| {
            let object = (self.there)(object).map_err(|error| error_chain(&*error))?;
            Ok(document(&*object).map(|document| (object, document)))
        });
        let converter = || format!("the converter from {} to {}", self.from.version, self.to.version);
        let made = made.ok_or_else(|| Problem::whole(format!("{} panicked", converter())))?;
        let made = made.map_err(|error: String| Problem::of_converter(format!("{} failed", converter()), error))?;
        made.ok_or_else(|| does_not_write(self.to))
    }

    /// Converts an object back, and traces the result.
    fn trace_back(self, mut object: Box<dyn Object>, metadata: ObjectMeta) -> Option<Trace> {
        let back = unless_it_panics(|| {
            *object.metadata() = metadata;
            (self.back)(object).ok().and_then(|object| trace_of(&*object).ok())
        });
        back.flatten()
    }
}

impl Identity<'_> {
    /// The number of members, or of stashed paths, that are tried one by one where all together do not fit. The author
    /// of an object decides how many it needs; large objects get fewer, so that none takes long.
    pub(crate) fn tries(self) -> usize {
        const BYTES: usize = 2 * 1024 * 1024;
        (BYTES / self.length.max(1)).clamp(1, 64)
    }

    /// Decodes and encodes a document with the type of a version: the result has what that type knows.
    pub(crate) fn known(self, codec: &Codec, document: &Document) -> Result<Document, Problem> {
        let known = unless_it_panics(|| {
            let object = self.read(codec, document, &Notice::default())?;
            self::document(&*object).ok_or_else(|| does_not_write(codec))
        });
        known.unwrap_or_else(|| Err(type_panicked(codec)))
    }

    /// Reads a document as a version.
    fn read(self, codec: &Codec, document: &Document, notice: &Notice) -> Result<Box<dyn Object>, Problem> {
        let members: Vec<(&str, String)> =
            document.as_object().into_iter().flatten().map(|(key, value)| (&**key, value.to_string())).collect();
        let members: Vec<(&str, &str)> = members.iter().map(|(key, value)| (*key, &**value)).collect();
        let (api_version, kind, metadata) = (&*codec.api_version, self.kind, self.metadata);
        let source = Pieces { api_version, kind, metadata, members: &members };
        let read = unless_it_panics(|| codec.read(source, notice).map_err(|_| codec.explain(source)));
        read.unwrap_or_else(|| Err(type_panicked(codec)))
    }
}

fn type_panicked(codec: &Codec) -> Problem {
    Problem::whole(format!("the type of {} panicked", codec.version))
}

fn does_not_write(codec: &Codec) -> Problem {
    Problem::whole(format!("the type of {} does not serialize to a JSON object", codec.version))
}

fn trace_of(object: &dyn Object) -> serde_json::Result<Trace> {
    let mut trace = Trace::default();
    object.trace(&mut trace)?;
    Ok(trace)
}

/// The members that a type writes, as a document.
pub(crate) fn document(object: &dyn Object) -> Option<Document> {
    let mut json = vec![b'{'];
    object.write(&mut json).ok()?;
    json.push(b'}');
    serde_json::from_slice::<Map<String, Value>>(&json).ok().map(Value::Object)
}
