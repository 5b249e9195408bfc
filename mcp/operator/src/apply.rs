//! Server-side apply of what a plan wants, and the decision whether a write is needed at all.
//!
//! A child is written when it is absent, when the digest of its desired document differs from the one in its
//! [`names::APPLIED_DIGEST`] annotation, or when our entry in its `managedFields` no longer holds every desired path: a
//! foreign client that changes a value takes the path from us, one that adds a label does not. Values are never
//! compared, so API-server defaults, quantities and admission webhooks of others cannot make a loop.

mod decide;
pub(crate) mod digest;
mod document;
mod fields;
mod live;
mod send;
mod status;

pub use decide::{Decision, Reason, Refusal, decide, refusal};
pub use document::{ChildKind, Desired, DocumentError, prune};
pub use fields::{first_excess, first_missing};
pub use live::{Live, version_number};
pub use send::{Applier, ApplyError, DeleteOutcome, said};
pub use status::{StatusState, status_needs_apply};

/// Keys and names that belong to the apply engine.
pub mod names {
    /// Annotation on every child: the digest of the document that was applied last.
    pub const APPLIED_DIGEST: &str = "portcullis.dev/applied-digest";
    /// Field manager of the children of MCPServers.
    pub const SERVER_CHILDREN: &str = "portcullis-mcpserver";
    /// Field manager of the merge that makes way for an apply which others' list elements would make invalid.
    pub const MERGE: &str = "portcullis-mcpserver-merge";
    /// Field manager of the status of MCPServers.
    pub const SERVER_STATUS: &str = "portcullis-mcpserver-status";
    /// Field manager of the finalizers of both kinds.
    pub const FINALIZERS: &str = "portcullis-finalizers";
    /// Field manager of the status of MCPWebhookConfigs.
    pub const WEBHOOK_CONFIG_STATUS: &str = "portcullis-mcpwebhookconfig-status";
}
