//! Decisions.

mod outlook;

use std::borrow::Cow;

use crate::hints;
use crate::index::Set;
use crate::policies::uid;
use crate::reads::Reads;
use crate::shape::with_stack;
use crate::value::{self, Arguments, Attributes};
use crate::verdict::Verdict;
use crate::{Caller, Denial, Policies, Question};
use cedar_policy::{Context, Entity, Policy, PolicySet, Request, RestrictedExpression};

pub use outlook::{Outlook, Outlooks};

impl Policies {
    /// Decides whether the caller may do what the question asks for.
    ///
    /// # Errors
    /// It may not.
    pub fn decide(&self, caller: &Caller, question: &Question<'_>) -> Result<(), Denial> {
        let sets: Vec<&Set> = self.on(question.feature, &question.id, &caller.principals).collect();
        if sets.is_empty() {
            return Err(Denial::NoPermit);
        }
        let arguments = question.arguments.map(value::named).transpose()?.unwrap_or_default();
        let mut verdict = Verdict::default();
        for set in sets.iter().filter(|set| !set.of_caller.is_empty()) {
            let decide = || self.evaluate(caller, question, Reads::default(), &[], [&set.of_caller]);
            verdict.add(caller.verdict(set.number, decide)?);
        }
        let reads = sets.iter().fold(Reads::default(), |reads, set| reads.or(set.reads));
        if reads.any() {
            let sets = sets.iter().map(|set| &set.of_question).filter(|set| !set.is_empty());
            verdict.add(self.evaluate(caller, question, reads, &arguments.0, sets)?);
        }
        verdict.into_decision()
    }

    /// The verdict of one policy alone.
    fn decide_alone(&self, caller: &Caller, question: &Question<'_>, policy: &Policy) -> Result<Verdict, Denial> {
        let set = PolicySet::from_policies([policy.clone()]).map_err(|_| Denial::UNTOLD)?;
        let arguments = question.arguments.map(value::named).transpose()?.unwrap_or_default();
        self.evaluate(caller, question, Reads { resource: true, arguments: true, claims: true }, &arguments.0, [&set])
    }

    /// The verdict of sets of policies that read these parts of a question with these arguments.
    fn evaluate<'a>(
        &self,
        caller: &Caller,
        question: &Question<'_>,
        reads: Reads,
        arguments: &Arguments<'_>,
        sets: impl IntoIterator<Item = &'a PolicySet>,
    ) -> Result<Verdict, Denial> {
        let untold = Denial::UNTOLD;
        let told = || Context::from_pairs(value::arguments(arguments)).map_err(|_| Denial::UNTOLD);
        let context = match reads {
            Reads { arguments: false, .. } => caller.context.clone(),
            Reads { claims: false, .. } => told()?,
            _ if arguments.is_empty() => caller.context.clone(),
            // The names of claims and arguments begin with other words.
            _ => caller.context.clone().merge(told()?).map_err(|_| Denial::UNTOLD)?,
        };
        let resource = uid(self.types.of(question.feature), &question.id);
        let mut entities = Cow::Borrowed(caller.entities(self, question.feature)?);
        if reads.resource {
            let entity = self.resource(question, arguments)?;
            let with = entities.into_owned().upsert_entities([entity], None).map_err(|_| untold.clone())?;
            entities = Cow::Owned(with);
        }
        let action = uid(&self.types.action, question.feature.action());
        let request = Request::new(caller.principal.clone(), action, resource, context, None).map_err(|_| untold)?;
        let decide = || {
            let mut verdict = Verdict::default();
            sets.into_iter().for_each(|set| verdict.add(Verdict::of(&request, set, &entities)));
            verdict
        };
        Ok(if self.deep { with_stack(decide) } else { decide() })
    }

    /// The entity that a question is about.
    fn resource(&self, question: &Question<'_>, arguments: &Arguments<'_>) -> Result<Entity, Denial> {
        let types = &self.types;
        let resource = uid(types.of(question.feature), &question.id);
        let server = Some(self.server.clone()).filter(|server| !server.id().unescaped().is_empty());
        let backend = question.backend.as_ref().map(|backend| uid(&types.backend, backend));
        let parents = self.ancestors(&resource, server.into_iter().chain(backend).collect());
        // The arguments anew: a number that no decimal holds differs from itself, in the context as here.
        let attributes = attributes(question, value::arguments(arguments));
        Entity::new(resource, attributes.into_iter().collect(), parents).map_err(|_| Denial::UNTOLD)
    }
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

#[cfg(test)]
mod tests;
