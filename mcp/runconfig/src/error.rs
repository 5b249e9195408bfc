//! What is wrong with a document, said so that its author can mend it.

/// A document that does not parse: where, what, and how to mend it.
///
/// The caller shows it and gives up; nothing about it can be retried.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("{field}: {problem}; {fix}")]
pub struct ParseError {
    /// The path of the member, such as `middleware_configs[2].type`; `document` for the whole.
    pub field: String,
    /// What is wrong with it.
    pub problem: String,
    /// What to write instead.
    pub fix: String,
}

impl ParseError {
    /// What is wrong with the member at `field`, and how to mend it.
    pub fn new(field: impl Into<String>, problem: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into(), fix: fix.into() }
    }
}
