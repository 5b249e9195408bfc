//! M6: a shadow becomes a guard by one edit, which changes the template of pods once, and no pod that lacks the guard serves beside one
//! that has it. So it is the other way round.

use serde_json::{Value, json};

use super::{
    Operator, Place,
    policy::{BOTH, always, edit, is_ready, place, removed_first, says_enforced, until, workload},
    recorder::{Guarded, Moment, Recorder},
    support::{authz_config, webhook_config},
};

/// The changes of the template that pods are made of.
fn changes(moments: &[Moment]) -> usize {
    let deployments = moments.iter().filter_map(|moment| moment.deployment("web"));
    let mut templates: Vec<_> = deployments.map(|deployment| &deployment["spec"]["template"]).collect();
    templates.dedup();
    templates.len() - 1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_in_shadow_decides_after_one_rollout() {
    for guarded in BOTH {
        let place = place(guarded, "webhook-decides").await;
        let operator = place.operator();
        place.objects.create(webhook_config("gate", json!({"mode": "shadow"}))).await;
        place.objects.create(workload(guarded, json!({"webhookConfigRef": {"name": "gate"}}))).await;
        let before = until(&place, guarded, "the webhook to be tried", |_| true, says_enforced).await;
        let recorder = Recorder::start(&place.objects, guarded).await;
        let decide = json!({"spec": {"validating": [{"name": "policy", "url": "https://policy.example.svc/check"}]}});
        place.objects.merge("toolhive.stacklok.dev/v1alpha1", "MCPWebhookConfig", "gate", decide).await;
        let hash = &before["status"]["webhookConfigHash"];
        let decides = |it: &Value| says_enforced(it) && it["status"]["webhookConfigHash"] != *hash;
        until(&place, guarded, "the webhook to decide", |_| true, decides).await;
        operator.idle(place.cluster).await;
        let moments = recorder.moments().await;
        always(&moments);
        assert!(moments.iter().all(|moment| !moment.serving().is_empty()), "{guarded:?}: there is no gap");
        assert_eq!(changes(&moments), 1, "{guarded:?}");

        let recorder = Recorder::start(&place.objects, guarded).await;
        let back = webhook_config("gate", json!({"mode": "shadow"}));
        let back = json!({"spec": back["spec"]});
        place.objects.merge("toolhive.stacklok.dev/v1alpha1", "MCPWebhookConfig", "gate", back).await;
        let is_tried = |it: &Value| says_enforced(it) && it["status"]["webhookConfigHash"] == *hash;
        until(&place, guarded, "the webhook to be tried again", |_| true, is_tried).await;
        rolled_back(&place, operator, recorder, guarded).await;
    }
}

/// It rolls once more, and there is no gap.
async fn rolled_back(place: &Place, operator: Operator, recorder: Recorder, guarded: Guarded) {
    operator.idle(place.cluster).await;
    let moments = recorder.moments().await;
    always(&moments);
    assert!(moments.iter().all(|moment| !moment.serving().is_empty()), "{guarded:?}: there is no gap");
    assert_eq!(changes(&moments), 1, "{guarded:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_that_were_tried_decide_after_one_rollout() {
    for guarded in BOTH {
        let place = place(guarded, "policies-decide").await;
        let operator = place.operator();
        place.objects.create(authz_config("rules", &["permit(principal, action, resource);"])).await;
        place.objects.create(workload(guarded, json!({"shadowPoliciesRef": {"name": "rules"}}))).await;
        until(&place, guarded, "the proxy to serve", |_| true, is_ready).await;
        let recorder = Recorder::start(&place.objects, guarded).await;
        edit(&place, guarded, json!({"shadowPoliciesRef": null, "authzConfigRef": {"name": "rules"}})).await;
        until(&place, guarded, "the policies to decide", |_| true, says_enforced).await;
        operator.idle(place.cluster).await;
        let moments = recorder.moments().await;
        always(&moments);
        removed_first(&moments);
        assert_eq!(changes(&moments), 1, "{guarded:?}");

        let recorder = Recorder::start(&place.objects, guarded).await;
        edit(&place, guarded, json!({"authzConfigRef": null, "shadowPoliciesRef": {"name": "rules"}})).await;
        let is_tried = |it: &Value| is_ready(it) && it["status"]["authzConfigHash"].is_null();
        until(&place, guarded, "the policies to be tried again", |_| true, is_tried).await;
        rolled_back(&place, operator, recorder, guarded).await;
    }
}
