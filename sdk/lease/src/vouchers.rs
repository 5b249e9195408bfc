//! What hands a namespace over to a restricted operator: objects that only an administrator can make. No IO, no clock.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt as _;
use portcullis_manifest::names::DEV_OF;
use portcullis_manifest::{Installation, scope_policy_name};

use crate::Moment;

/// The label that every namespace has, with its own name.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
/// The label that says which operator an object belongs to.
const OPERATOR: &str = "app.kubernetes.io/name";

/// Recognises the vouchers of one operator: objects by which an administrator hands a namespace over to a restricted
/// installation.
///
/// Any editor of a namespace can write a Lease, because the ClusterRole `edit` allows it. So a Lease counts only in a
/// namespace for which one of these vouchers exists; they are cluster-scoped, so only an administrator can create them:
///
/// - a `ValidatingWebhookConfiguration` that is labelled with the operator's name, whose own name ends in
///   `-validating-<namespace>`, and each of whose webhooks selects that namespace and no other;
/// - a `ValidatingAdmissionPolicy` named `<lease>.<namespace>` with a binding of the same name that denies: under it,
///   only accounts with cluster-wide rights may write the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vouchers {
    operator: String,
    lease: String,
    /// A label of what is put there for a while and vouches for nobody.
    passing: Option<String>,
}

impl Vouchers {
    /// The vouchers of the operator of this name, whose restricted installations hold Leases named `lease`.
    pub fn new(operator: &str, lease: &str) -> Self {
        Self { operator: operator.to_owned(), lease: lease.to_owned(), passing: None }
    }

    /// The vouchers of this installation's operator. The configurations of development sessions are none.
    pub fn of(installation: &Installation) -> Self {
        Self::new(installation.operator, &installation.scope_lease()).but_for(DEV_OF)
    }

    /// Objects with a label of this key are no vouchers.
    #[must_use]
    pub fn but_for(mut self, label: &str) -> Self {
        self.passing = Some(label.to_owned());
        self
    }

    /// The name of the policy, and of its binding, that vouches for holders of the Lease `lease` in this namespace.
    /// Namespace names have no dots, so it is unique.
    pub fn policy(lease: &str, namespace: &str) -> String {
        scope_policy_name(lease, namespace)
    }

    /// The label selector of the objects that may be vouchers.
    pub fn selector(&self) -> String {
        format!("{OPERATOR}={}", self.operator)
    }

    /// The namespace that this configuration vouches for.
    pub fn configuration(&self, configuration: &ValidatingWebhookConfiguration) -> Option<String> {
        let labels = configuration.labels();
        let passing = self.passing.as_ref().is_some_and(|label| labels.contains_key(label));
        if passing || labels.get(OPERATOR) != Some(&self.operator) {
            return None;
        }
        let webhooks = configuration.webhooks.as_deref().unwrap_or_default();
        let mut namespaces = webhooks.iter().map(|webhook| only(webhook.namespace_selector.as_ref()));
        let first = namespaces.next()??;
        let alone = namespaces.all(|namespace| namespace.as_ref() == Some(&first));
        let named = configuration.name_any().ends_with(&format!("-validating-{first}"));
        (alone && named).then_some(first)
    }

    /// The namespace that this policy vouches for, once it is bound.
    pub fn admission_policy(&self, policy: &ValidatingAdmissionPolicy) -> Option<String> {
        let closed = policy.spec.as_ref()?.failure_policy.as_deref().unwrap_or("Fail") == "Fail";
        self.namespace_of(&policy.name_any()).filter(|_| closed)
    }

    /// The namespace that this binding vouches for, if its policy exists.
    pub fn binding(&self, binding: &ValidatingAdmissionPolicyBinding) -> Option<String> {
        let (name, spec) = (binding.name_any(), binding.spec.as_ref()?);
        let denies = spec.validation_actions.iter().flatten().any(|action| action == "Deny");
        let everywhere = spec.match_resources.is_none();
        self.namespace_of(&name).filter(|_| denies && everywhere && spec.policy_name.as_ref() == Some(&name))
    }

