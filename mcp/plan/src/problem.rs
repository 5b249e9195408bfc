//! A rule that an object breaks, in words for its author.

use std::fmt;

/// One rule that an object breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The field, such as `spec.validating[0].url`.
    pub field: String,
    /// The problem and its fix.
    pub message: String,
}

impl Problem {
    /// A problem with a field.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// The problems in one line, each with its field, at most ten of them.
pub fn sentences(problems: &[Problem]) -> String {
    const SAID: usize = 10;
    let mut sentences: Vec<String> = problems.iter().take(SAID).map(ToString::to_string).collect();
    if let Some(more) = problems.len().checked_sub(SAID).filter(|more| *more > 0) {
        sentences.push(format!("and {more} more"));
    }
    sentences.join("; ")
}
