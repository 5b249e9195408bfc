//! Converts any version of a kind to any other.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use serde_json::value::RawValue;

use crate::edge::{Edge, Identity};
use crate::fast;
use crate::graph::{Graph, GraphError, Hub};
use crate::in_conversion::ObjectInConversion;
use crate::json::write_members;
use crate::object::{Incomplete, Object, OwnMetadata, begin, into_string};
use crate::problem::Problem;
use crate::stash::Stash;
use crate::version::{Codec, Version};
use crate::{PROBLEM, STASH};

/// Converts the objects of one kind between its versions. Cheap to clone; built by [`Hub::build`].
#[derive(Clone)]
pub struct Engine {
    graph: Arc<Graph>,
    /// The versions in storage, shared by all clones.
    storage: Arc<RwLock<Option<Storage>>>,
}

/// The versions in which the API server stores objects.
struct Storage {
    /// The version of every write.
    version: String,
    /// The versions of objects that are stored.
    stored: Vec<String>,
}

/// An object in the requested version.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Converted {
    /// The object as JSON.
    pub object: String,
    /// Version that it was converted from, such as `v1`.
    pub from: String,
    /// Version that it was converted to.
    pub to: String,
    /// Namespace of the object; empty for cluster-wide kinds.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// The reason why the object was converted only in part. Its annotation [`PROBLEM`](crate::PROBLEM) says the same.
    pub problem: Option<Problem>,
    /// Whether it may be the part of an object that some field managers own, as server-side apply converts it: its
    /// problem is that it lacks fields, and it has a resource version or no managed fields. An object that is read from
    /// storage or written to it has managed fields, and no resource version.
    pub partial: bool,
}

/// An object that cannot be returned in the requested version at all, not even its metadata. The API server sends no
/// such object of a kind whose versions are all covered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConvertError {
    /// The JSON is not an object, or its metadata is not one.
    #[error("object without {member}; send a Kubernetes object")]
    Incomplete {
        /// The member that is missing or of another type.
        member: &'static str,
    },
    /// The object, or the requested version, is of another group or kind than the engine's.
    #[error("object {object} is {found}, and this converts {expected}; send it to the webhook of its kind")]
    OtherKind {
        /// `namespace/name` of the object.
        object: String,
        /// Its `apiVersion` and kind.
        found: String,
        /// Group and kind that the engine converts.
        expected: String,
    },
    /// The version of the object, or the requested one, has no converters.
    #[error("object {object}: version {version} of {kind} has no converters; it is not one of {known}")]
    UnknownVersion {
        /// `namespace/name` of the object.
        object: String,
        /// The version.
        version: String,
        /// Kind of the engine.
        kind: String,
        /// Versions of the engine.
        known: String,
    },
    /// The object lacks data that it has in the stored version ([`INCOMPLETE`](crate::INCOMPLETE)), so it must not be
    /// stored. Only with [`Engine::set_storage`].
    #[error(
        "object {object} is incomplete in {from}, as its annotations have no room for data that {from} cannot hold: update or \
         delete it in {to}, or make its annotations smaller there"
    )]
    LeftOut {
        /// `namespace/name` of the object.
        object: String,
        /// Version of the object.
        from: String,
        /// The stored version.
        to: String,
    },
    /// The stored version cannot hold data of the object, and its annotations have no room for them. Only with
    /// [`Engine::set_storage`].
    #[error(
        "object {object} has data of {from} that {to}, the stored version, cannot hold, and its annotations have no room for \
         them: make the annotations smaller"
    )]
    NoRoom {
        /// `namespace/name` of the object.
        object: String,
        /// Version of the object.
        from: String,
        /// The stored version.
        to: String,
    },
}

impl<H: Version> Hub<H> {
    /// Builds the engine. Fails when the types are not of one kind, or two have the same version.
    pub fn build(self) -> Result<Engine, GraphError> {
        Ok(Engine { graph: Arc::new(self.graph()?), storage: Arc::default() })
    }
}

impl Engine {
    /// Returns the API group of the kind.
    pub fn group(&self) -> &str {
        &self.graph.group
    }

    /// Returns the kind, such as `Person`.
    pub fn kind(&self) -> &str {
        &self.graph.kind
    }

    /// Returns the plural name of the resource, from the hub's type.
    pub fn plural(&self) -> &str {
        &self.graph.plural
    }

    /// Returns the version of the hub, such as `v3`.
    pub fn hub(&self) -> &str {
        &self.graph.hub.version
    }

    /// Returns all versions, the hub's first.
    pub fn versions(&self) -> impl Iterator<Item = &str> {
        self.graph.codecs().map(|codec| &*codec.version)
    }

