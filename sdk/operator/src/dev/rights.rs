//! What a development session needs to be allowed, and whether it is.

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};

use super::cluster::call;
use crate::Installation;

const ADMISSION: &str = "admissionregistration.k8s.io";
const COORDINATION: &str = "coordination.k8s.io";
const ON_CONFIGURATIONS: &[&str] = &["list", "get", "create", "delete"];
const ON_CRDS: &[&str] = &["get", "patch"];

const ON_LEASE: &[&str] = &["get", "create", "patch", "delete"];
const ON_LEASES: &[&str] = &["list", "watch"];
const ON_LEFT_LEASE: &[&str] = &["get", "delete"];

/// To see where restricted operators are.
pub(super) const TO_STAND_BACK: [Need<'static>; 3] = [
    Need { group: COORDINATION, resource: "leases", verbs: ON_LEASES, namespace: None },
    Need { group: ADMISSION, resource: POLICIES[0], verbs: ON_LEASES, namespace: None },
    Need { group: ADMISSION, resource: POLICIES[1], verbs: ON_LEASES, namespace: None },
];

/// The kinds that hand a namespace over.
const POLICIES: [&str; 2] = ["validatingadmissionpolicies", "validatingadmissionpolicybindings"];

/// To take away the Lease that a session left in this namespace.
pub(super) fn to_sweep(namespace: &str) -> Need<'_> {
    Need { group: COORDINATION, resource: "leases", verbs: ON_LEFT_LEASE, namespace: Some(namespace) }
}

/// What a session does, beside serving webhooks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Does<'a> {
    /// It converts.
    pub(super) conversions: bool,
    /// It puts policies into the cluster.
    pub(super) policies: bool,
    /// It runs controllers of this installation.
    pub(super) controllers: Option<&'a Installation>,
}

/// Verbs on a resource of a group.
pub(super) struct Need<'a> {
    group: &'static str,
    resource: &'static str,
    verbs: &'static [&'static str],
    namespace: Option<&'a str>,
}

/// All that is needed.
fn needs(does: Does<'_>) -> Vec<Need<'_>> {
    let need = |group, resource, verbs| Need { group, resource, verbs, namespace: None };
    let mut needs: Vec<_> = ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"]
        .map(|resource| need(ADMISSION, resource, ON_CONFIGURATIONS))
        .into();
    if does.policies {
        needs.extend(POLICIES.map(|policies| need(ADMISSION, policies, ON_CONFIGURATIONS)));
    }
    if does.conversions {
        needs.push(need("apiextensions.k8s.io", "customresourcedefinitions", ON_CRDS));
    }
    if let Some(Installation { leader_election_namespace, restricted_to, .. }) = does.controllers {
        let namespace = Some(restricted_to.as_ref().unwrap_or(leader_election_namespace).as_str());
        needs.push(Need { namespace, ..need("", "namespaces", &["get"]) });
        needs.push(Need { namespace, ..need(COORDINATION, "leases", ON_LEASE) });
        if restricted_to.is_none() {
            needs.extend(TO_STAND_BACK);
        } else {
            needs.extend(POLICIES.map(|policies| need(ADMISSION, policies, &["get"])));
        }
    }
    needs
}

/// Fails with the rights that are missing, all of them by name.
pub(super) async fn check(client: &Client, does: Does<'_>) -> anyhow::Result<()> {
    let mut missing = Vec::new();
    for need in needs(does) {
        missing.extend(refused(client, &need).await?);
    }
    anyhow::ensure!(
        missing.is_empty(),
        "{}: use one that may, such as a cluster administrator's, or have these rights granted by a ClusterRole",
        told(&missing.join("; nor "))
    );
    Ok(())
}

/// What is missing of something that a session can do without.
pub(super) async fn lacks(client: &Client, needs: &[Need<'_>]) -> anyhow::Result<Option<String>> {
    for need in needs {
        if let Some(missing) = refused(client, need).await? {
            return Ok(Some(told(&missing)));
        }
    }
    Ok(None)
}

fn told(missing: &str) -> String {
    format!("the user of this kubeconfig may not {missing}")
}

/// What of it is not allowed.
async fn refused(client: &Client, need: &Need<'_>) -> anyhow::Result<Option<String>> {
    let Need { group, resource, verbs, namespace } = need;
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let mut refused = Vec::new();
    for verb in *verbs {
        let attributes = ResourceAttributes {
            group: Some((*group).to_owned()),
            resource: Some((*resource).to_owned()),
            verb: Some((*verb).to_owned()),
            namespace: namespace.map(str::to_owned),
            ..ResourceAttributes::default()
        };
        let spec = SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            ..SelfSubjectAccessReviewSpec::default()
        };
        let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
        let answer = call("ask for your rights", reviews.create(&PostParams::default(), &review)).await?;
        if !answer.status.is_some_and(|status| status.allowed) {
            refused.push(*verb);
        }
    }
    if refused.is_empty() {
        return Ok(None);
    }
    let dot = if group.is_empty() { "" } else { "." };
    let place = namespace.map(|namespace| format!(" in {namespace}")).unwrap_or_default();
    Ok(Some(format!("{} {resource}{dot}{group}{place}", refused.join(", "))))
}
