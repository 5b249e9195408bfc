//! What a development session needs to be allowed, and whether it is.

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};

use super::cluster::call;

const ADMISSION: &str = "admissionregistration.k8s.io";
const ON_CONFIGURATIONS: &[&str] = &["list", "get", "create", "delete"];
const ON_CRDS: &[&str] = &["get", "patch"];

/// Verbs on a resource of a group.
struct Need {
    group: &'static str,
    resource: &'static str,
    verbs: &'static [&'static str],
}

/// All that is needed.
fn needs(conversions: bool) -> Vec<Need> {
    let mut needs: Vec<_> = ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"]
        .map(|resource| Need { group: ADMISSION, resource, verbs: ON_CONFIGURATIONS })
        .into();
    if conversions {
        let resource = "customresourcedefinitions";
        needs.push(Need { group: "apiextensions.k8s.io", resource, verbs: ON_CRDS });
    }
    needs
}

/// Fails with the rights that are missing, all of them by name.
pub(super) async fn check(client: &Client, conversions: bool) -> anyhow::Result<()> {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let mut missing = Vec::new();
    for Need { group, resource, verbs } in needs(conversions) {
        let mut refused = Vec::new();
        for verb in verbs {
            let attributes = ResourceAttributes {
                group: Some(group.to_owned()),
                resource: Some(resource.to_owned()),
                verb: Some((*verb).to_owned()),
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
        if !refused.is_empty() {
            missing.push(format!("{} {resource}.{group}", refused.join(", ")));
        }
    }
    anyhow::ensure!(
        missing.is_empty(),
        "the user of this kubeconfig may not {}: use one that may, such as a cluster administrator's, or have these \
         rights granted by a ClusterRole",
        missing.join("; nor ")
    );
    Ok(())
}
