//! Decisions about calls whose arguments are not known.
//!
//! A policy that reads no argument says the same of every call. Of one that does, the part before its first look at an argument does: Cedar takes the
//! parts of a condition from left to right, and looks at none behind one that is false or fails.

use std::collections::HashMap;

use cedar_policy::{Effect, Policy, PolicyId, PolicySet};
use serde_json::{Map, Value, json};

use crate::index::Set;
use crate::reads::{Reads, reads_arguments};
use crate::shape::with_stack;
use crate::verdict::Verdict;
use crate::{Caller, Denial, Policies, Question};

/// The reads of a policy of which nothing is left that reads arguments.
const NO_ARGUMENTS: Reads = Reads { resource: true, arguments: false, claims: true };

/// The decision about all calls of something, whatever their arguments are.
///
/// Calls whose arguments cannot be read at all are refused in any case: those that are no object, are more than 1,000, or have two names that differ only in case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// All are permitted, by these policies.
    Permitted(Vec<String>),
    /// None is.
    Denied(Denial),
    /// Some may be, and some may not: these policies read arguments.
    DependsOn(Vec<String>),
}

/// Policies, and what each says of calls whose arguments are not known.
#[derive(Debug)]
pub struct Outlooks<'a> {
    policies: &'a Policies,
    parts: HashMap<PolicyId, Part>,
}

/// One policy.
#[derive(Debug)]
struct Part {
    /// The policy alone, up to its first look at an argument.
    known: PolicySet,
    /// The effect of a policy that looks at arguments behind that.
    looks: Option<Effect>,
}

impl<'a> Outlooks<'a> {
    /// Finds out what each of `policies` says of calls whose arguments are not known.
    pub fn new(policies: &'a Policies) -> Self {
        let all = || policies.all().map(|policy| (policy.id().clone(), Part::of(policy, policies.names_features)));
        let parts = if policies.deep { with_stack(|| all().collect()) } else { all().collect() };
        Self { policies, parts }
    }

    /// The decision about all calls that ask this question. Its arguments do not count.
    pub fn of(&self, caller: &Caller, question: &Question<'_>) -> Outlook {
        let question = Question { arguments: None, ..question.clone() };
        self.decide(caller, &question).unwrap_or_else(Outlook::Denied)
    }

    /// The policies that permit what the question asks for, with its arguments.
    pub fn permitting(&self, caller: &Caller, question: &Question<'_>) -> Vec<String> {
        let decide = |policy: &Policy| self.policies.decide_alone(caller, question, policy);
        let on = self.policies.on(question.feature, &question.id, &caller.principals);
        let permits = on.flat_map(Set::policies).filter(|policy| policy.effect() == Effect::Permit);
        sorted(permits.filter(|policy| decide(policy).is_ok_and(|verdict| verdict.applies())).map(Policy::id))
    }

    fn decide(&self, caller: &Caller, question: &Question<'_>) -> Result<Outlook, Denial> {
        let (mut known, mut permits, mut looking) = (Verdict::default(), Vec::new(), Vec::new());
        for policy in self.policies.on(question.feature, &question.id, &caller.principals).flat_map(Set::policies) {
            let part = self.parts.get(policy.id()).ok_or(Denial::UNTOLD)?;
            let verdict = self.policies.evaluate(caller, question, NO_ARGUMENTS, &[], [&part.known])?;
            match part.looks {
                Some(effect) if verdict.applies() => looking.push((policy.id(), effect)),
                // It fails before it looks at an argument, or does not apply.
                Some(_) => known.add(verdict.only_failures()),
                None => {
                    if policy.effect() == Effect::Permit && verdict.applies() {
                        permits.push(policy.id());
                    }
                    known.add(verdict);
                }
            }
        }
        let may_permit = looking.iter().any(|(_, effect)| *effect == Effect::Permit);
        match known.into_decision() {
            Ok(()) if looking.is_empty() => Ok(Outlook::Permitted(sorted(permits))),
            Err(Denial::NoPermit) if may_permit => {
                Ok(Outlook::DependsOn(sorted(looking.into_iter().map(|(id, _)| id))))
            }
            Ok(()) => Ok(Outlook::DependsOn(sorted(looking.into_iter().map(|(id, _)| id)))),
            Err(denial) => Err(denial),
        }
    }
}

impl Part {
    fn of(policy: &Policy, names_features: bool) -> Self {
        let alone = |policy: Policy| PolicySet::from_policies([policy]).unwrap_or_default();
        let Ok(mut json) = policy.to_json() else {
            return Self { known: alone(without_conditions(policy)), looks: Some(policy.effect()) };
        };
        let conditions = json.get_mut("conditions").and_then(Value::as_array_mut);
        let before = conditions.as_ref().map_or(0, |conditions| conditions.len());
        let is_cut = conditions.is_some_and(|conditions| cut(conditions, names_features) || conditions.len() < before);
        if !is_cut {
            return Self { known: alone(policy.clone()), looks: None };
        }
        let known = Policy::from_json(Some(policy.id().clone()), json).unwrap_or_else(|_| without_conditions(policy));
        Self { known: alone(known), looks: Some(policy.effect()) }
    }
}

/// A policy that is asked for nothing but its effect: it says nothing of what the scope does not fit.
fn without_conditions(policy: &Policy) -> Policy {
    let effect = if policy.effect() == Effect::Permit { "permit" } else { "forbid" };
    let all = json!({"op": "All"});
    let json = json!({"effect": effect, "principal": all, "action": all, "resource": all, "conditions": []});
    Policy::from_json(Some(policy.id().clone()), json).unwrap_or_else(|_| policy.clone())
}

/// Cuts conditions off from the first look at an argument on. Returns whether something was cut off.
fn cut(conditions: &mut Vec<Value>, names_features: bool) -> bool {
    let looks = |condition: &Value| condition.get("body").is_none_or(|body| reads_arguments(body, names_features));
    let Some(at) = conditions.iter().position(looks) else { return false };
    let is_when = conditions[at].get("kind").and_then(Value::as_str) == Some("when");
    let known = conditions[at].get("body").filter(|_| is_when).and_then(|body| leading(body, names_features));
    conditions.truncate(at);
    conditions.extend(known.map(|body| json!({"kind": "when", "body": body})));
    true
}

/// The parts of a conjunction before the first one that reads arguments.
fn leading(body: &Value, names_features: bool) -> Option<Value> {
    if !reads_arguments(body, names_features) {
        return Some(body.clone());
    }
    let operands = body.as_object().filter(|members| members.len() == 1)?.get("&&")?;
    let [left, right] = ["left", "right"].map(|side| operands.get(side));
    let (left, right) = left.zip(right)?;
    if reads_arguments(left, names_features) {
        return leading(left, names_features);
    }
    Some(match leading(right, names_features) {
        Some(right) => {
            let operands = Map::from_iter([("left".to_owned(), left.clone()), ("right".to_owned(), right)]);
            json!({"&&": operands})
        }
        None => left.clone(),
    })
}

fn sorted<'a>(ids: impl IntoIterator<Item = &'a PolicyId>) -> Vec<String> {
    let mut ids: Vec<String> = ids.into_iter().map(ToString::to_string).collect();
    // The tenth entry comes behind the ninth.
    ids.sort_by(|a, b| a.len().cmp(&b.len()).then_with(|| a.cmp(b)));
    ids
}
