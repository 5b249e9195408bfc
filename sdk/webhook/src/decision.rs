//! The decision on a request, and the reasons why there is none.

use portcullis_review::{BoxError, Operation, Patch, PatchError, Verdict, error_chain};

/// The answer, and a note for the log.
#[derive(Debug)]
pub(super) struct Decision {
    pub(super) verdict: Verdict,
    pub(super) patch: Option<Patch>,
    /// The reason for the log, where it is not the denial's message.
    pub(super) note: Option<String>,
}

impl Decision {
    /// The handler's own.
    pub(super) fn by_handler(verdict: Verdict) -> Self {
        Self { verdict, patch: None, note: None }
    }

    /// Allows a request that the handler does not decide.
    pub(super) fn skipped(why: &str) -> Self {
        Self { verdict: Verdict::allow(), patch: None, note: Some(why.to_owned()) }
    }
}

/// The message for the user when a handler failed or panicked.
pub(super) const HANDLER_FAILED: &str = "handler failed";

/// The reason why there is no decision. It becomes an HTTP error, so that the failure policy decides.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The error is for the log alone, because it may contain secrets.
    #[error("{}: {}", HANDLER_FAILED, error_chain(&**.0))]
    Handler(BoxError),
    #[error("this webhook handles {expected}, not {found}; generate its configuration again")]
    Kind { expected: String, found: String },
    #[error("this webhook handles {expected}, not {found}; generate its configuration again")]
    Resource { expected: String, found: String },
    #[error("this webhook has no handler for {0}; generate its configuration again")]
    NoHandler(String),
    #[error("{0} came without the object that it is about")]
    NoObject(Operation),
    /// An object of the request does not decode: the one failure that is a denial.
    #[error("an object of the request does not decode")]
    Undecoded(Box<Decision>),
    #[error("cannot build an admission review for the object: {0}")]
    Unreadable(String),
    #[error("cannot make a patch for the edited object: {0}")]
    Patch(#[from] PatchError),
    #[error("the handler's object does not round-trip through its type: {0}")]
    Unstable(String),
}

impl Failure {
    /// The decision, if this failure is one.
    pub(super) fn into_decision(self) -> Result<Decision, Self> {
        match self {
            Self::Undecoded(decision) => Ok(*decision),
            failure => Err(failure),
        }
    }
}
