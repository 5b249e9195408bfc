//! The Kubernetes admission review on the wire, without IO, without a clock, without a client.
//!
//! Four things that a webhook server does to bytes, each of them pure:
//!
//! * [`Review::parse`] reads the envelope first. Objects stay raw slices of the request body, so the `uid` can be
//!   echoed even when the object does not decode, and nothing is decoded that nobody asks for.
//! * [`decode`] turns a raw object into a type, with the path of the field that did not fit;
//!   [`decode_without_managed_fields`] leaves out what is half of most objects and of use to few handlers.
//! * [`edit`] carries what a handler changed on a *typed* object over to the *raw* object: members that the type does
//!   not know stay, defaults that only the type writes do not become changes. The patch is applied here and compared
//!   before anyone may send it.
//! * [`Review::answer`] writes the answer as the API server wants it: patch as one base64 string, a denial with code,
//!   reason, message and causes, warnings within the lengths that Kubernetes keeps.
//!
//! ```
//! use portcullis_review::{Review, Verdict};
//!
//! let body = br#"{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
//!     "uid": "705ab4f5", "operation": "CREATE", "name": "a", "userInfo": {},
//!     "kind": {"group": "demo.example", "version": "v1", "kind": "Entity"},
//!     "resource": {"group": "demo.example", "version": "v1", "resource": "entities"},
//!     "object": {"spec": {"username": "forbidden"}}}}"#;
//! let review = Review::parse(body)?;
//! let answer = review.answer(&Verdict::deny("name may not be 'forbidden'.").code(422), None);
//! let answer = String::from_utf8(answer)?;
//! assert!(answer.contains(r#""uid":"705ab4f5","allowed":false"#));
//! assert!(answer.contains(r#""reason":"Invalid","code":422"#));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod answer;
mod carry;
mod decode;
mod edit;
mod envelope;
mod field;
mod managed_fields;
mod object;
mod patch;
mod result;
#[doc(hidden)]
pub mod scan;
mod verdict;

pub use carry::carry;
pub use decode::{DecodeError, decode, decode_without_managed_fields};
pub use edit::{Edited, edit};
pub use envelope::{
    EnvelopeError, GroupVersionKind, GroupVersionResource, Operation, Request, Review, ReviewVersion, UserInfo,
};
pub use field::Field;
pub use object::{changes_only_metadata_and_status, is_being_deleted};
pub use patch::{Patch, PatchError, diff};
pub use result::{BoxError, IntoResult, with_sources};
// For the conversion engine, which reads objects in the same way.
#[doc(hidden)]
pub use verdict::{Cause, Denial, Verdict};

/// The largest admission review that is read, in bytes: 7 MiB.
///
/// etcd holds objects of 1.5 MiB at most and the API server reads requests of 3 MiB; an update carries the object
/// twice. This is the limit that controller-runtime chose for the same reason.
pub const ADMISSION_LIMIT: usize = 7 * 1024 * 1024;

/// The deepest nesting of arrays and objects that [`decode`] and [`edit`] follow. Reading an envelope has no limit of
/// depth and needs none: it does not recurse.
pub const MAX_DEPTH: usize = 127;
