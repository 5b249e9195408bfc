//! Any version of a kind to any other.

use std::fmt;
use std::sync::Arc;

use serde_json::value::RawValue;

use crate::STASH;
use crate::edge::{Edge, Identity};
use crate::fast;
use crate::graph::{Graph, GraphError, Hub};
use crate::in_conversion::ObjectInConversion;
use crate::json::write_members;
use crate::object::{Incomplete, Object, begin, into_string};
use crate::problem::Problem;
use crate::stash::Stash;
use crate::version::{Codec, Version};

/// Converts the objects of one kind between its versions. Cheap to clone; built by [`Hub::build`].
#[derive(Clone)]
pub struct Engine {
    graph: Arc<Graph>,
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
    /// Why the object was converted only in part. Its annotation [`PROBLEM`](crate::PROBLEM) tells the same.
    pub problem: Option<Problem>,
}

/// An object that cannot be returned in the requested version at all, not even its metadata. The API server sends no
/// such object of a kind whose versions are all covered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConvertError {
    /// The JSON is not an object, or its metadata is missing or not an object.
    #[error("object without {member}; send a Kubernetes object")]
    Incomplete {
        /// The member that is missing or of another type.
        member: &'static str,
    },
    /// The object, or the requested version, is of another group or kind than the engine's.
    #[error("object {who} is {found}, and this converts {expected}; send it to the webhook of its kind")]
    OtherKind {
        /// `namespace/name` of the object.
        who: String,
        /// Its `apiVersion` and kind.
        found: String,
        /// Group and kind that the engine converts.
        expected: String,
    },
    /// The version of the object, or the requested one, has no converters.
    #[error("object {who}: version {version} of {kind} has no converters; it is not one of {known}")]
    UnknownVersion {
        /// `namespace/name` of the object.
        who: String,
        /// The version.
        version: String,
        /// Kind of the engine.
        kind: String,
        /// Versions of the engine.
        known: String,
    },
}

impl<H: Version> Hub<H> {
    /// Builds the engine. Fails when the types are not of one kind, or two have the same version.
    pub fn build(self) -> Result<Engine, GraphError> {
        Ok(Engine { graph: Arc::new(self.graph()?) })
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
        let (converted, problem) = if from.version == to.version {
            (json.to_owned(), None)
        } else {
            let route = self.graph.route(&from.version, &to.version);
            match fast::convert(&object, &route) {
                Some(converted) => (converted, None),
                None => convert_with_care(&object, &route, to),
            }
        };
        let (from, to) = (from.version.clone(), to.version.clone());
        Ok(Converted { object: converted, from, to, namespace: who.namespace, name: who.name, problem })
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
                who: who.to_string(),
                version: version.to_owned(),
                kind: self.graph.kind.clone(),
                known: known.join(", "),
            }
        })
    }

    fn other_kind(&self, who: &Who, found: String) -> ConvertError {
        let expected = format!("{}/* {}", self.graph.group, self.graph.kind);
        ConvertError::OtherKind { who: who.to_string(), found, expected }
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let versions: Vec<&str> = self.versions().collect();
        f.debug_struct("Engine").field("kind", &self.kind()).field("versions", &versions).finish_non_exhaustive()
    }
}

/// Which object it is, as messages say it.
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

/// The way of an object that may lose something, has lost something, or does not convert.
fn convert_with_care(object: &Object<'_>, route: &[Edge<'_>], to: &Codec) -> (String, Option<Problem>) {
    let mut out = Vec::with_capacity(object.metadata.raw.len() + 1024);
    begin(&mut out, &to.api_version, &object.kind);
    let problem = match object.document() {
        Ok(document) => {
            let stash = object.metadata.annotation(STASH);
            let length =
                object.members.iter().map(|member| member.whole.len()).chain(stash.as_deref().map(str::len)).sum();
            let identity = Identity { kind: &object.kind, metadata: &object.metadata.for_converters(), length };
            let stash = Stash::read(stash.as_deref());
            let mut converting = ObjectInConversion { document, stash, problem: None };
            for edge in route {
                converting.go(*edge, identity);
            }
            let problem = converting.problem.as_ref().map(ToString::to_string);
            object.metadata.write(&mut out, converting.stash.write().as_deref(), problem.as_deref());
            write_members(&mut out, &converting.document);
            converting.problem
        }
        // Not even a document: its text goes over, which loses nothing.
        Err(problem) => {
            let stash = object.metadata.annotation(STASH);
            object.metadata.write(&mut out, stash.as_deref(), Some(&problem.to_string()));
            for member in &object.members {
                out.push(b',');
                out.extend_from_slice(member.whole.as_bytes());
            }
            Some(problem)
        }
    };
    out.push(b'}');
    (into_string(out), problem)
}
