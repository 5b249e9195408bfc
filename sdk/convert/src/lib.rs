//! Conversion of Kubernetes objects between the versions of their kind. No IO, no clock, no client.
//!
//! The API server converts objects of a CustomResourceDefinition with several versions by sending a *conversion review*
//! to a webhook. This crate computes the response from the request body.
//!
//! One version is the **hub**, usually the one that is stored; every other one is a **spoke** and has two converters,
//! to the hub and from it. Every conversion goes through the hub, so three versions need four functions.
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
//! # What converters need not handle
//!
//! * **Metadata** is copied byte by byte. Converters may read it (without `managedFields`); their changes to it are
//!   ignored.
//! * **Data that a version cannot express.** After each conversion the engine converts back. What that would change is
//!   stored in the annotation [`STASH`], and restored when the object is converted back: `Cher`, who has no last name,
//!   is `Cher` again and not `"Cher "`. A value is restored only if the other version still has the value that it had
//!   when it was stored. If it was changed since, the newer edit wins. Nothing is restored into a deleted parent or
//!   list element, or where it would contradict the current object.
//! * **Fields unknown to a type**, and null or empty ones that it treats as missing, are copied to the same place of
//!   the other version if that does not change its meaning, and are stored in the stash as well, since the API server
//!   prunes them if the schema lacks them.
//! * **Parts of objects.** Server-side apply converts what single field managers own, which may lack required fields, or
//!   all metadata. Converters get such an object with values for what is missing, and the result has what depends on
//!   the rest. [`Converted::partial`] is set, unless the object comes from storage or goes there.
//! * **Objects that do not convert.** An error for one object would fail the whole list that the API server requested,
//!   and with it deletion and garbage collection. So an object that does not decode as its version for another reason,
//!   or whose converter fails or panics, is returned unchanged under the other version, and is restored when it is
//!   converted back. The annotation [`PROBLEM`] and [`Converted::problem`] give the reason, without values of the
//!   object. They do so of an object that lacks fields, too.
//!
//! # Limitations
//!
//! Defaults that a type writes are written, though no client sent them. Numbers and times are written as the type
//! writes them. An unknown field that is deleted in the other version comes back, unless another one beside it is still
//! there, since it looks like a pruned one. Objects of more than 8 MiB are returned unchanged, and so are those of more
//! than 131,072 values unless they lose nothing. Elements of lists are matched by `name`, `key` and the like, or by
//! their value: if a version shortens a list and the list is edited there, nothing of it is restored.
//!
//! A stash holds 64 KiB, and all annotations of an object together 256 KiB. An object whose loss has no room there is
//! returned without it, with the label [`INCOMPLETE`]: an error would fail the list that it is in. Such an object must
//! not be stored. An engine that knows the stored version ([`Engine::set_storage`]) refuses to convert it back to that
//! one, which is how the API server begins every write in another version.
//!
//! # Performance
//!
//! An object that loses nothing is decoded once, converted there and back, and written once; no JSON tree is built. For
//! an object of 10 kB, half of it managed fields, that takes a little more than 30 µs. An object with a stash, or with
//! fields unknown to its type, takes several times as long.

mod digest;
mod edge;
mod engine;
mod fast;
mod fill;
mod graph;
mod in_conversion;
mod json;
mod members;
mod object;
mod partial;
mod pieces;
mod problem;
mod review;
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
pub use version::{ConverterFn, Version};

/// Annotation in which the engine stores data that the version of an object cannot express, until the object is
/// converted back. Users should not change it. Without it, the conversion uses only the object itself.
pub const STASH: &str = "conversion.portcullis.dev/stash";

/// Label of an object that lacks data which it has in another version, because its annotations had no room for a
/// [`STASH`] with them. Its value is the version that has the data. Unlike annotations, labels have no limit for all of
/// them together.
pub const INCOMPLETE: &str = "conversion.portcullis.dev/incomplete";

/// Annotation that says why an object was converted only in part: path and problem, never a value. Where annotations
/// have no room for it, only [`Converted::problem`] has it.
pub const PROBLEM: &str = "conversion.portcullis.dev/problem";
