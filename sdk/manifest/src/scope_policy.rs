//! The admission policy that hands a namespace over to a restricted operator.

use serde_json::{Value, json};

use crate::NAMESPACE_NAME;

/// Name of the policy, and of its binding, that vouches for holders of the Lease `lease` in this namespace. It is
/// unique, because the name of a namespace has no dot.
pub fn scope_policy_name(lease: &str, namespace: &str) -> String {
    format!("{lease}.{namespace}")
}

/// A `ValidatingAdmissionPolicy` and its binding, which restrict writes to a Lease of a namespace to users with a
/// cluster-wide right.
///
/// Kubernetes' ClusterRoles `edit` and `admin` allow writes to every Lease of a namespace. The required right is on the
/// whole cluster, so that no administrator of a namespace can grant it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopePolicy {
    /// Name of the policy, of its binding, and of the object that the right is on.
    pub name: String,
    /// The namespace that is handed over.
    pub namespace: String,
    /// Name of the Lease that it protects.
    pub lease: String,
}

impl ScopePolicy {
    /// API group of the required right; nothing is served under it.
    pub const GROUP: &'static str = "portcullis.dev";
    /// Resource of the required right, on the object with the policy's name.
    pub const RESOURCE: &'static str = "namespacescopes";
    /// Verb of the required right.
    pub const VERB: &'static str = "hold";

    /// The policy and its binding.
    pub fn manifests(&self) -> [Value; 2] {
        let Self { name, namespace, lease } = self;
        let (api, metadata) = ("admissionregistration.k8s.io/v1", json!({ "name": name }));
        // A collection is deleted object by object: none has a name in its request, each has one in itself.
        let about = format!("(object == null ? oldObject : object).metadata.name == '{lease}'");
        let (group, resource, verb) = (Self::GROUP, Self::RESOURCE, Self::VERB);
        let may =
            format!("authorizer.group('{group}').resource('{resource}').name('{name}').check('{verb}').allowed()");
        // Kubernetes deletes the Lease together with its namespace.
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
