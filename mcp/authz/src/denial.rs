//! Reasons of denials.

use std::fmt;

/// Why something is denied, for the log. It holds no value of a claim or an argument; the client is told nothing of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Denial {
    /// No policy permits it.
    NoPermit,
    /// These policies forbid it.
    Forbidden(Vec<String>),
    /// These policies cannot be evaluated, each with the reason. Another one may permit it: the error is the stronger (toolhive-auth §4.4).
    Failed(Vec<(String, &'static str)>),
    /// No policy is asked.
    Refused(&'static str),
}

impl Denial {
    /// A value that Cedar does not take: fails closed, and does not occur.
    pub(crate) const UNTOLD: Self = Self::Refused("Cedar does not take what policies are to be told");
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPermit => f.write_str("no policy permits it"),
            Self::Forbidden(policies) => write!(f, "{} forbids it", policies.join(", ")),
            Self::Failed(policies) => {
                let failed: Vec<_> = policies.iter().map(|(policy, problem)| format!("{policy} {problem}")).collect();
                write!(f, "a policy that cannot be evaluated denies: {}", failed.join(", "))
            }
            Self::Refused(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for Denial {}
