//! Rights of the operator: to fill the stores, and for each kind's controller to write about that kind.

use std::collections::BTreeMap;

use k8s_openapi::api::rbac::v1::PolicyRule;
use mcp_api::names::GROUP;
use mcp_plan::workload::ChildKind;
use portcullis::manifest::{Access, named_policy_rule, policy_rule};

use crate::{config::ConfigKind, subject::Subject, workload::Workload};

/// The kinds that fill the stores, beside our own. Secrets are watched by their metadata.
pub fn watches() -> Vec<PolicyRule> {
    let watch = ["list", "watch"];
    let others = [policy_rule("", &["secrets"], &watch), policy_rule("", &["pods"], &watch)];
    children(&ChildKind::ALL, &watch).into_iter().chain(others).collect()
}

/// The key of the digests of Secrets, in the operator's own namespace. What is created has no name yet that a role could be
/// narrowed to.
pub fn digest_key() -> [PolicyRule; 2] {
    let create = policy_rule("", &["secrets"], &["create"]);
    [create, named_policy_rule("", &["secrets"], &["get"], [digest_secret("{release}")])]
}

/// The Secret with the key of digests.
pub fn digest_secret(release: &str) -> String {
    format!("{release}-digest")
}

/// The rights of the controller of a kind of workloads.
pub fn of_workloads<W: Workload>() -> Access {
    let [_, _, finalizers] = W::RESOURCES;
    let mut grants = object::<W>();
    // Lets children name their owner as blocking its deletion, where the API server checks that.
    grants.push(policy_rule(GROUP, &[finalizers], &["update"]));
    let granted = W::granted();
    // A workload with nothing to grant makes no roles: it removes those that ToolHive made for the same owner.
    let roles = [ChildKind::Role, ChildKind::RoleBinding];
    let (removed, made): (Vec<_>, Vec<_>) =
        W::CHILDREN.iter().copied().partition(|kind| granted.is_empty() && roles.contains(kind));
    grants.extend(children(&made, &["create", "patch", "delete"]));
    grants.extend(children(&removed, &["delete"]));
    // Objects that workloads and their configurations refer to are read for their digest, and to check them.
    grants.push(policy_rule("", &["secrets", "configmaps"], &["get"]));
    grants.extend(granted);
    grants.extend(W::rights());
    grants.into()
}

/// The rights of the controller of a kind of configurations.
pub fn of_configs<K: ConfigKind>() -> Access {
    object::<K>().into()
}

/// Status is written on its own, and events tell of it; a finalizer is patched on the object.
fn object<K: Subject>() -> Vec<PolicyRule> {
    let [objects, status, _] = K::RESOURCES;
    let finalizer = K::FINALIZER.map(|_| policy_rule(GROUP, &[objects], &["patch"]));
    let rest = [policy_rule(GROUP, &[status], &["patch"]), policy_rule("events.k8s.io", &["events"], &["create"])];
    finalizer.into_iter().chain(rest).collect()
}

/// These verbs on children of these kinds, a grant for each API group.
fn children(kinds: &[ChildKind], verbs: &[&str]) -> Vec<PolicyRule> {
    let mut groups: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (group, plural) in kinds.iter().map(|kind| kind.group_and_plural()) {
        groups.entry(group).or_default().push(plural);
    }
    groups.into_iter().map(|(group, plurals)| policy_rule(group, &plurals, verbs)).collect()
}
