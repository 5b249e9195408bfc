//! RBAC of an operator: on the cluster, on what it watches, and in its own namespace.

use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::{Value, json};

/// An RBAC rule for `verbs` on `resources` (plural names, or `plural/subresource`) of an API group, which is empty for
/// the core group.
pub fn policy_rule(group: &str, resources: &[impl AsRef<str>], verbs: &[&str]) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(resources.iter().map(|resource| resource.as_ref().to_owned()).collect()),
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        ..PolicyRule::default()
    }
}

/// A [`policy_rule`] for objects with these names alone. RBAC cannot restrict `create` to a name.
pub fn named_policy_rule(
    group: &str,
    resources: &[impl AsRef<str>],
    verbs: &[&str],
    names: impl IntoIterator<Item = impl Into<String>>,
) -> PolicyRule {
    let names = names.into_iter().map(Into::into).collect();
    PolicyRule { resource_names: Some(names), ..policy_rule(group, resources, verbs) }
}

/// The rights of an account. A list of rules converts to rights on [what it watches](Self::watched).
///
/// ```
/// use portcullis_manifest::{Access, named_policy_rule, policy_rule};
///
/// let orders = [policy_rule("shop.example", &["orders"], &["list", "watch", "patch"])];
/// let key = [named_policy_rule("", &["secrets"], &["get"], ["order-key"])];
/// let access = Access::from(orders).with_own_namespace(key);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Access {
    /// Rights on what it watches: in the whole cluster, or in the one namespace that an installation is restricted to.
    pub watched: Vec<PolicyRule>,
    /// Rights on single cluster-scoped objects (by name), also of a restricted installation.
    pub cluster: Vec<PolicyRule>,
    /// Rights in the operator's own namespace.
    pub own_namespace: Vec<PolicyRule>,
    /// Rights in the namespace of leader election.
    pub leader_election: Vec<PolicyRule>,
}

/// A ServiceAccount, and the names of its roles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Name of the ServiceAccount, and of roles in namespaces.
    pub name: String,
    /// Namespace of the ServiceAccount.
    pub namespace: String,
    /// Namespace of the Lease of leader election.
    pub leader_election_namespace: String,
    /// Name of the ClusterRole and its binding.
    pub cluster_role: String,
    /// The one namespace that it watches; all when `None`.
    pub restricted_to: Option<String>,
}

impl<R: IntoIterator<Item = PolicyRule>> From<R> for Access {
    fn from(rules: R) -> Self {
        Self { watched: rules.into_iter().collect(), ..Self::default() }
    }
}

impl Access {
    /// Adds rules in the operator's own namespace.
    #[must_use]
    pub fn with_own_namespace(mut self, rules: impl IntoIterator<Item = PolicyRule>) -> Self {
        self.own_namespace.extend(rules);
        self
    }

    /// Merges both. Each resource is mentioned once for the same names, with all its verbs, and resources of one group
    /// with equal verbs share a rule.
    #[must_use]
    pub fn merge(self, other: impl Into<Self>) -> Self {
        let other = other.into();
        Self {
            watched: joined([self.watched, other.watched].concat()),
            cluster: joined([self.cluster, other.cluster].concat()),
            own_namespace: joined([self.own_namespace, other.own_namespace].concat()),
            leader_election: joined([self.leader_election, other.leader_election].concat()),
        }
    }

    /// ServiceAccount, roles and bindings. A role without rules is left out.
    ///
    /// For an account that is restricted to a namespace, the rights on what it watches become a Role in that namespace;
    /// those on cluster-scoped kinds, which are Kubernetes' own and those for which `cluster_scoped` (group, plural) is
    /// true, a ClusterRole.
    pub fn manifests(&self, account: &Account, cluster_scoped: impl Fn(&str, &str) -> bool) -> Vec<Value> {
        let of_cluster = |rule: &PolicyRule| {
            let (group, resource) = (rule.api_groups.iter().flatten().next(), rule.resources.iter().flatten().next());
            let (Some(group), Some(resource)) = (group, resource) else { return true };
            let plural = resource.split('/').next().unwrap_or_default();
            account.restricted_to.is_none() || brought(group, plural) || cluster_scoped(group, plural)
        };
        let (everywhere, watched): (Vec<_>, Vec<_>) =
            self.watched.iter().cloned().flat_map(by_resource).partition(of_cluster);
        let (mut everywhere, mut watched, mut own) = (joined(everywhere), joined(watched), Vec::new());
        everywhere.extend(self.cluster.clone());
        // One Role where both are the same namespace.
        if account.restricted_to.as_deref() == Some(account.namespace.as_str()) {
            own.append(&mut watched);
        }
        own.extend(self.own_namespace.clone());
        let mut elsewhere = self.leader_election.clone();
        if account.leader_election_namespace == account.namespace {
            own.append(&mut elsewhere);
        }
        let Account { name, namespace, leader_election_namespace, .. } = account;
        let mut manifests = vec![json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name, "namespace": namespace },
        })];
        manifests.extend(account.role(None, &everywhere));
        manifests.extend(account.role(Some((namespace, name)), &own));
        manifests.extend(account.role(account.restricted_to.as_deref().map(|there| (there, &**name)), &watched));
        // Releases of one name may share that namespace.
        let there = Some((&**leader_election_namespace, &*account.cluster_role));
        manifests.extend(account.role(there, &elsewhere));
        manifests
    }
}

