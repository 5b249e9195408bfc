//! The objects that hand a namespace over to a restricted operator, which only an administrator can create. No IO, no
//! clock.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use kube::ResourceExt as _;

use crate::time::Moment;

/// The name of the policy, and of its binding, that hands this namespace over to holders of the Lease `lease`. Names
/// of namespaces have no dots, so it is unique.
pub(crate) fn policy_name(lease: &str, namespace: &str) -> String {
    format!("{lease}.{namespace}")
}

/// The namespaces that these policies with their bindings hand over to restricted operators that hold Leases named
/// `lease`.
///
/// Any editor of a namespace can write a Lease, because the `ClusterRole` `edit` allows it. So a Lease counts only
/// where there is a `ValidatingAdmissionPolicy` named `<lease>.<namespace>` that fails closed, with a binding of the
/// same name that denies: both are cluster-scoped, so only an administrator can create them, and under the policy only
/// accounts with a cluster-wide right may write the Lease.
pub fn handed_over(
    lease: &str,
    policies: &[ValidatingAdmissionPolicy],
    bindings: &[ValidatingAdmissionPolicyBinding],
) -> BTreeSet<String> {
    let policies: BTreeSet<_> = policies.iter().filter_map(|policy| of_policy(lease, policy)).collect();
    let bindings: BTreeSet<_> = bindings.iter().filter_map(|binding| of_binding(lease, binding)).collect();
    &policies & &bindings
}

/// The namespace that this policy hands over, once it is bound.
pub(crate) fn of_policy(lease: &str, policy: &ValidatingAdmissionPolicy) -> Option<String> {
    let closed = policy.spec.as_ref()?.failure_policy.as_deref().unwrap_or("Fail") == "Fail";
    namespace_of(lease, &policy.name_any()).filter(|_| closed)
}

/// The namespace that this binding hands over, if its policy exists.
pub(crate) fn of_binding(lease: &str, binding: &ValidatingAdmissionPolicyBinding) -> Option<String> {
    let (name, spec) = (binding.name_any(), binding.spec.as_ref()?);
    let denies = spec.validation_actions.iter().flatten().any(|action| action == "Deny");
    let everywhere = spec.match_resources.is_none();
    namespace_of(lease, &name).filter(|_| denies && everywhere && spec.policy_name.as_ref() == Some(&name))
}

fn namespace_of(lease: &str, policy: &str) -> Option<String> {
    let namespace = policy.strip_prefix(lease)?.strip_prefix('.')?;
    (!namespace.is_empty() && !namespace.contains('.')).then(|| namespace.to_owned())
}

/// The two kinds of objects that hand a namespace over together.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Policy,
    Binding,
}

/// The policies and bindings that were seen.
#[derive(Debug, Default)]
pub(crate) struct Handovers {
    policies: Known,
    bindings: Known,
}

#[derive(Debug, Default)]
struct Known {
    /// The namespace, by the object's name.
    namespaces: BTreeMap<String, String>,
    listed: Option<Moment>,
    /// The version of the last list. An event that is older is known from the list.
    version: u64,
}

impl Handovers {
    /// Takes a complete list of a kind, begun at `begun`.
    pub(crate) fn listed(&mut self, kind: Kind, namespaces: BTreeMap<String, String>, version: &str, begun: Moment) {
        let version = version.parse().unwrap_or_default();
        *self.of(kind) = Known { namespaces, listed: Some(begun), version };
    }

    /// Takes an object that was created, changed or deleted; `namespace` is the one that it hands over.
    pub(crate) fn see(&mut self, kind: Kind, name: String, namespace: Option<String>, version: &str) {
        let known = self.of(kind);
        if version.parse().is_ok_and(|version: u64| version < known.version) {
            return;
        }
        match namespace {
            Some(namespace) => _ = known.namespaces.insert(name, namespace),
            None => _ = known.namespaces.remove(&name),
        }
    }

    /// When the older of the two lists was begun; `None` before both were there.
    pub(crate) fn listed_at(&self) -> Option<Moment> {
        self.policies.listed.min(self.bindings.listed)
    }

    /// The namespaces that are handed over.
    pub(crate) fn namespaces(&self) -> BTreeSet<String> {
        let of = |known: &Known| known.namespaces.values().cloned().collect::<BTreeSet<_>>();
        &of(&self.policies) & &of(&self.bindings)
    }

    fn of(&mut self, kind: Kind) -> &mut Known {
        match kind {
            Kind::Policy => &mut self.policies,
            Kind::Binding => &mut self.bindings,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const LEASE: &str = "op-namespace-scope";

    fn policy(name: &str, fails: &str) -> ValidatingAdmissionPolicy {
        let whole = json!({ "metadata": { "name": name }, "spec": { "failurePolicy": fails } });
        serde_json::from_value(whole).unwrap()
    }

    fn binding(name: &str, of: &str, actions: &[&str], some: Option<Value>) -> ValidatingAdmissionPolicyBinding {
        let spec = json!({ "policyName": of, "validationActions": actions, "matchResources": some });
        serde_json::from_value(json!({ "metadata": { "name": name }, "spec": spec })).unwrap()
    }

    #[test]
    fn a_handover_takes_a_policy_that_fails_closed_and_denies() {
        let name = policy_name(LEASE, "a");
        let bound = |name: &str| binding(name, name, &["Deny", "Audit"], None);
        let some = json!({ "objectSelector": { "matchLabels": { "a": "b" } } });
        for (policies, bindings, expected) in [
            (vec![policy(&name, "Fail")], vec![bound(&name)], Some("a")),
            (vec![policy(&name, "Fail")], vec![], None),
            (vec![], vec![bound(&name)], None),
            (vec![policy(&name, "Ignore")], vec![bound(&name)], None),
            (vec![policy(&name, "Fail")], vec![binding(&name, &name, &["Warn"], None)], None),
            (vec![policy(&name, "Fail")], vec![binding(&name, "op-namespace-scope.b", &["Deny"], None)], None),
            (vec![policy(&name, "Fail")], vec![binding(&name, &name, &["Deny"], Some(some))], None),
        ] {
            let found: Vec<_> = handed_over(LEASE, &policies, &bindings).into_iter().collect();
            assert_eq!(found, expected.map(str::to_owned).into_iter().collect::<Vec<_>>(), "{policies:?} {bindings:?}");
        }
        for other in ["op-namespace-scope.", "op-namespace-scope.a.b", "other-namespace-scope.a"] {
            assert_eq!(handed_over(LEASE, &[policy(other, "Fail")], &[bound(other)]).len(), 0, "{other}");
        }
    }

    #[test]
    fn events_older_than_the_list_are_ignored() {
        let name = policy_name(LEASE, "a");
        let mut handovers = Handovers::default();
        let at = |seconds| Moment::since_origin(std::time::Duration::from_secs(seconds));
        let one = || BTreeMap::from([(name.clone(), "a".to_owned())]);
        handovers.listed(Kind::Policy, one(), "5", at(1));
        assert_eq!(handovers.listed_at(), None);
        handovers.listed(Kind::Binding, BTreeMap::new(), "7", at(3));
        assert_eq!((handovers.namespaces().len(), handovers.listed_at()), (0, Some(at(1))), "nothing binds it");
        handovers.see(Kind::Binding, name.clone(), Some("a".to_owned()), "8");
        assert_eq!(handovers.namespaces(), BTreeSet::from(["a".to_owned()]));
        handovers.see(Kind::Policy, name.clone(), None, "4");
        assert_eq!(handovers.namespaces().len(), 1);
        handovers.see(Kind::Policy, name, None, "9");
        assert!(handovers.namespaces().is_empty());
    }
}
