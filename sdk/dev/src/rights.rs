//! The rights that a session needs, and whether the user has them.

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};

use super::cluster::call;

const GROUP: &str = "admissionregistration.k8s.io";
const VERBS: [&str; 4] = ["list", "get", "create", "delete"];
const CONFIGURATIONS: [&str; 2] = ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"];

/// Fails with the rights that are missing, all of them by name.
pub(super) async fn check(client: &Client) -> anyhow::Result<()> {
    let mut missing = Vec::new();
    for resource in CONFIGURATIONS {
        let refused = refused(client, resource).await?;
        if !refused.is_empty() {
            missing.push(format!("{} {resource}.{GROUP}", refused.join(", ")));
        }
    }
    anyhow::ensure!(
        missing.is_empty(),
        "the user of this kubeconfig may not {}: use one that may, such as a cluster administrator's, or have these rights \
         granted by a ClusterRole",
        missing.join("; nor ")
    );
    Ok(())
}

/// The verbs on this resource that are not allowed.
async fn refused(client: &Client, resource: &str) -> anyhow::Result<Vec<&'static str>> {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let mut refused = Vec::new();
    for verb in VERBS {
        let attributes = ResourceAttributes {
            group: Some(GROUP.to_owned()),
            resource: Some(resource.to_owned()),
            verb: Some(verb.to_owned()),
            ..ResourceAttributes::default()
        };
        let spec = SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            ..SelfSubjectAccessReviewSpec::default()
        };
        let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
        let answer = call("ask for your rights", reviews.create(&PostParams::default(), &review)).await?;
        if !answer.status.is_some_and(|status| status.allowed) {
            refused.push(verb);
        }
    }
    Ok(refused)
}
