//! Conversion of Kubernetes objects between the versions of their kind.

mod crossing;
mod engine;
mod fast;
mod graph;
mod members;
mod object;
mod problem;
mod review;
mod scan;
mod stash;
mod trip;
mod unknown;
mod version;

pub use engine::{ConvertError, Converted, Engine};
pub use graph::{GraphError, Hub};
pub use problem::Problem;
pub use review::{EnvelopeError, Review, ReviewVersion};
pub use version::Version;

/// Annotation in which the engine keeps what the version of an object cannot express, until the object is converted
/// back. Users leave it alone; without it the conversion goes on with what the object itself says.
pub const STASH: &str = "conversion.portcullis.dev/stash";

/// Annotation that says why an object could only be converted as far as it goes: path and problem, never a value.
pub const PROBLEM: &str = "conversion.portcullis.dev/problem";
