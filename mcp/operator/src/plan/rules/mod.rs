//! What an object must keep that its schema cannot say. The plans and the admission webhooks ask the same functions.

mod fields;
mod metadata;
mod server;
mod webhook_config;

use std::fmt;

pub use fields::{fields_without_effect, transport_not_built, unbuilt_guards};
pub use server::{check_server, pod_template_problems, spec_problems};
pub use webhook_config::check_webhook_config;

pub(super) use webhook_config::translate;

/// One rule that an object breaks, in words for its author.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The field, such as `spec.validating[0].url`.
    pub field: String,
    /// What is wrong with it and how to mend it.
    pub message: String,
}

impl Problem {
    pub(super) fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// The problems in one line, as many as somebody reads.
pub(super) fn sentences(problems: &[Problem], say: impl Fn(&Problem) -> String) -> String {
    const SAID: usize = 10;
    let mut sentences: Vec<String> = problems.iter().take(SAID).map(say).collect();
    if let Some(more) = problems.len().checked_sub(SAID).filter(|more| *more > 0) {
        sentences.push(format!("and {more} more"));
    }
    sentences.join("; ")
}
