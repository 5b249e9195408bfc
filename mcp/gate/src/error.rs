//! Why a chain cannot be built.

use mcp_runconfig::ParseError;
use serde_json::Value;

/// A middleware that cannot be built. The proxy must not start; the author of the RunConfig has to mend it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("{field} ({kind}): {problem}; {fix}")]
pub struct BuildError {
    /// Position in `middleware_configs`.
    pub index: usize,
    /// The middleware's `type`.
    pub kind: String,
    /// The member at fault, as a path from the document's root.
    pub field: String,
    /// What is wrong with it.
    pub problem: String,
    /// How to mend it.
    pub fix: String,
}

/// Where in the document a middleware stands: what every error says.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) index: usize,
    pub(crate) kind: &'a str,
}

impl Place<'_> {
    /// An error about `member` of the middleware.
    pub(crate) fn error(self, member: &str, problem: impl Into<String>, fix: impl Into<String>) -> BuildError {
        let Place { index, kind } = self;
        BuildError {
            index,
            kind: kind.to_owned(),
            field: format!("middleware_configs[{index}].{member}"),
            problem: problem.into(),
            fix: fix.into(),
        }
    }

    /// An error of the document's reader, which names its member from the root itself.
    pub(crate) fn parse(self, ParseError { field, problem, fix, .. }: ParseError) -> BuildError {
        BuildError { index: self.index, kind: self.kind.to_owned(), field, problem, fix }
    }
}

/// A member of a middleware's parameters; as Go's decoder, blind to its case.
pub(crate) fn parameter<'a>(parameters: &'a Value, name: &str) -> Option<&'a Value> {
    let mut members = parameters.as_object()?.iter();
    members.find_map(|(member, value)| member.eq_ignore_ascii_case(name).then_some(value))
}