    fn namespace_of(&self, policy: &str) -> Option<String> {
        let namespace = policy.strip_prefix(&self.lease)?.strip_prefix('.')?;
        (!namespace.is_empty() && !namespace.contains('.')).then(|| namespace.to_owned())
    }
}

/// The one namespace that is selected.
fn only(selector: Option<&LabelSelector>) -> Option<String> {
    let selector = selector?;
    let labels = selector.match_labels.iter().flatten().filter(|(key, _)| *key == NAMESPACE_NAME);
    let mut by_label = labels.map(|(_, namespace)| namespace.clone());
    let expressions = selector.match_expressions.iter().flatten();
    let by_expression = expressions
        .filter(|it| it.key == NAMESPACE_NAME && it.operator == "In")
        .filter_map(|it| it.values.as_deref())
        .find_map(|values| if let [one] = values { Some(one.clone()) } else { None });
    by_label.next().or(by_expression)
}

/// What vouches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Configuration,
    Policy,
    Binding,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::Configuration, Self::Policy, Self::Binding];

    /// What people know them as.
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::Configuration => "validatingwebhookconfigurations",
            Self::Policy => "validatingadmissionpolicies",
            Self::Binding => "validatingadmissionpolicybindings",
        }
    }
}

/// The vouchers that are there.
#[derive(Debug, Default)]
pub(crate) struct Vouching(BTreeMap<Kind, Known>);

#[derive(Debug, Default)]
struct Known {
    /// By the voucher's name: the namespace.
    namespaces: BTreeMap<String, String>,
    listed: Option<Moment>,
    /// The version of the last list: what a watch brings that is older was seen in it.
    version: u64,
}

impl Vouching {
    /// All of a kind were listed, beginning at `begun`.
    pub(crate) fn listed(&mut self, kind: Kind, namespaces: BTreeMap<String, String>, version: &str, begun: Moment) {
        let version = version.parse().unwrap_or_default();
        self.0.insert(kind, Known { namespaces, listed: Some(begun), version });
    }

    /// One was seen to come, to change or to go.
    pub(crate) fn see(&mut self, kind: Kind, name: String, namespace: Option<String>, version: &str) {
        let known = self.0.entry(kind).or_default();
        if version.parse().is_ok_and(|version: u64| version < known.version) {
            return;
        }
        match namespace {
            Some(namespace) => _ = known.namespaces.insert(name, namespace),
            None => _ = known.namespaces.remove(&name),
        }
    }

    /// When the oldest of what is known was listed; none before all was.
    pub(crate) fn listed_at(&self) -> Option<Moment> {
        Kind::ALL.iter().map(|kind| self.0.get(kind).and_then(|known| known.listed)).min().flatten()
    }

