//! The requests that a webhook is called for, and those that it refuses.

use kube_core::{ApiResource, GroupVersionKind, Resource};
use portcullis_manifest::{Rule, ScopeType};
use portcullis_review::Request;
use serde::de::DeserializeOwned;

use super::KnownScope;
use super::decision::Failure;

/// A kind that handlers can be registered for: every type that derives `kube::CustomResource`, and every kind of
/// k8s-openapi.
pub trait AdmissionObject:
    Resource<DynamicType = (), Scope: KnownScope> + DeserializeOwned + Send + Sync + 'static
{
}

impl<K> AdmissionObject for K where
    K: Resource<DynamicType = (), Scope: KnownScope> + DeserializeOwned + Send + Sync + 'static
{
}

/// The resources that a webhook for untyped objects is called for; `*` means all.
///
/// ```
/// use kube_core::{ApiResource, GroupVersionKind};
/// use portcullis_webhook::{ScopeType, Target};
///
/// // One kind that has no Rust type, and everything of a group with its subresources.
/// let widgets = Target::from(&ApiResource::from_gvk(&GroupVersionKind::gvk("shop.example", "v1", "Widget")));
/// assert_eq!(widgets.resources, ["widgets"]);
/// let shop = Target {
///     groups: vec!["shop.example".into()],
///     versions: vec!["*".into()],
///     resources: vec!["*/*".into()],
///     scope: ScopeType::Any,
/// };
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// API groups; the core group is the empty one.
    pub groups: Vec<String>,
    /// Versions of the groups.
    pub versions: Vec<String>,
    /// Plural names. `pods/status` is a subresource, `pods/*` is pods with all their subresources, `*` is all resources
    /// without subresources, `*/*` is all of both.
    pub resources: Vec<String>,
    /// Namespaced or cluster-scoped.
    pub scope: ScopeType,
}

impl From<&ApiResource> for Target {
    fn from(resource: &ApiResource) -> Self {
        Self {
            groups: vec![resource.group.clone()],
            versions: vec![resource.version.clone()],
            resources: vec![resource.plural.clone()],
            scope: ScopeType::Any,
        }
    }
}

/// A target, and the kind of its objects where there is only one.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    target: Target,
    kind: Option<GroupVersionKind>,
}

impl Subject {
    /// The objects of a kind.
    pub(super) fn objects<K: AdmissionObject>() -> Self {
        let kind = GroupVersionKind::gvk(&K::group(&()), &K::version(&()), &K::kind(&()));
        Self { target: Self::target::<K>(K::plural(&()).into_owned()), kind: Some(kind) }
    }

    /// A subresource of a kind. What is sent there is often of another kind, in a group of its own.
    pub(super) fn subresource<K: AdmissionObject>(subresource: &str) -> Self {
        Self { target: Self::target::<K>(format!("{}/{subresource}", K::plural(&()))), kind: None }
    }

    /// Any objects that the target selects.
    pub(super) fn dynamic(target: Target) -> Self {
        Self { target, kind: None }
    }

    fn target<K: AdmissionObject>(resource: String) -> Target {
        Target {
            groups: vec![K::group(&()).into_owned()],
            versions: vec![K::version(&()).into_owned()],
            resources: vec![resource],
            scope: <K::Scope as KnownScope>::SCOPE,
        }
    }

    /// The kind of its objects, where there is only one.
    pub(super) fn kind(&self) -> Option<&GroupVersionKind> {
        self.kind.as_ref()
    }

    /// The rule of the webhook's entry, for no operation yet.
    pub(super) fn rule(&self) -> Rule {
        let Target { groups, versions, resources, scope } = self.target.clone();
        Rule { groups, versions, resources, scope, operations: Vec::new() }
    }

    /// The part of the full name after the webhook's own name: Kubernetes requires three labels at least, the core
    /// group has no name, and a target may have many groups.
    pub(super) fn domain(&self) -> String {
        let mut plurals = self.target.resources.iter().map(|resource| resource.split('/').next().unwrap_or_default());
        match (&*self.target.groups, plurals.next()) {
            ([group], Some(plural)) if group != "*" && plural != "*" && plurals.all(|other| other == plural) => {
                format!("{plural}.{}", if group.is_empty() { "core" } else { group })
            }
            _ => "dynamic.portcullis.dev".to_owned(),
        }
    }

    /// Refuses a request that the webhook's configuration should not have sent here.
    pub(super) fn screen(&self, request: &Request<'_>) -> Result<(), Failure> {
        let Request { kind, resource, sub_resource, operation, .. } = request;
        match &self.kind {
            Some(expected) if kind != expected => Err(Failure::Kind {
                expected: format!("{}/{} {}", expected.group, expected.version, expected.kind),
                found: format!("{}/{} {}", kind.group, kind.version, kind.kind),
            }),
            Some(_) if sub_resource.is_empty() => Ok(()),
            Some(_) => Err(Failure::NoHandler(format!("{operation} of the subresource {sub_resource}"))),
            None if self.matches(&resource.group, &resource.version, &resource.resource, sub_resource) => Ok(()),
            None => Err(Failure::Resource {
                expected: format!("{} of {:?}", self.target.resources.join(", "), self.target.groups),
                found: format!("{}/{sub_resource} of {:?}", resource.resource, resource.group),
            }),
        }
    }

    /// Matches rules as the API server does (apiserver, admission/plugin/webhook/predicates/rules).
    fn matches(&self, group: &str, version: &str, resource: &str, subresource: &str) -> bool {
        let holds = |list: &[String], text: &str| list.iter().any(|item| item == "*" || item == text);
        let one = |pattern: &String| {
            let (wanted, sub) = pattern.split_once('/').unwrap_or((pattern, ""));
            (wanted == "*" || wanted == resource) && (sub == "*" || sub == subresource)
        };
        holds(&self.target.groups, group)
            && holds(&self.target.versions, version)
            && self.target.resources.iter().any(one)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_match_as_the_api_server_matches_them() {
        let cases = [
            ("pods", "pods", "", true),
            ("pods", "pods", "status", false),
            ("pods/status", "pods", "status", true),
            ("pods/status", "pods", "", false),
            ("pods/*", "pods", "exec", true),
            ("pods/*", "pods", "", true),
            ("*", "pods", "", true),
            ("*", "pods", "exec", false),
            ("*/scale", "deployments", "scale", true),
            ("*/scale", "deployments", "", false),
            ("*/*", "pods", "exec", true),
            ("*/*", "pods", "", true),
        ];
        for (pattern, resource, subresource, expected) in cases {
            let target = Target {
                groups: vec!["apps".into(), String::new()],
                versions: vec!["*".into()],
                resources: vec![pattern.into()],
                scope: ScopeType::Any,
            };
            let subject = Subject::dynamic(target);
            assert_eq!(
                subject.matches("", "v1", resource, subresource),
                expected,
                "{pattern} {resource}/{subresource}"
            );
            assert!(!subject.matches("batch", "v1", resource, subresource));
        }
    }
}
