//! What hands a namespace over to a restricted operator: who may write the Leases by which one claims it.

use serde_json::{Value, json};

use crate::NAMESPACE_NAME;

/// Name of the policy, and of its binding, that vouches for holders of the Lease `lease` in this namespace. A namespace's
/// name has no dot, so no two namespaces have the same.
pub fn scope_policy_name(lease: &str, namespace: &str) -> String {
    format!("{lease}.{namespace}")
}

/// A `ValidatingAdmissionPolicy` and its binding, under which only those write certain Leases of a namespace whom RBAC
/// allows something that no role for tenants has.
///
/// Kubernetes' ClusterRoles `edit` and `admin` write every Lease of a namespace. The right that is asked for instead is
/// one on the whole cluster, which nobody can grant in a namespace, not even who may do everything there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopePolicy {
    /// Name of the policy, of its binding, and of what the right is on.
    pub name: String,
    /// The namespace that is handed over.
    pub namespace: String,
    /// Names of the Leases that it is about.
    pub leases: Vec<String>,
}

impl ScopePolicy {
    /// The group of what the right is on: nothing is served under it.
    pub const GROUP: &'static str = "portcullis.dev";
    /// What the right is on, by the policy's name.
    pub const RESOURCE: &'static str = "namespacescopes";
    /// The right.
    pub const VERB: &'static str = "hold";

    /// The policy and its binding.
    pub fn manifests(&self) -> [Value; 2] {
        let Self { name, namespace, leases } = self;
        let (api, metadata) = ("admissionregistration.k8s.io/v1", json!({ "name": name }));
        let named: Vec<String> = leases.iter().map(|lease| format!("'{lease}'")).collect();
        // A collection is deleted object by object: none has a name in its request, each has one in itself.
        let about = format!("(object == null ? oldObject : object).metadata.name in [{}]", named.join(", "));
        let (group, resource, verb) = (Self::GROUP, Self::RESOURCE, Self::VERB);
        let may =
            format!("authorizer.group('{group}').resource('{resource}').name('{name}').check('{verb}').allowed()");
        // What goes with its namespace is deleted by Kubernetes.
        let ends = "request.operation == 'DELETE' && has(namespaceObject.metadata.deletionTimestamp)";
        let message = format!(
            "this Lease hands namespace {namespace} over to a restricted operator: only who may {verb} {resource} of \
             {group} named {name}, by a ClusterRole, writes it"
        );
        [
            json!({
                "apiVersion": api, "kind": "ValidatingAdmissionPolicy", "metadata": metadata,
                "spec": {
                    "failurePolicy": "Fail",
                    "matchConstraints": {
                        "namespaceSelector": { "matchLabels": { NAMESPACE_NAME: namespace } },
                        "resourceRules": [{
                            "apiGroups": ["coordination.k8s.io"], "apiVersions": ["*"],
                            "operations": ["CREATE", "UPDATE", "DELETE"],
                            "resources": ["leases"], "scope": "Namespaced",
                        }],
                    },
                    "matchConditions": [{ "name": "scope-lease", "expression": about }],
                    "validations": [{ "expression": format!("{may} || {ends}"), "message": message, "reason": "Forbidden" }],
                },
            }),
            json!({
                "apiVersion": api, "kind": "ValidatingAdmissionPolicyBinding", "metadata": metadata,
                "spec": { "policyName": name, "validationActions": ["Deny"] },
            }),
        ]
    }
}
