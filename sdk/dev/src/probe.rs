//! Asks the API server whether it reaches this machine, before anything depends on it.
//!
//! A configuration of its own calls us for access reviews of a path that no other client asks about: every user may ask
//! for those, and nothing comes of them. What keeps the call from arriving is then said by the API server itself.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::bail;
use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, RuleWithOperations, ValidatingWebhook, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::PostParams;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::cluster::{Cluster, call};
use super::entries::Target;
use portcullis_webhook::{Validate, Verdict};

const PATH: &str = "/portcullis-dev-probe";
/// Seconds that the API server waits for us.
const TIMEOUT: i32 = 3;
/// The longest time in which API servers learn of a configuration.
const TAKE_UP: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(100);

/// A webhook that remembers which calls arrived.
#[derive(Clone, Debug, Default)]
pub(super) struct Probe {
    arrived: Arc<Mutex<BTreeSet<String>>>,
}

impl Probe {
    /// The webhook that is served for it.
    pub(super) fn webhook(&self) -> Validate<SelfSubjectAccessReview> {
        let arrived = Arc::clone(&self.arrived);
        Validate::new("portcullis-dev-probe").path(PATH).on_create(move |review: Arc<SelfSubjectAccessReview>, _| {
            let asked = review.spec.non_resource_attributes.as_ref().and_then(|attributes| attributes.path.clone());
            arrived.lock().unwrap_or_else(PoisonError::into_inner).extend(asked);
            async { Verdict::allow() }
        })
    }

    fn arrived(&self, asked: &str) -> bool {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner).contains(asked)
    }

    /// The first of `targets` at which the API server reaches us, by its index; otherwise why not, for each.
    ///
    /// # Errors
    /// When the API server does not take the configuration, or does not take it up.
    pub(super) async fn first_reached(
        &self,
        cluster: &Cluster,
        name: &str,
        targets: &[Target],
        stop: &CancellationToken,
    ) -> anyhow::Result<Result<usize, Vec<String>>> {
        cluster.put(&configuration(cluster, name, targets)).await?;
        let reviews: Api<SelfSubjectAccessReview> = Api::all(cluster.client.clone());
        let until = Instant::now() + TAKE_UP;
        let mut problems = Vec::new();
        for index in 0..targets.len() {
            let asked = asked(cluster, index);
            problems.push(loop {
                if stop.is_cancelled() {
                    bail!("ended before it began");
                }
                let answer =
                    call("ask the API server to call us", reviews.create(&PostParams::default(), &review(&asked)))
                        .await;
                match answer {
                    _ if self.arrived(&asked) => return Ok(Ok(index)),
                    Err(error) => break problem(error)?,
                    Ok(_) if Instant::now() > until => bail!(
                        "the API server did not call the webhooks of {name} within {} s, and gave no reason",
                        TAKE_UP.as_secs()
                    ),
                    // It has not learnt of the configuration yet.
                    Ok(_) => sleep(PAUSE).await,
                }
            });
        }
        Ok(Err(problems))
    }
}

/// Why the call did not arrive, as the API server says it; another error than that is returned.
fn problem(error: anyhow::Error) -> anyhow::Result<String> {
    let Some(kube::Error::Api(status)) = error.downcast_ref::<kube::Error>() else { return Err(error) };
    let said = status.message.split_once("failed to call webhook: ").map(|(_, said)| said.to_owned());
    said.ok_or(error)
}

/// The path by whose review the candidate of this index is called.
fn asked(cluster: &Cluster, index: usize) -> String {
    format!("{PATH}/{}/{index}", cluster.me.session)
}

fn review(asked: &str) -> SelfSubjectAccessReview {
    let attributes = NonResourceAttributes { path: Some(asked.to_owned()), verb: Some("get".to_owned()) };
    let spec = SelfSubjectAccessReviewSpec {
        non_resource_attributes: Some(attributes),
        ..SelfSubjectAccessReviewSpec::default()
    };
    SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() }
}

fn configuration(cluster: &Cluster, name: &str, targets: &[Target]) -> ValidatingWebhookConfiguration {
    let entry = |(index, target): (usize, &Target)| ValidatingWebhook {
        name: format!("candidate-{index}.dev.portcullis.dev"),
        admission_review_versions: vec!["v1".to_owned()],
        client_config: target.client_config(PATH),
        failure_policy: Some("Fail".to_owned()),
        match_conditions: Some(vec![MatchCondition {
            name: "asked".to_owned(),
            expression: format!(
                "has(object.spec.nonResourceAttributes) && has(object.spec.nonResourceAttributes.path) \
                 && object.spec.nonResourceAttributes.path == '{}'",
                asked(cluster, index)
            ),
        }]),
        rules: Some(vec![RuleWithOperations {
            api_groups: Some(vec!["authorization.k8s.io".to_owned()]),
            api_versions: Some(vec!["v1".to_owned()]),
            operations: Some(vec!["CREATE".to_owned()]),
            resources: Some(vec!["selfsubjectaccessreviews".to_owned()]),
            scope: Some("Cluster".to_owned()),
        }]),
        side_effects: "None".to_owned(),
        timeout_seconds: Some(TIMEOUT),
        ..ValidatingWebhook::default()
    };
    ValidatingWebhookConfiguration {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(cluster.me.labels()),
            annotations: Some(cluster.me.annotations()),
            ..ObjectMeta::default()
        },
        webhooks: Some(targets.iter().enumerate().map(entry).collect()),
    }
}
