//! Conversion of Kubernetes objects between the versions of their kind. No IO, no clock, no client.
//!
//! A CustomResourceDefinition with several versions needs somebody who turns an object of one into an object of
//! another. The API server asks for it with a *conversion review*; this crate is what happens to the bytes.
//!
//! One version is the **hub**, usually the one that is stored; every other one is a **spoke** and has two converters,
//! to the hub and from it. Whatever is asked for goes through the hub, so three versions need four functions.
//!
//! ```
//! use portcullis_convert::{Hub, Review};
//!
//! mod v1 {
//!     use kube::CustomResource;
//!     use schemars::JsonSchema;
//!     use serde::{Deserialize, Serialize};
//!
//!     #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
//!     #[kube(group = "demo.example", version = "v1", kind = "Entity", namespaced)]
//!     pub struct EntitySpec {
//!         pub name: String,
//!     }
//! }
//! mod v2 {
//! #   use kube::CustomResource;
//! #   use schemars::JsonSchema;
//! #   use serde::{Deserialize, Serialize};
//!     #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
//!     #[kube(group = "demo.example", version = "v2", kind = "Entity", namespaced)]
//!     pub struct EntitySpec {
//!         pub firstname: String,
//!         pub lastname: String,
//!     }
//! }
//!
//! let engine = Hub::<v2::Entity>::new()
//!     .spoke(
//!         |old: v1::Entity| {
//!             let (firstname, lastname) = old.spec.name.split_once(' ').unwrap_or((&old.spec.name, ""));
//!             v2::Entity::new("", v2::EntitySpec { firstname: firstname.into(), lastname: lastname.into() })
//!         },
//!         |new: v2::Entity| {
//!             let name = format!("{} {}", new.spec.firstname, new.spec.lastname);
//!             v1::Entity::new("", v1::EntitySpec { name })
//!         },
//!     )
//!     .build()?;
//! engine.cover(["v1", "v2"])?; // The versions of the CRD, neither more nor less.
//!
//! let body = br#"{"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": {
//!     "uid": "705ab4f5", "desiredAPIVersion": "demo.example/v2", "objects": [
//!         {"apiVersion": "demo.example/v1", "kind": "Entity", "metadata": {"name": "ada", "labels": {"a": "b"}},
//!          "spec": {"name": "Ada Lovelace"}}]}}"#;
//! let review = Review::parse(body)?;
//! let mut converted = Vec::new();
//! for object in &review.objects {
//!     converted.push(engine.convert(object, &review.desired_api_version)?);
//! }
//! let answer = String::from_utf8(review.success(&converted))?;
//! assert!(answer.contains(r#""metadata":{"name": "ada", "labels": {"a": "b"}}"#));
//! assert!(answer.contains(r#""spec":{"firstname":"Ada","lastname":"Lovelace"}"#));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What converters need not think of
//!
//! * **Metadata** goes over as it came, byte by byte. Converters may read it (without `managedFields`); what they write
//!   into it counts for nothing.
//! * **What a version cannot say.** After every conversion the way back is tried. What it would change is kept in the
//!   annotation [`STASH`], and restored when the object comes back: `Cher`, who has no last name, is `Cher` again and
//!   not `"Cher "`. A value is restored only where the other side still says what it said when it was kept. Where
//!   somebody changed it since, the newer edit wins; into a parent or a list element that was deleted nothing is
//!   restored; and nothing that would contradict what the object says now.
//! * **Members that a type does not know**, and null or empty ones that it holds for missing, are put at the same place
//!   of the other version if that makes no difference to it, and are kept in the stash as well: the API server prunes
//!   them there if the schema lacks them.
//! * **Objects that do not convert.** An error for one object fails the whole list that the API server asked for, and
//!   with it deletion and garbage collection. So an object that does not read as its version, or whose converter
//!   fails or panics, goes over as it is, says why in the annotation [`PROBLEM`] and in [`Converted::problem`], and comes back
//!   as it was. Neither holds a value of the object.
//!
//! # What it does not do
//!
//! Defaults that a type writes without anybody having sent them are written. Numbers and times are written as the
//! type writes them. An unknown member that somebody deletes in the other version comes back, unless another one beside
//! it is still there: it cannot be told from a pruned one. Objects of more than 8 MiB go over as they are, and so do
//! those of more than 131,072 values unless they lose nothing. A stash has a limit of 64 KiB; what is larger is lost on the way back, and the object is flagged.
//! Elements of lists are told apart by `name`, `key` and the like, or else by their value: of a list that a version
//! shortens, nothing is restored once somebody edited it there.
//!
//! # What it costs
//!
//! An object that loses nothing is decoded once, converted there and back, and written once; no JSON tree is built.
//! For an object of 10 kB, half of it managed fields, that is a little more than 30 µs. An object with a stash, or with members that
//! its type does not know, costs several times as much.

mod edge;
mod engine;
mod fast;
mod graph;
mod in_conversion;
mod key;
mod members;
mod object;
mod problem;
mod review;
mod source;
mod stash;
mod trace;
mod unknown;
mod version;
mod watch;

pub use engine::{ConvertError, Converted, Engine};
pub use graph::{GraphError, Hub};
pub use portcullis_review::{BoxError, IntoResult};
pub use problem::Problem;
pub use review::{EnvelopeError, Review, ReviewVersion};
pub use stash::same_stash;
pub use version::{ConverterFn, Version};

/// Annotation in which the engine keeps what the version of an object cannot express, until the object is converted
/// back. Users leave it alone; without it the conversion goes on with what the object itself says.
pub const STASH: &str = "conversion.portcullis.dev/stash";

/// Annotation that says why an object could only be converted as far as it goes: path and problem, never a value.
pub const PROBLEM: &str = "conversion.portcullis.dev/problem";
