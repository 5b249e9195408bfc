//! Errors of policies, with their position.

/// Policies that cannot be used. The sentence begins with the member of [`CedarConfig`](mcp_runconfig::CedarConfig).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// There is none.
    #[error("policies is empty; write at least one policy")]
    NoPolicies,
    /// A text is not exactly one policy.
    #[error("policies[{entry}] is not one Cedar policy: line {line}, column {column}: {problem}")]
    Policy {
        /// The number of the text, from 0.
        entry: usize,
        /// The line of the error in that text, from 1.
        line: usize,
        /// The column of the error in that line, from 1.
        column: usize,
        /// The error as Cedar says it.
        problem: String,
    },
    /// The entities are not Cedar's JSON.
    #[error("entities_json is not a list of Cedar entities: {0}")]
    Entities(String),
    /// The entities are more than Cedar can keep with all of their ancestors.
    #[error("entities_json has {0}; leave out those that no policy needs")]
    TooManyEntities(&'static str),
    /// The type of groups is no name.
    #[error("group_entity_type {name:?} is not usable: {problem}; write one name such as \"Team\"")]
    GroupType {
        /// The name.
        name: String,
        /// The error.
        problem: String,
    },
}

impl PolicyError {
    /// The member, and what is wrong with it.
    pub fn parts(&self) -> (String, String) {
        let sentence = self.to_string();
        let (member, problem) = sentence.split_once(' ').unwrap_or(("", &sentence));
        (member.to_owned(), problem.to_owned())
    }

    /// An error at this position of a text.
    pub(crate) fn at(entry: usize, text: &str, offset: usize, problem: String) -> Self {
        let before = text.get(..offset).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        Self::Policy { entry, line, column, problem }
    }
}
