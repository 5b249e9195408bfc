//! RBAC of an operator: on the cluster, on what it watches, and in its own namespace.

use std::collections::BTreeSet;

use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::{Value, json};

/// One RBAC rule: verbs on resources of one API group, optionally on named objects only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// API group; empty for the core group.
    pub group: String,
    /// Plural names, or `plural/subresource`.
    pub resources: Vec<String>,
    /// Verbs. `create`, `list` and `watch` cannot be narrowed by name.
    pub verbs: Vec<&'static str>,
    /// Names of the objects that it is narrowed to; empty for all.
    pub names: Vec<String>,
}

impl Grant {
    /// Grants `verbs` on `resources` of `group`.
    pub fn new(group: &str, resources: &[impl AsRef<str>], verbs: &[&'static str]) -> Self {
        let resources = resources.iter().map(|resource| resource.as_ref().to_owned()).collect();
        Self { group: group.to_owned(), resources, verbs: verbs.to_vec(), names: Vec::new() }
    }

    /// Narrows the grant to objects with these names.
    #[must_use]
    pub fn named(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.names = names.into_iter().map(Into::into).collect();
        self
    }

    /// Converts it to Kubernetes' own type.
    pub fn to_rule(&self) -> PolicyRule {
        PolicyRule {
            api_groups: Some(vec![self.group.clone()]),
            resources: Some(self.resources.clone()),
            verbs: self.verbs.iter().map(|verb| (*verb).to_owned()).collect(),
            resource_names: (!self.names.is_empty()).then(|| self.names.clone()),
            ..PolicyRule::default()
        }
    }

    /// The part of it that is about kinds without a namespace, and the rest.
    fn split(&self, cluster_scoped: &impl Fn(&str, &str) -> bool) -> (Option<Self>, Option<Self>) {
        let part = |of_cluster: bool| {
            let plural = |resource: &str| resource.split('/').next().unwrap_or_default().to_owned();
            let resources = self.resources.iter().cloned();
            let resources: Vec<_> =
                resources.filter(|resource| cluster_scoped(&self.group, &plural(resource)) == of_cluster).collect();
            (!resources.is_empty()).then(|| Self { resources, ..self.clone() })
        };
        (part(true), part(false))
    }
}

/// The rights of an account. A list of grants converts to rights on [what it watches](Self::watched).
///
/// ```
/// use portcullis_manifest::{Access, Grant};
///
/// let orders = [Grant::new("shop.example", &["orders"], &["list", "watch", "patch"])];
/// let key = [Grant::new("", &["secrets"], &["get"]).named(["order-key"])];
/// let access = Access::from(orders).in_own_namespace(key);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Rights on what it watches: in the whole cluster, or in the one namespace that an installation is restricted to.
    pub watched: Vec<Grant>,
    /// Rights on single cluster-scoped objects (by name), also of a restricted installation.
    pub cluster: Vec<Grant>,
    /// Rights in the operator's own namespace.
    pub own_namespace: Vec<Grant>,
    /// Rights in the namespace of leader election.
    pub leader_election: Vec<Grant>,
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

impl<G: IntoIterator<Item = Grant>> From<G> for Access {
    fn from(grants: G) -> Self {
        Self { watched: grants.into_iter().collect(), ..Self::default() }
    }
}

impl Access {
    /// Adds grants in the operator's own namespace.
    #[must_use]
    pub fn in_own_namespace(mut self, grants: impl IntoIterator<Item = Grant>) -> Self {
        self.own_namespace.extend(grants);
        self
    }

    /// Merges both. Each resource is mentioned once for the same names, with all its verbs, and resources of one group
    /// with equal verbs share a grant.
    #[must_use]
    pub fn and(self, other: impl Into<Self>) -> Self {
        let other = other.into();
        Self {
            watched: joined(self.watched, other.watched),
            cluster: joined(self.cluster, other.cluster),
            own_namespace: joined(self.own_namespace, other.own_namespace),
            leader_election: joined(self.leader_election, other.leader_election),
        }
    }

    /// ServiceAccount, roles and bindings. A role without rules is left out.
    ///
    /// For an account that is restricted to a namespace, the rights on what it watches become a Role in that namespace;
    /// those on cluster-scoped kinds, which are Kubernetes' own and those for which `cluster_scoped` (group, plural) is
    /// true, a ClusterRole.
    pub fn manifests(&self, account: &Account, cluster_scoped: impl Fn(&str, &str) -> bool) -> Vec<Value> {
        let cluster_scoped = |group: &str, plural: &str| brought(group, plural) || cluster_scoped(group, plural);
        let (mut everywhere, mut watched, mut own) = (Vec::new(), Vec::new(), Vec::new());
        for grant in &self.watched {
            let (of_cluster, of_namespaces) = match &account.restricted_to {
                Some(_) => grant.split(&cluster_scoped),
                None => (Some(grant.clone()), None),
            };
            everywhere.extend(of_cluster);
            watched.extend(of_namespaces);
        }
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

/// The union of two lists of grants.
fn joined(first: Vec<Grant>, second: Vec<Grant>) -> Vec<Grant> {
    let mut by_resource: Vec<Grant> = Vec::new();
    for Grant { group, resources, verbs, names } in first.into_iter().chain(second) {
        for resource in resources {
            let grant =
                Grant { group: group.clone(), resources: vec![resource], verbs: verbs.clone(), names: names.clone() };
            let same = |it: &&mut Grant| {
                (&it.group, &it.resources, &it.names) == (&grant.group, &grant.resources, &grant.names)
            };
            match by_resource.iter_mut().find(same) {
                Some(known) => {
                    let new: Vec<_> = verbs.iter().copied().filter(|verb| !known.verbs.contains(verb)).collect();
                    known.verbs.extend(new);
                }
                None => by_resource.push(grant),
            }
        }
    }
    let mut joined: Vec<Grant> = Vec::new();
    for grant in by_resource {
        let verbs = |it: &Grant| it.verbs.iter().copied().collect::<BTreeSet<_>>();
        let equal = |it: &&mut Grant| (&it.group, &it.names, verbs(it)) == (&grant.group, &grant.names, verbs(&grant));
        match joined.iter_mut().find(equal) {
            Some(known) => known.resources.extend(grant.resources),
            None => joined.push(grant),
        }
    }
    for grant in &mut joined {
        grant.verbs.sort_by_key(|verb| VERBS.iter().position(|known| known == verb).unwrap_or(VERBS.len()));
    }
    joined
}

impl Account {
    /// A role in a namespace, of this name, or on the cluster, and its binding. Nothing when there is nothing to grant.
    fn role(&self, namespaced: Option<(&str, &str)>, grants: &[Grant]) -> Vec<Value> {
        if grants.is_empty() {
            return Vec::new();
        }
        let (kind, metadata) = match namespaced {
            Some((namespace, name)) => ("Role", json!({ "name": name, "namespace": namespace })),
            None => ("ClusterRole", json!({ "name": self.cluster_role })),
        };
        let rules: Vec<PolicyRule> = grants.iter().map(Grant::to_rule).collect();
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