/// The order of verbs in a rule.
const VERBS: [&str; 7] = ["get", "list", "watch", "create", "update", "patch", "delete"];

/// Splits a rule into one for each resource of each group. A rule on URLs has neither, and stays as it is.
fn by_resource(rule: PolicyRule) -> Vec<PolicyRule> {
    let (Some(groups), Some(resources)) = (&rule.api_groups, &rule.resources) else { return vec![rule] };
    let each = groups.iter().flat_map(|group| resources.iter().map(move |resource| (group, resource)));
    each.map(|(group, resource)| PolicyRule {
        api_groups: Some(vec![group.clone()]),
        resources: Some(vec![resource.clone()]),
        ..rule.clone()
    })
    .collect()
}

/// The fewest rules that grant the same.
fn joined(rules: impl IntoIterator<Item = PolicyRule>) -> Vec<PolicyRule> {
    let mut single: Vec<PolicyRule> = Vec::new();
    for rule in rules.into_iter().flat_map(by_resource) {
        let differs_in_verbs =
            |known: &&mut PolicyRule| PolicyRule { verbs: rule.verbs.clone(), ..(**known).clone() } == rule;
        match single.iter_mut().find(differs_in_verbs) {
            Some(known) => known.verbs.extend(rule.verbs),
            None => single.push(rule),
        }
    }
    let mut joined: Vec<PolicyRule> = Vec::new();
    for mut rule in single {
        let place = |verb: &String| VERBS.iter().position(|known| *known == verb).unwrap_or(VERBS.len());
        rule.verbs.sort_by_cached_key(|verb| (place(verb), verb.clone()));
        rule.verbs.dedup();
        let differs_in_resources =
            |known: &&mut PolicyRule| PolicyRule { resources: rule.resources.clone(), ..(**known).clone() } == rule;
        match joined.iter_mut().find(differs_in_resources) {
            Some(known) => known.resources.get_or_insert_default().extend(rule.resources.unwrap_or_default()),
            None => joined.push(rule),
        }
    }
    joined
}

impl Account {
    /// A role in a namespace, of this name, or on the cluster, and its binding. Nothing when there is nothing to grant.
    fn role(&self, namespaced: Option<(&str, &str)>, rules: &[PolicyRule]) -> Vec<Value> {
        if rules.is_empty() {
            return Vec::new();
        }
        let (kind, metadata) = match namespaced {
            Some((namespace, name)) => ("Role", json!({ "name": name, "namespace": namespace })),
            None => ("ClusterRole", json!({ "name": self.cluster_role })),
        };
        let rbac = "rbac.authorization.k8s.io";
        vec![
            json!({ "apiVersion": format!("{rbac}/v1"), "kind": kind, "metadata": metadata, "rules": rules }),
            json!({
                "apiVersion": format!("{rbac}/v1"), "kind": format!("{kind}Binding"), "metadata": metadata,
                "roleRef": { "apiGroup": rbac, "kind": kind, "name": metadata["name"] },
                "subjects": [{ "kind": "ServiceAccount", "name": self.name, "namespace": self.namespace }],
            }),
        ]
    }
}

/// Whether Kubernetes brings this kind and it lives in no namespace.
fn brought(group: &str, plural: &str) -> bool {
    match group {
        "" => matches!(plural, "namespaces" | "nodes" | "persistentvolumes" | "componentstatuses"),
        "authorization.k8s.io" => plural != "localsubjectaccessreviews",
        "rbac.authorization.k8s.io" => plural.starts_with("cluster"),
        "storage.k8s.io" => plural != "csistoragecapacities",
        "resource.k8s.io" => !plural.starts_with("resourceclaim"),
        "certificates.k8s.io" => plural != "podcertificaterequests",
        "admissionregistration.k8s.io"
        | "apiextensions.k8s.io"
        | "apiregistration.k8s.io"
        | "authentication.k8s.io"
        | "flowcontrol.apiserver.k8s.io"
        | "internal.apiserver.k8s.io"
        | "node.k8s.io"
        | "scheduling.k8s.io"
        | "storagemigration.k8s.io" => true,
        "networking.k8s.io" => matches!(plural, "ingressclasses" | "ipaddresses" | "servicecidrs"),
        _ => false,
    }
}
