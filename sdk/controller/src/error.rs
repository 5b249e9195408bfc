//! Errors of a reconcile. Every one is retried with backoff.

use super::apply::{ApplyError, DocumentError, Refusal};
use portcullis_client::error_message;

/// The reason why a reconcile failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// A child could not be written.
    #[error(transparent)]
    Child(#[from] ApplyError),
    /// A child's document cannot be applied.
    #[error("cannot apply a child: {0}")]
    Document(#[from] DocumentError),
    /// An object that does not belong to this controller has the name of a child.
    #[error("{object}: {refusal}")]
    NameTaken {
        /// Kind, namespace and name of the child.
        object: String,
        /// The reason why it is left alone.
        refusal: Refusal,
    },
    /// A request about the object itself failed.
    #[error("cannot {verb} {object}: {}", error_message(&**source))]
    Request {
        /// The attempted action.
        verb: &'static str,
        /// Kind, namespace and name.
        object: String,
        /// The API server's answer.
        source: Box<kube::Error>,
    },
    /// A request of the reconcile's own failed.
    #[error("{}", error_message(&**.0))]
    Client(Box<kube::Error>),
    /// The API server did not answer in time.
    #[error("no answer within {seconds} s to {verb} {object}")]
    Timeout {
        /// The attempted action.
        verb: &'static str,
        /// Kind, namespace and name.
        object: String,
        /// The timeout, in seconds.
        seconds: u64,
    },
    /// The namespace was handed over to another operator, or this replica lost leadership, since the reconcile began.
    #[error("{object} belongs to another operator or replica now")]
    HandedOver {
        /// Kind, namespace and name.
        object: String,
    },
    /// A validator could not evaluate the object.
    #[error("cannot validate {object}: {problem}")]
    Validation {
        /// Kind, namespace and name.
        object: String,
        /// The webhook whose handler failed, and its error.
        problem: String,
    },
    /// The status cannot be serialised to JSON.
    #[error("cannot write the status of {object}: {source}")]
    Status {
        /// Kind, namespace and name.
        object: String,
        /// The error of the serialiser.
        source: serde_json::Error,
    },
}

impl ControllerError {
    /// Whether the definition of the controller has to change: no retry helps.
    pub(super) fn is_mistake(&self) -> bool {
        matches!(self, Self::Document(DocumentError::UnknownKind { .. }))
    }
}

impl From<kube::Error> for ControllerError {
    fn from(error: kube::Error) -> Self {
        Self::Client(Box::new(error))
    }
}
