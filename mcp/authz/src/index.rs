//! Policies by action and entity: a list asks hundreds of questions, and most policies are about one tool each.

use std::collections::{HashMap, HashSet};

use cedar_policy::{ActionConstraint, EntityTypeName, EntityUid, Policy, PolicySet, ResourceConstraint};

use crate::PolicyError;

/// The policies whose scope fits one action, and the one type of entities that it is asked for.
///
/// A policy that is left out for its scope would neither permit nor forbid, and could not fail: Cedar looks at its condition only where its scope fits.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// Policies that may fit any entity.
    common: PolicySet,
    /// Policies that fit one entity alone.
    named: HashMap<EntityUid, PolicySet>,
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
            set.add(policy.clone()).map_err(|error| PolicyError::at(entry, "", 0, error.to_string()))?;
        }
        Ok(index)
    }

    /// The policies that may fit the entity.
    pub(crate) fn of(&self, resource: &EntityUid) -> impl Iterator<Item = &PolicySet> {
        self.named.get(resource).into_iter().chain([&self.common]).filter(|set| !set.is_empty())
    }
}