    /// Checks that every version of a CustomResourceDefinition has converters, and that there are none for other
    /// versions.
    pub fn cover<'a>(&self, crd_versions: impl IntoIterator<Item = &'a str>) -> Result<(), GraphError> {
        self.graph.cover(crd_versions)
    }

    /// Converts an object to the version `desired_api_version`, such as `demo.example/v2`. An object of that version is
    /// returned byte by byte.
    ///
    /// Panics of converters are caught; the object then has a [`problem`](Converted::problem).
    pub fn convert(&self, object: &RawValue, desired_api_version: &str) -> Result<Converted, ConvertError> {
        let json = object.get();
        let object = Object::read(json).map_err(|Incomplete(member)| ConvertError::Incomplete { member })?;
        let who =
            Who { namespace: object.metadata.namespace().into_owned(), name: object.metadata.name().into_owned() };
        if object.kind != self.graph.kind {
            let found = format!("{} {}", object.api_version, object.kind);
            return Err(self.other_kind(&who, found));
        }
        let from = self.codec(&object.api_version, &who)?;
        let to = self.codec(desired_api_version, &who)?;
        let whole = |object: String| Outcome { object, problem: None, incomplete: false, partial: false };
        let outcome = if from.version == to.version {
            whole(json.to_owned())
        } else {
            let route = self.graph.route(&from.version, &to.version);
            match fast::convert(&object, &route) {
                Some(converted) => whole(converted),
                None => convert_with_care(&object, &route, from, to),
            }
        };
        let (from, to) = (from.version.clone(), to.version.clone());
        let Outcome { object: converted, problem, incomplete, partial } = outcome;
        if incomplete && self.is_write(&from, &to) {
            let came_so = object.metadata.incomplete().is_some();
            let who = who.to_string();
            return Err(if came_so {
                ConvertError::LeftOut { object: who, from, to }
            } else {
                ConvertError::NoRoom { object: who, from, to }
            });
        }
        Ok(Converted { object: converted, from, to, namespace: who.namespace, name: who.name, problem, partial })
    }

    /// Sets for this engine and its clones the version in which objects are stored (`storage: true` in the CRD), and
    /// the versions of those that are stored now (`status.storedVersions`).
    ///
    /// A conversion to the stored version from one in which nothing is stored is part of a write, so from then on it
    /// fails for an object that would lose data for want of room in annotations ([`ConvertError::LeftOut`],
    /// [`ConvertError::NoRoom`]). An engine without it converts all objects, since they may be those of a list.
    pub fn set_storage(&self, version: impl Into<String>, stored: impl IntoIterator<Item = String>) {
        let storage = Storage { version: version.into(), stored: stored.into_iter().collect() };
        *self.storage.write().unwrap_or_else(PoisonError::into_inner) = Some(storage);
    }

    fn is_write(&self, from: &str, to: &str) -> bool {
        let storage = self.storage.read().unwrap_or_else(PoisonError::into_inner);
        storage.as_ref().is_some_and(|it| it.version == to && !it.stored.iter().any(|stored| stored == from))
    }

    fn codec(&self, api_version: &str, who: &Who) -> Result<&Codec, ConvertError> {
        let found = self.graph.codecs().find(|codec| codec.api_version == api_version);
        found.ok_or_else(|| {
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            if group != self.graph.group {
                return self.other_kind(who, format!("{api_version} {}", self.graph.kind));
            }
            let known: Vec<&str> = self.versions().collect();
            ConvertError::UnknownVersion {
                object: who.to_string(),
                version: version.to_owned(),
                kind: self.graph.kind.clone(),
                known: known.join(", "),
            }
        })
    }

    fn other_kind(&self, who: &Who, found: String) -> ConvertError {
        let expected = format!("{}/* {}", self.graph.group, self.graph.kind);
        ConvertError::OtherKind { object: who.to_string(), found, expected }
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let versions: Vec<&str> = self.versions().collect();
        f.debug_struct("Engine").field("kind", &self.kind()).field("versions", &versions).finish_non_exhaustive()
    }
}

/// The object's name in messages.
struct Who {
    namespace: String,
    name: String,
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

/// An object in another version.
struct Outcome {
    object: String,
    problem: Option<Problem>,
    /// Whether it lacks data that its annotations have no room for.
    incomplete: bool,
    /// Whether it may be what some field managers own.
    partial: bool,
}

/// Converts an object that may lose something, has lost something, or does not convert.
fn convert_with_care(object: &Object<'_>, route: &[Edge<'_>], from: &Codec, to: &Codec) -> Outcome {
    let metadata = &object.metadata;
    let (annotation, label, room) = (metadata.annotation(STASH), metadata.incomplete(), metadata.room());
    let (document, stash, mut problem, mut incomplete, partial) = match object.document() {
        Ok(document) => {
            let lengths = object.members.iter().map(|member| member.whole.len());
            let length = lengths.chain(annotation.as_deref().map(str::len)).sum();
            let identity = Identity { kind: &object.kind, metadata: &metadata.for_converters(), length };
            let stash = Stash::read(annotation.as_deref(), room);
            let incomplete = label.is_some();
            let mut converting = ObjectInConversion { document, stash, problem: None, incomplete, partial: false };
            for edge in route {
                converting.go(*edge, identity);
            }
            let ObjectInConversion { document, stash, problem, incomplete, partial } = converting;
            (Some(document), stash.write(), problem, incomplete, partial && !metadata.is_of_storage())
        }
        // An object that is not even a document is returned as text, and the API server prunes what the version's
        // schema lacks.
        Err(problem) => (None, annotation.map(Cow::into_owned), Some(problem), true, false),
    };
    if label.is_some() {
        problem.get_or_insert_with(|| {
            Problem::whole("lacks data that its annotations had no room for in an earlier conversion".to_owned())
        });
    }
    let size = |name: &str, value: &str| name.len() + value.len();
    let stash = stash.filter(|stash| {
        let fits = size(STASH, stash) <= room;
        incomplete |= !fits;
        fits
    });
    let left = room - stash.as_deref().map_or(0, |stash| size(STASH, stash));
    let text = problem.as_ref().map(ToString::to_string).filter(|text| size(PROBLEM, text) <= left);
    let value = label.as_deref().unwrap_or(&from.version);
    let own =
        OwnMetadata { stash: stash.as_deref(), problem: text.as_deref(), incomplete: incomplete.then_some(value) };
    let mut out = Vec::with_capacity(metadata.raw.len() + 1024);
    begin(&mut out, &to.api_version, &object.kind);
    metadata.write(&mut out, own);
    match &document {
        Some(document) => write_members(&mut out, document),
        None => {
            for member in &object.members {
                out.push(b',');
                out.extend_from_slice(member.whole.as_bytes());
            }
        }
    }
    out.push(b'}');
    Outcome { object: into_string(out), problem, incomplete, partial }
}
