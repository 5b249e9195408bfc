//! The star of versions: one hub, and two converters for every other version.

use std::fmt;
use std::marker::PhantomData;

use crate::edge::Edge;
use crate::version::{Codec, Converter, ConverterFn, Version, converter};

/// The hub version of a kind, which every other version is converted to and from (usually the storage version), and its
/// spokes.
///
/// Converters should succeed for every object. One may return an [error](ConverterFn) if there is no valid result: the
/// object is then returned unchanged, with the annotation [`PROBLEM`](crate::PROBLEM). Data that a version cannot
/// express needs no error and no code: the [`Engine`](crate::Engine) stores it in an annotation.
pub struct Hub<H> {
    spokes: Vec<(Kind, Spoke)>,
    hub: PhantomData<fn() -> H>,
}

/// A version that is not the hub, and its way there and back.
pub(crate) struct Spoke {
    pub(crate) codec: Codec,
    pub(crate) to_hub: Converter,
    pub(crate) from_hub: Converter,
}

impl Spoke {
    fn up<'g>(&'g self, hub: &'g Codec) -> Edge<'g> {
        Edge { from: &self.codec, to: hub, there: &self.to_hub, back: &self.from_hub }
    }
}

/// Everything that an [`Engine`](crate::Engine) knows.
pub(crate) struct Graph {
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) plural: String,
    pub(crate) hub: Codec,
    pub(crate) spokes: Vec<Spoke>,
}

/// The kind of a type.
#[derive(PartialEq, Eq)]
struct Kind {
    group: String,
    kind: String,
}

impl Kind {
    fn of<V: Version>() -> Self {
        Self { group: V::group(&()).into_owned(), kind: V::kind(&()).into_owned() }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of group {:?}", self.kind, self.group)
    }
}

/// Converters that do not match each other or the CustomResourceDefinition: an error in the program, which should not
/// start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// The type of a spoke is of another kind than the hub.
    #[error("spoke {version} is {found}, but the hub is {expected}; all versions share group and kind")]
    OtherKind {
        /// Version of the spoke.
        version: String,
        /// Kind and group of the spoke.
        found: String,
        /// Kind and group of the hub.
        expected: String,
    },
    /// Two types (spokes, or the hub and a spoke) have the same version.
    #[error("version {version} of {kind} is registered twice; register one type for each version")]
    DuplicateVersion {
        /// Kind of the graph.
        kind: String,
        /// The version.
        version: String,
    },
    /// A version of the CustomResourceDefinition has no converters: its objects could not be read.
    #[error("version {version} of {kind} has no converters; add .spoke() for it or remove it from the CRD")]
    NoConverters {
        /// Kind of the graph.
        kind: String,
        /// The version.
        version: String,
    },
    /// A version has converters, but is not in the CustomResourceDefinition.
    #[error("version {version} of {kind} has converters, but the CRD lacks it; add it there or remove the converters")]
    NotInCrd {
        /// Kind of the graph.
        kind: String,
        /// The version.
        version: String,
    },
}

impl<H: Version> Hub<H> {
    /// Creates a hub without spokes.
    pub fn new() -> Self {
        Self { spokes: Vec::new(), hub: PhantomData }
    }

    /// Adds a version with its converters to the hub and back.
    #[must_use]
    pub fn spoke<S: Version>(mut self, to_hub: impl ConverterFn<S, H>, from_hub: impl ConverterFn<H, S>) -> Self {
        let spoke = Spoke { codec: Codec::of::<S>(), to_hub: converter(to_hub), from_hub: converter(from_hub) };
        self.spokes.push((Kind::of::<S>(), spoke));
        self
    }

    /// The versions as a graph, if they are of one kind and no two are the same.
    pub(crate) fn graph(self) -> Result<Graph, GraphError> {
        let (kind, hub) = (Kind::of::<H>(), Codec::of::<H>());
        let mut spokes: Vec<Spoke> = Vec::with_capacity(self.spokes.len());
        for (found, spoke) in self.spokes {
            let version = spoke.codec.version.clone();
            if found != kind {
                return Err(GraphError::OtherKind { version, found: found.to_string(), expected: kind.to_string() });
            }
            if version == hub.version || spokes.iter().any(|other| other.codec.version == version) {
                return Err(GraphError::DuplicateVersion { kind: kind.kind, version });
            }
            spokes.push(spoke);
        }
        let plural = H::plural(&()).into_owned();
        Ok(Graph { group: kind.group, kind: kind.kind, plural, hub, spokes })
    }
}

impl<H: Version> Default for Hub<H> {
    fn default() -> Self {
        Self::new()
    }
}

impl<H> fmt::Debug for Hub<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spokes: Vec<&str> = self.spokes.iter().map(|(_, spoke)| &*spoke.codec.version).collect();
        f.debug_struct("Hub").field("spokes", &spokes).finish()
    }
}

impl Graph {
    /// All versions, the hub first.
    pub(crate) fn codecs(&self) -> impl Iterator<Item = &Codec> {
        std::iter::once(&self.hub).chain(self.spokes.iter().map(|spoke| &spoke.codec))
    }

    /// The edges from one version to another one.
    pub(crate) fn route(&self, from: &str, to: &str) -> Vec<Edge<'_>> {
        let spoke = |version: &str| self.spokes.iter().find(|spoke| spoke.codec.version == version);
        let up = spoke(from).map(|spoke| spoke.up(&self.hub));
        let down = spoke(to).map(|spoke| spoke.up(&self.hub).reversed());
        up.into_iter().chain(down).collect()
    }

    pub(crate) fn cover<'a>(&self, crd_versions: impl IntoIterator<Item = &'a str>) -> Result<(), GraphError> {
        let crd_versions: Vec<&str> = crd_versions.into_iter().collect();
        let kind = || self.kind.clone();
        if let Some(version) = crd_versions.iter().find(|v| self.codecs().all(|codec| codec.version != **v)) {
            return Err(GraphError::NoConverters { kind: kind(), version: (*version).to_owned() });
        }
        match self.codecs().find(|codec| !crd_versions.contains(&&*codec.version)) {
            Some(codec) => Err(GraphError::NotInCrd { kind: kind(), version: codec.version.clone() }),
            None => Ok(()),
        }
    }
}