    /// The namespaces that are vouched for.
    pub(crate) fn namespaces(&self) -> BTreeSet<String> {
        let of = |kind| {
            let known = self.0.get(&kind).into_iter();
            known.flat_map(|known| known.namespaces.values().cloned()).collect::<BTreeSet<_>>()
        };
        let bound = &of(Kind::Policy) & &of(Kind::Binding);
        &of(Kind::Configuration) | &bound
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn vouchers() -> Vouchers {
        Vouchers::new("op", "op-namespace-scope").but_for("dev")
    }

    fn configuration(name: &str, labels: &Value, selectors: &[Value]) -> Option<String> {
        let webhook = |selector: &Value| {
            json!({ "name": "a.b.c", "clientConfig": {}, "sideEffects": "None", "admissionReviewVersions": ["v1"],
                    "namespaceSelector": selector })
        };
        let webhooks: Vec<_> = selectors.iter().map(webhook).collect();
        let whole = json!({ "metadata": { "name": name, "labels": labels }, "webhooks": webhooks });
        vouchers().configuration(&serde_json::from_value(whole).unwrap())
    }

    #[test]
    fn a_configuration_vouches_for_the_one_namespace_that_it_covers_and_for_its_own_operator() {
        let ours = json!({ "app.kubernetes.io/name": "op" });
        let one = |namespace: &str| json!({ "matchLabels": { "kubernetes.io/metadata.name": namespace } });
        let among = |namespaces: &[&str]| {
            json!({ "matchExpressions": [
                { "key": "kubernetes.io/metadata.name", "operator": "In", "values": namespaces },
            ] })
        };
        let session = json!({ "app.kubernetes.io/name": "op", "dev": "me" });
        let other = json!({ "app.kubernetes.io/name": "other" });
        let table = [
            ("op-validating-a", &ours, vec![one("a")], Some("a")),
            ("r-validating-a", &ours, vec![one("a"), among(&["a"])], Some("a")),
            ("op-validating-a", &ours, vec![], None),
            ("op-validating-a", &ours, vec![one("a"), one("b")], None),
            ("op-validating-a", &ours, vec![among(&["a", "b"])], None),
            ("op-validating-a", &ours, vec![json!(null)], None),
            ("op-validating-a", &ours, vec![json!({})], None),
            ("op-validating", &ours, vec![one("a")], None),
            ("op-validating-b", &ours, vec![one("a")], None),
            ("op-validating-a", &other, vec![one("a")], None),
            ("op-validating-a", &session, vec![one("a")], None),
        ];
        for (name, labels, selectors, expected) in table {
            assert_eq!(configuration(name, labels, &selectors).as_deref(), expected, "{name} {labels} {selectors:?}");
        }
    }

    #[test]
    fn a_policy_vouches_with_the_binding_of_its_name_and_only_where_it_fails_closed_and_denies() {
        let policy = |name: &str, fails: &str| {
            let whole = json!({ "metadata": { "name": name }, "spec": { "failurePolicy": fails } });
            vouchers().admission_policy(&serde_json::from_value(whole).unwrap())
        };
        let binding = |name: &str, of: &str, actions: &[&str], some: Option<Value>| {
            let spec = json!({ "policyName": of, "validationActions": actions, "matchResources": some });
            let whole = json!({ "metadata": { "name": name }, "spec": spec });
            vouchers().binding(&serde_json::from_value(whole).unwrap())
        };
        let name = Vouchers::policy("op-namespace-scope", "a");
        assert_eq!(policy(&name, "Fail").as_deref(), Some("a"));
        assert_eq!(binding(&name, &name, &["Deny", "Audit"], None).as_deref(), Some("a"));
        for nobody in [
            policy(&name, "Ignore"),
            policy("op-namespace-scope.", "Fail"),
            policy("op-namespace-scope.a.b", "Fail"),
            policy("other-namespace-scope.a", "Fail"),
            binding(&name, &name, &["Warn"], None),
            binding(&name, "op-namespace-scope.b", &["Deny"], None),
            binding(&name, &name, &["Deny"], Some(json!({ "objectSelector": { "matchLabels": { "a": "b" } } }))),
        ] {
            assert_eq!(nobody, None);
        }

        let mut vouching = Vouching::default();
        let at = |seconds| Moment::since_origin(std::time::Duration::from_secs(seconds));
        assert_eq!(vouching.listed_at(), None);
        let one = || BTreeMap::from([(name.clone(), "a".to_owned())]);
        vouching.listed(Kind::Policy, one(), "5", at(1));
        vouching.listed(Kind::Configuration, BTreeMap::new(), "6", at(2));
        vouching.listed(Kind::Binding, BTreeMap::new(), "7", at(3));
        assert_eq!((vouching.namespaces().len(), vouching.listed_at()), (0, Some(at(1))), "it is bound by nothing");
        vouching.see(Kind::Binding, name.clone(), Some("a".to_owned()), "8");
        assert_eq!(vouching.namespaces(), BTreeSet::from(["a".to_owned()]));
        vouching.see(Kind::Policy, name.clone(), None, "4");
        assert_eq!(vouching.namespaces().len(), 1, "what is older than the list was seen in it");
        vouching.see(Kind::Policy, name, None, "9");
        assert!(vouching.namespaces().is_empty());
    }
}
