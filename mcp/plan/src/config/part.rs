//! The part of a configuration in a workload, where that depends on what the configuration says.

use std::borrow::Cow;

use super::{ConfigUse, Role};

/// The part of a configuration in a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its role.
    pub role: Role,
    /// The types of middleware that it takes.
    pub middleware: &'static [&'static str],
    /// The word that pods have for it in place of its kind: a proxy that was made when it was something else has another.
    pub mark: Option<&'static str>,
    /// The end of the sentence that says how it is used, where there is more to say than that it is valid.
    pub note: Option<&'static str>,
    /// The reason against it, where it cannot work there.
    pub misfit: Option<Misfit>,
    /// The ends of sentences that begin with the configuration, for the author who applies the workload.
    pub warnings: Vec<&'static str>,
}

/// A reason why a configuration cannot work in a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// One word for it.
    pub reason: &'static str,
    /// The end of a sentence that begins with the configuration.
    pub problem: Cow<'static, str>,
}

impl Part {
    /// The part that a use asks for.
    pub fn of(asked: &ConfigUse) -> Self {
        Self {
            role: asked.role,
            middleware: asked.middleware,
            mark: asked.mark,
            note: None,
            misfit: None,
            warnings: Vec::new(),
        }
    }
}
