//! Policies by action, entity and principal: a list asks hundreds of questions, and most policies are about one tool or one group each.

use std::collections::{HashMap, HashSet};

use cedar_policy::{
    ActionConstraint, EntityTypeName, EntityUid, Policy, PolicySet, PrincipalConstraint, ResourceConstraint,
};

use crate::PolicyError;

/// The policies whose scope fits one action, and the one type of entities that it is asked for.
///
/// A policy that is left out for its scope would neither permit nor forbid, and could not fail: Cedar looks at its condition only where its scope fits.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// Policies that may fit any entity.
    common: Principals,
    /// Policies that fit one entity alone.
    named: HashMap<EntityUid, Principals>,
}

/// Policies by the principals that their scope fits.
#[derive(Debug, Default)]
struct Principals {
    /// Policies that may fit any principal.
    any: PolicySet,
    /// Policies that fit one principal, or those in one group.
    of: HashMap<EntityUid, PolicySet>,
}

impl Index {
    /// The policies for an action with these ancestors, on entities of this type.
    pub(crate) fn new(
        policies: &[Policy],
        action: &EntityUid,
        ancestors: &HashSet<EntityUid>,
        r#type: &EntityTypeName,
    ) -> Result<Self, PolicyError> {
        let mut index = Self::default();
        for (entry, policy) in policies.iter().enumerate() {
            let acts = match policy.action_constraint() {
                ActionConstraint::Any => true,
                ActionConstraint::Eq(uid) => uid == *action,
                ActionConstraint::In(uids) => uids.iter().any(|uid| uid == action || ancestors.contains(uid)),
            };
            let set = match policy.resource_constraint() {
                _ if !acts => continue,
                ResourceConstraint::Eq(uid) if uid.type_name() != r#type => continue,
                ResourceConstraint::Is(wanted) | ResourceConstraint::IsIn(wanted, _) if wanted != *r#type => continue,
                ResourceConstraint::Eq(uid) => index.named.entry(uid).or_default(),
                _ => &mut index.common,
            };
            let set = match policy.principal_constraint() {
                PrincipalConstraint::Eq(uid) | PrincipalConstraint::In(uid) | PrincipalConstraint::IsIn(_, uid) => {
                    set.of.entry(uid).or_default()
                }
                PrincipalConstraint::Any | PrincipalConstraint::Is(_) => &mut set.any,
            };
            set.add(policy.clone()).map_err(|error| PolicyError::at(entry, "", 0, error.to_string()))?;
        }
        Ok(index)
    }

    /// The policies that may fit the entity and the principal, which is the first of `principals`; the others are its ancestors.
    pub(crate) fn of<'a>(
        &'a self,
        resource: &EntityUid,
        principals: &'a [EntityUid],
    ) -> impl Iterator<Item = &'a PolicySet> {
        let fitting = move |set: &'a Principals| {
            let groups = if set.of.is_empty() { &[] } else { principals };
            [&set.any].into_iter().chain(groups.iter().filter_map(|uid| set.of.get(uid)))
        };
        self.named.get(resource).into_iter().chain([&self.common]).flat_map(fitting).filter(|set| !set.is_empty())
    }
}
