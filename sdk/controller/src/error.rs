//! What makes a reconcile fail. Every variant is retried with backoff.

use super::apply::{ApplyError, DocumentError, Refusal};
use portcullis_client::own_sentence;

/// Why a reconcile did not come to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// A child was not written.
    #[error(transparent)]
    Child(#[from] ApplyError),
    /// The plan holds a document that cannot be applied.
    #[error("the plan is defective: {0}")]
    Plan(#[from] DocumentError),
    /// An object that is not ours has the name of a child.
    #[error("{object}: {refusal}")]
    NameTaken {
        /// Kind, namespace and name of the child.
        object: String,
        /// Whose it is.
        refusal: Refusal,
    },
    /// A request about the object itself failed.
    #[error("cannot {verb} {object}: {}", own_sentence(&**source))]
    Request {
        /// What was tried.
        verb: &'static str,
        /// Kind, namespace and name.
        object: String,
        /// What the API server said.
        source: Box<kube::Error>,
    },
    /// The API server did not answer in time.
    #[error("no answer within {seconds} s to {verb} {object}")]
    Deadline {
        /// What was tried.
        verb: &'static str,
        /// Kind, namespace and name.
        object: String,
        /// The deadline, in seconds.
        seconds: u64,
    },
    /// The namespace was handed over, or another replica leads, since the reconcile began.
    #[error("{object} is not ours to write any more")]
    HandedOver {
        /// Kind, namespace and name.
        object: String,
    },
    /// A validator came to no verdict.
    #[error("cannot validate {object}: {problem}")]
    Undecided {
        /// Kind, namespace and name.
        object: String,
        /// Which webhook's handler, and why.
        problem: String,
    },
    /// The status cannot be turned into JSON.
    #[error("cannot write the status of {object}: {source}")]
    Status {
        /// Kind, namespace and name.
        object: String,
        /// What is wrong.
        source: serde_json::Error,
    },
}
