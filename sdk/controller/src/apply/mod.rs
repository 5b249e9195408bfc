//! Server-side apply of children, and the decision whether a write is needed at all.
//!
//! A child is written when it is absent, when the digest of its desired document differs from the one in its
//! [`FieldManager::digest`] annotation, or when the controller's entry in its `managedFields` no longer owns every
//! desired field: another client that changes a value takes the field over, one that adds a label does not. Values are
//! never compared, so API-server defaults, quantities and mutating webhooks of others cannot cause a loop of writes.
//! Fields that no other manager may hold ([`FieldManager::exclusive`]) are removed, whatever their values.

mod decide;
mod digest;
mod document;
mod fields;
mod live;
mod repairs;
mod send;
mod status;

pub use decide::{Refusal, refusal};
pub use document::{Desired, DocumentError};
pub use live::{FieldManager, Live, version_number};
pub use send::ApplyError;

pub(super) use document::prune;
pub(super) use live::owned_fields;
pub(super) use repairs::Undone;
pub(super) use send::{Applier, DeleteOutcome, Ensured};
pub(super) use status::{StatusState, apply_empties_status, status_needs_apply};
