//! Webhooks that could lock a cluster: narrowed where that suffices, otherwise refused.
//!
//! A webhook that fails closed blocks requests while its operator is down. When these are the requests that restart the
//! operator, it stays down.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use portcullis_review::Operation;

use crate::{FailurePolicy, Rule, ScopeType, Webhook};

/// The label that the API server sets on every namespace: its name.
pub const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
/// The namespace of the components without which nothing in a cluster starts: network, DNS, the leases of controllers.
const KUBE_SYSTEM: &str = "kube-system";
/// The namespace of the Leases that nodes renew.
const NODE_LEASES: &str = "kube-node-lease";

/// Kinds in namespaces without which no Pod of the operator comes up, and none of what it needs from others.
const IN_NAMESPACES: [(&str, &[&str]); 6] = [
    ("", &["pods", "serviceaccounts", "secrets", "configmaps", "services", "endpoints"]),
    ("apps", &["deployments", "replicasets", "daemonsets", "statefulsets", "controllerrevisions"]),
    ("coordination.k8s.io", &["leases"]),
    ("discovery.k8s.io", &["endpointslices"]),
    ("policy", &["poddisruptionbudgets"]),
    // An API server that cannot bring its own up to date does not start.
    ("rbac.authorization.k8s.io", &["roles", "rolebindings"]),
];
/// Kinds without a namespace, with what stops when they cannot be written. No selector of namespaces leaves any out.
const OF_CLUSTERS: [(&str, &str, &str); 12] = [
    ("", "nodes", "no node could join the cluster or say that it lives"),
    ("authentication.k8s.io", "tokenreviews", "nobody could prove to a kubelet or an API server who they are"),
    ("authorization.k8s.io", "subjectaccessreviews", "nobody could be given what their rights allow"),
    ("apiextensions.k8s.io", "customresourcedefinitions", "the operator could not publish its own CA in a CRD"),
    ("certificates.k8s.io", "certificatesigningrequests", "no kubelet could get or renew its certificate"),
    ("rbac.authorization.k8s.io", "clusterrolebindings", "the operator could not get its own rights back"),
    ("rbac.authorization.k8s.io", "clusterroles", "no API server could start: it brings its own up to date first"),
    ("scheduling.k8s.io", "priorityclasses", "no API server could start: it brings its own up to date first"),
    ("apiregistration.k8s.io", "apiservices", "no API server could become ready: it registers its own first"),
    (
        "flowcontrol.apiserver.k8s.io",
        "flowschemas",
        "no API server could become ready: it brings its own up to date first",
    ),
    (
        "flowcontrol.apiserver.k8s.io",
        "prioritylevelconfigurations",
        "no API server could become ready: it brings its own up to date first",
    ),
    ("storage.k8s.io", "csinodes", "no kubelet could start"),
];

/// A webhook that could lock the cluster. Register it as `fix` says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("webhook {webhook} could lock the cluster: it fails closed and {reach}; {fix}")]
#[non_exhaustive]
pub struct Deadlock {
    /// The webhook's name.
    pub webhook: String,
    /// The resources that it intercepts, and the consequence.
    pub reach: String,
    /// The fix.
    pub fix: String,
}

impl Webhook {
    /// Excludes the namespaces in which the webhook could lock the cluster. Where it fails closed and a rule reaches
    /// kinds of Kubernetes itself or of cert-manager, that is the operator's own namespace; where these are kinds that
    /// any Pod needs, `kube-system` as well (and `kube-node-lease` for Leases). An operator that is down could not get
    /// the Pod, Secret or Lease that it needs to restart. A webhook for custom kinds alone is not narrowed, because it
    /// cannot keep the operator from starting. Setting the failure policy of an installation to `Ignore` changes
    /// nothing here: charts have one selector for both policies, and the admission policies with its CEL rules always
    /// fail closed.
    ///
    /// # Errors
    /// When excluding namespaces does not help: a rule reaches cluster-scoped kinds (Nodes, TokenReviews, …) with no
    /// object selector and no match condition, or the selector asks for just what has to be excluded.
    pub fn prevent_deadlock(mut self, own_namespace: &str) -> Result<Self, Deadlock> {
        let ignores = self.failure_policy == FailurePolicy::Ignore && !self.ignores_by_override;
        if ignores || !self.rules.iter().any(reaches_builtin_kinds) {
            return Ok(self);
        }
        if let Some((reach, fix)) = self.reach_of_cluster() {
            return Err(Deadlock { webhook: self.name, reach, fix });
        }
        let excluded = self.excluded(own_namespace);
        if let Some(only) = self.only_namespaces().filter(|only| only.iter().all(|name| excluded.contains(name))) {
            let reach = format!("selects namespace {}, which it has to leave alone", only.join(", "));
            let fix = "let it ignore failures (FailurePolicy::Ignore), or let the operator live elsewhere than what it \
                       guards";
            return Err(Deadlock { webhook: self.name, reach, fix: fix.to_owned() });
        }
        let requirement = LabelSelectorRequirement {
            key: NAMESPACE_NAME.to_owned(),
            operator: "NotIn".to_owned(),
            values: Some(excluded),
        };
        let selector = self.namespace_selector.get_or_insert_default();
        selector.match_expressions.get_or_insert_default().push(requirement);
        Ok(self)
    }

