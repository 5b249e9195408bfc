//! The verdicts of policies.

use cedar_policy::{AuthorizationError, Authorizer, Decision, Entities, EvaluationError, PolicySet, Request, Response};

use crate::Denial;

/// The verdict of several policies together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Verdict {
    /// The policies that cannot be evaluated.
    failed: Vec<(String, &'static str)>,
    forbid: Vec<String>,
    permits: bool,
}

impl Verdict {
    /// The verdict of a set of policies on a request.
    pub(crate) fn of(request: &Request, policies: &PolicySet, entities: &Entities) -> Self {
        Self::from(&Authorizer::new().is_authorized(request, policies, entities))
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.failed.extend(other.failed);
        self.forbid.extend(other.forbid);
        self.permits |= other.permits;
    }

    /// Whether a policy of it applies: permits, or forbids where none permits.
    pub(crate) fn applies(&self) -> bool {
        self.permits || !self.forbid.is_empty()
    }

    /// The verdict of the policies that cannot be evaluated alone.
    pub(crate) fn only_failures(self) -> Self {
        Self { failed: self.failed, ..Self::default() }
    }

    pub(crate) fn into_decision(self) -> Result<(), Denial> {
        match self {
            // Cedar leaves out a policy that fails, and lets the others decide.
            Self { failed, .. } if !failed.is_empty() => Err(Denial::Failed(sorted(failed))),
            Self { forbid, .. } if !forbid.is_empty() => Err(Denial::Forbidden(sorted(forbid))),
            Self { permits: true, .. } => Ok(()),
            _ => Err(Denial::NoPermit),
        }
    }
}

impl From<&Response> for Verdict {
    fn from(response: &Response) -> Self {
        let failed = response.diagnostics().errors().map(|AuthorizationError::PolicyEvaluationError(error)| {
            (error.policy_id().to_string(), problem(error.inner()))
        });
        let permits = response.decision() == Decision::Allow;
        let decisive = response.diagnostics().reason().filter(|_| !permits);
        Self { failed: failed.collect(), forbid: decisive.map(ToString::to_string).collect(), permits }
    }
}

fn sorted<T: Ord>(mut items: Vec<T>) -> Vec<T> {
    items.sort_unstable();
    items
}

/// Describes an error of a policy without the values that it quotes.
fn problem(error: &EvaluationError) -> &'static str {
    match error {
        EvaluationError::EntityDoesNotExist(_) => "reads an entity that is not there",
        EvaluationError::EntityAttrDoesNotExist(_) | EvaluationError::RecordAttrDoesNotExist(_) => {
            "reads an attribute that is not there"
        }
        EvaluationError::TypeError(_) => "takes a value for one of another type",
        EvaluationError::IntegerOverflow(_) => "calculates a number that is too large",
        EvaluationError::FailedExtensionFunctionExecution(_) => "gives a function a text that it does not take",
        _ => "cannot be evaluated",
    }
}
