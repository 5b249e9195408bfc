//! Decisions.

use cedar_policy::{
    AuthorizationError, Authorizer, Context, Decision, Entity, EvaluationError, Request, Response, RestrictedExpression,
};

use crate::hints;
use crate::policies::uid;
use crate::shape::with_stack;
use crate::value::{self, Attributes};
use crate::{Caller, Denial, Policies, Question};

impl Policies {
    /// Decides whether the caller may do what the question asks for.
    ///
    /// # Errors
    /// It may not.
    pub fn decide(&self, caller: &Caller, question: &Question<'_>) -> Result<(), Denial> {
        let types = &self.types;
        let resource = uid(types.of(question.feature), &question.id);
        let mut sets = self.on(question.feature, &resource, &caller.principals).peekable();
        if sets.peek().is_none() {
            return Err(Denial::NoPermit);
        }
        let arguments = question.arguments.map(value::named).transpose()?.unwrap_or_default();
        // Each time anew: a number that no decimal holds differs from itself, in the context as in the entity.
        let context = if arguments.0.is_empty() {
            caller.context.clone()
        } else {
            let told = Context::from_pairs(value::arguments(&arguments)).map_err(|_| Denial::UNTOLD)?;
            // The names of claims and arguments begin with other words.
            caller.context.clone().merge(told).map_err(|_| Denial::UNTOLD)?
        };
        let server = Some(self.server.clone()).filter(|server| !server.id().unescaped().is_empty());
        let backend = question.backend.as_ref().map(|backend| uid(&types.backend, backend));
        let parents = self.ancestors(&resource, server.into_iter().chain(backend).collect());
        let attributes = attributes(question, value::arguments(&arguments));
        let action = uid(&types.action, question.feature.action());
        let operation = [("operation".to_owned(), text(question.feature.action()))];
        let entities = [
            Entity::new(action.clone(), operation.into(), self.ancestors(&action, Vec::new())),
            Entity::new(resource.clone(), attributes.into_iter().collect::<_>(), parents),
        ];
        let entities: Vec<_> = entities.into_iter().collect::<Result<_, _>>().map_err(|_| Denial::UNTOLD)?;
        let entities = caller.entities.clone().upsert_entities(entities, None).map_err(|_| Denial::UNTOLD)?;

        let request = Request::new(caller.principal.clone(), action, resource.clone(), context, None);
        let request = request.map_err(|_| Denial::UNTOLD)?;
        let judge = || sets.map(|set| Authorizer::new().is_authorized(&request, set, &entities)).collect::<Vec<_>>();
        verdict(&if self.deep { with_stack(judge) } else { judge() })
    }
}

/// The decision of several sets of policies, as if they were one.
fn verdict(responses: &[Response]) -> Result<(), Denial> {
    // Cedar leaves out a policy that fails, and lets the others decide.
    let failed = responses.iter().flat_map(|response| response.diagnostics().errors());
    let failed = failed.map(|AuthorizationError::PolicyEvaluationError(error)| {
        (error.policy_id().to_string(), problem(error.inner()))
    });
    let failed = sorted(failed.collect());
    if !failed.is_empty() {
        return Err(Denial::Failed(failed));
    }
    let denied = responses.iter().filter(|response| response.decision() == Decision::Deny);
    let forbid = denied.flat_map(|response| response.diagnostics().reason()).map(ToString::to_string);
    let forbid = sorted(forbid.collect());
    if !forbid.is_empty() {
        return Err(Denial::Forbidden(forbid));
    }
    let permitted = responses.iter().any(|response| response.decision() == Decision::Allow);
    if permitted { Ok(()) } else { Err(Denial::NoPermit) }
}

/// The attributes of the entity that a question is about.
fn attributes(question: &Question<'_>, arguments: Attributes) -> Attributes {
    let mut attributes = arguments;
    let hints = hints::NAMES.into_iter().zip(question.hints.0);
    let told = hints.filter_map(|(name, hint)| Some((name.to_owned(), RestrictedExpression::new_bool(hint?))));
    attributes.extend(told);
    let [feature, operation] = question.feature.words();
    let mut words = vec![("name", &*question.id), ("feature", feature), ("operation", operation)];
    if question.feature.has_uri() {
        words.push(("uri", &*question.id));
    }
    attributes.extend(words.into_iter().map(|(name, word)| (name.to_owned(), text(word))));
    attributes
}

fn text(text: &str) -> RestrictedExpression {
    RestrictedExpression::new_string(text.to_owned())
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