    /// Finds cluster-scoped resources that it intercepts and that a cluster needs to work.
    fn reach_of_cluster(&self) -> Option<(String, String)> {
        let narrowed = !self.match_conditions.is_empty() || self.object_selector.as_ref().is_some_and(is_narrow);
        for rule in self.rules.iter().filter(|rule| rule.scope != ScopeType::Namespaced && writes(rule)) {
            for (group, plural, stops) in OF_CLUSTERS.iter().filter(|(group, plural, _)| reaches(rule, group, plural)) {
                let named = rule.resources.iter().any(|resource| resource.split('/').next() == Some(plural));
                if named && narrowed {
                    continue;
                }
                let whose = if named { "its rule names" } else { "its rule for all resources reaches" };
                let of = if group.is_empty() { String::new() } else { format!(".{group}") };
                let fix = if named {
                    "let it ignore failures (FailurePolicy::Ignore), or narrow it by a match condition or an object \
                     selector"
                } else {
                    "name its resources, or say that they are namespaced (ScopeType::Namespaced), or let it ignore failures \
                     (FailurePolicy::Ignore)"
                };
                return Some((format!("{whose} {plural}{of}: while the operator is away, {stops}"), fix.to_owned()));
            }
        }
        None
    }

    /// The namespaces that it must exclude.
    fn excluded(&self, own_namespace: &str) -> Vec<String> {
        let reached = |group: &str, plural: &str| {
            self.rules.iter().any(|rule| rule.scope != ScopeType::Cluster && reaches(rule, group, plural))
        };
        let mut excluded = vec![own_namespace];
        if IN_NAMESPACES.iter().any(|(group, plurals)| plurals.iter().any(|plural| reached(group, plural))) {
            excluded.push(KUBE_SYSTEM);
        }
        if reached("coordination.k8s.io", "leases") {
            excluded.push(NODE_LEASES);
        }
        let mut named: Vec<String> = Vec::new();
        for namespace in excluded {
            if !named.iter().any(|name| name == namespace) {
                named.push(namespace.to_owned());
            }
        }
        named
    }

    /// The namespaces that its selector asks for by name, if it does.
    fn only_namespaces(&self) -> Option<Vec<String>> {
        let selector = self.namespace_selector.as_ref()?;
        let label = selector.match_labels.as_ref().and_then(|labels| labels.get(NAMESPACE_NAME));
        let expressions = selector.match_expressions.iter().flatten();
        let mut listed =
            expressions.filter(|requirement| requirement.key == NAMESPACE_NAME && requirement.operator == "In");
        label.map(|name| vec![name.clone()]).or_else(|| listed.next()?.values.clone())
    }

    /// Restricts the webhook to the objects of one namespace, in place of its namespace selector. `None` for a webhook
    /// for cluster-scoped kinds, which belong to the cluster-wide installation.
    #[must_use]
    pub fn restrict_to_namespace(mut self, namespace: &str) -> Option<Self> {
        self.rules.retain(|rule| rule.scope != ScopeType::Cluster);
        for rule in &mut self.rules {
            rule.scope = ScopeType::Namespaced;
        }
        let labels = [(NAMESPACE_NAME.to_owned(), namespace.to_owned())].into();
        self.namespace_selector = Some(LabelSelector { match_labels: Some(labels), match_expressions: None });
        (!self.rules.is_empty()).then_some(self)
    }
}

/// Whether it can match kinds that Kubernetes itself brings, or cert-manager's, by which the operator may get its
/// certificate. Other custom kinds live in groups with a dot that do not end in `k8s.io`.
fn reaches_builtin_kinds(rule: &Rule) -> bool {
    let brought =
        |group: &str, by: &str| group.strip_suffix(by).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    let groups = &rule.groups;
    groups.iter().any(|group| !group.contains('.') || brought(group, "k8s.io") || brought(group, "cert-manager.io"))
}

/// Whether it matches this kind, or one of its subresources.
fn reaches(rule: &Rule, group: &str, plural: &str) -> bool {
    let kind = |resource: &String| {
        let resource = resource.split('/').next().unwrap_or_default();
        resource == "*" || resource == plural
    };
    rule.groups.iter().any(|named| named == "*" || named == group) && rule.resources.iter().any(kind)
}

/// Whether it stops what is made or changed. A webhook for deletions alone keeps no pod from starting.
fn writes(rule: &Rule) -> bool {
    rule.operations.iter().any(|operation| matches!(operation, Operation::Create | Operation::Update))
}

/// Whether it excludes anything.
fn is_narrow(selector: &LabelSelector) -> bool {
    let labels = selector.match_labels.as_ref().is_some_and(|labels| !labels.is_empty());
    labels || selector.match_expressions.as_ref().is_some_and(|expressions| !expressions.is_empty())
}
