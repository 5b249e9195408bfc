//! Rights of an operator: what it may do everywhere, and what only in its own namespace.

use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::{Value, json};

/// One grant: verbs on resources of one group, by name where the verb allows that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Plural names, with `/subresource` where one is meant.
    pub resources: Vec<&'static str>,
    /// Verbs. `create`, `list` and `watch` cannot be narrowed by name.
    pub verbs: Vec<&'static str>,
    /// Names it is narrowed to; empty for all.
    pub names: Vec<String>,
}

impl Grant {
    /// `verbs` on `resources` of `group`.
    pub fn new(group: &'static str, resources: &[&'static str], verbs: &[&'static str]) -> Self {
        Self { group, resources: resources.to_vec(), verbs: verbs.to_vec(), names: Vec::new() }
    }

    /// Narrows it to objects with these names.
    #[must_use]
    pub fn named(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.names = names.into_iter().map(Into::into).collect();
        self
    }

    /// The same as Kubernetes' own type.
    pub fn to_rule(&self) -> PolicyRule {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        PolicyRule {
            api_groups: Some(vec![self.group.to_owned()]),
            resources: Some(owned(&self.resources)),
            verbs: owned(&self.verbs),
            resource_names: (!self.names.is_empty()).then(|| self.names.clone()),
            ..PolicyRule::default()
        }
    }
}

/// Everything that an operator may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// In every namespace, and on cluster-scoped objects.
    pub cluster: Vec<Grant>,
    /// In its own namespace only.
    pub own_namespace: Vec<Grant>,
}

impl Access {
    /// ServiceAccount, roles and bindings, all named `name`; the namespaced ones live in `namespace`.
    pub fn manifests(&self, name: &str, namespace: &str) -> Vec<Value> {
        let rules = |grants: &[Grant]| grants.iter().map(Grant::to_rule).collect::<Vec<_>>();
        let here = json!({ "name": name, "namespace": namespace });
        let subjects = json!([{ "kind": "ServiceAccount", "name": name, "namespace": namespace }]);
        let role_ref = |kind: &str| json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name });
        let rbac = "rbac.authorization.k8s.io/v1";
        vec![
            json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": here }),
            json!({ "apiVersion": rbac, "kind": "ClusterRole", "metadata": { "name": name }, "rules": rules(&self.cluster) }),
            json!({ "apiVersion": rbac, "kind": "ClusterRoleBinding", "metadata": { "name": name },
                "roleRef": role_ref("ClusterRole"), "subjects": subjects }),
            json!({ "apiVersion": rbac, "kind": "Role", "metadata": here, "rules": rules(&self.own_namespace) }),
            json!({ "apiVersion": rbac, "kind": "RoleBinding", "metadata": here, "roleRef": role_ref("Role"), "subjects": subjects }),
        ]
    }
}
