//! The Kubernetes admission review on the wire, without IO, without a clock, without a client.
//!
//! Four steps of a webhook server, as pure functions:
//!
//! * [`Review::parse`] reads the envelope. Objects stay raw slices of the request body, so that the response has the
//!   `uid` even when the object does not decode, and only objects that are used are decoded.
//! * [`decode`] decodes a raw object as a type; its error has the path of the field. [`decode_without_managed_fields`]
//!   skips the managed fields, which are half of most objects and useful to few handlers.
//! * [`edit`] applies the changes of a handler on a *typed* object to the *raw* object: unknown fields are kept,
//!   defaults that only the type writes are not added. The patch is applied and compared here before it is returned.
//! * [`Review::answer`] encodes the response as the API server expects it: the patch as one base64 string, a denial
//!   with code, reason, message and causes, warnings within the lengths that Kubernetes keeps.
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

mod decode;
mod edit;
mod envelope;
mod field;
mod managed_fields;
mod merge;
mod object;
mod patch;
mod result;
// The conversion engine uses it, too.
#[doc(hidden)]
pub mod scan;
mod verdict;

pub use decode::{DecodeError, decode, decode_without_managed_fields};
pub use edit::{Edited, edit};
pub use envelope::{EnvelopeError, GroupVersionResource, Operation, Request, Review, ReviewVersion, UserInfo};
pub use field::{Cause, Field};
pub use merge::three_way_merge;
pub use object::{changes_only_metadata_and_status, is_being_deleted};
pub use patch::{Patch, PatchError, diff};
pub use result::{BoxError, IntoResult, error_chain};
pub use verdict::{Denial, Verdict};

/// The maximum size of an admission review in bytes: 7 MiB.
///
/// etcd stores objects of at most 1.5 MiB and the API server accepts requests of 3 MiB; an update contains the object
/// twice. controller-runtime has the same limit for the same reason.
pub const ADMISSION_LIMIT: usize = 7 * 1024 * 1024;

/// The maximum nesting of arrays and objects for [`decode`] and [`edit`]. Parsing an envelope needs no such limit,
/// since it does not recurse.
pub const MAX_DEPTH: usize = 127;
