//! Policies by action, entity and principal: a list asks hundreds of questions, and most policies are about one tool or one group each.

use std::collections::{HashMap, HashSet};

use cedar_policy::{
    ActionConstraint, EntityTypeName, EntityUid, Policy, PolicySet, PrincipalConstraint, ResourceConstraint,
};

use crate::PolicyError;
use crate::reads::Reads;

/// The policies whose scope fits one action, and the one type of entities that it is asked for.
///
/// A policy that is left out for its scope would neither permit nor forbid, and could not fail: Cedar looks at its condition only where its scope fits.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// Policies that may fit any entity.
    common: Principals,
    /// Policies that fit the entity of this name alone.
    named: HashMap<String, Principals>,
}

/// Policies by the principals that their scope fits.
#[derive(Debug, Default)]
struct Principals {
    /// Policies that may fit any principal.
    any: Set,
    /// Policies that fit one principal, or those in one group.
    of: HashMap<EntityUid, Set>,
}

/// Policies that are decided on together.
#[derive(Debug, Default)]
pub(crate) struct Set {
    /// Its number among the sets of all indices, from 1; 0 while it has no policy.
    pub(crate) number: usize,
    /// The policies that read nothing of a question but what the index asks for: what they say of a caller holds for all questions of it.
    pub(crate) of_caller: PolicySet,
    /// The others, and what they read.
    pub(crate) of_question: PolicySet,
    pub(crate) reads: Reads,
}

impl Set {
    pub(crate) fn policies(&self) -> impl Iterator<Item = &Policy> {
        self.of_caller.policies().chain(self.of_question.policies())
    }
}

impl Index {
    /// The policies for an action with these ancestors, on entities of this type. `sets` counts the sets of all indices.
    pub(crate) fn new(
        policies: &[(Reads, Policy)],
        action: &EntityUid,
        ancestors: &HashSet<EntityUid>,
        r#type: &EntityTypeName,
        sets: &mut usize,
    ) -> Result<Self, PolicyError> {
        let mut index = Self::default();
        for (entry, (reads, policy)) in policies.iter().enumerate() {
            let acts = match policy.action_constraint() {
                ActionConstraint::Any => true,
                ActionConstraint::Eq(uid) => uid == *action,
                ActionConstraint::In(uids) => uids.iter().any(|uid| uid == action || ancestors.contains(uid)),
            };
            let principals = match policy.resource_constraint() {
                _ if !acts => continue,
                ResourceConstraint::Eq(uid) if uid.type_name() != r#type => continue,
                ResourceConstraint::Is(wanted) | ResourceConstraint::IsIn(wanted, _) if wanted != *r#type => continue,
                ResourceConstraint::Eq(uid) => index.named.entry(uid.id().unescaped().to_owned()).or_default(),
                _ => &mut index.common,
            };
            let set = match policy.principal_constraint() {
                PrincipalConstraint::Eq(uid) | PrincipalConstraint::In(uid) | PrincipalConstraint::IsIn(_, uid) => {
                    principals.of.entry(uid).or_default()
                }
                PrincipalConstraint::Any | PrincipalConstraint::Is(_) => &mut principals.any,
            };
            if set.number == 0 {
                *sets += 1;
                set.number = *sets;
            }
            let policies = if reads.any() {
                set.reads = set.reads.or(*reads);
                &mut set.of_question
            } else {
                &mut set.of_caller
            };
            policies.add(policy.clone()).map_err(|error| PolicyError::at(entry, "", 0, error.to_string()))?;
        }
        Ok(index)
    }

    /// All of its policies.
    pub(crate) fn policies(&self) -> impl Iterator<Item = &Policy> {
        let all = self.named.values().chain([&self.common]);
        all.flat_map(|principals| [&principals.any].into_iter().chain(principals.of.values())).flat_map(Set::policies)
    }

    /// The policies that may fit the entity of this name and the principal, which is among `principals`; the others are its ancestors.
    pub(crate) fn of<'a>(&'a self, name: &str, principals: &'a [EntityUid]) -> impl Iterator<Item = &'a Set> {
        let fitting = move |set: &'a Principals| {
            let groups = if set.of.is_empty() { &[] } else { principals };
            [&set.any].into_iter().chain(groups.iter().filter_map(|uid| set.of.get(uid)))
        };
        self.named.get(name).into_iter().chain([&self.common]).flat_map(fitting).filter(|set| set.number > 0)
    }
}
