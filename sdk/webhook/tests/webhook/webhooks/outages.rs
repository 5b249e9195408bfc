//! Webhooks that do not decide, behind the API server, and the requests that it sends at all.

use std::sync::Arc;

use portcullis::webhooks::{Context, FailurePolicy, Validate, Verdict, Webhooks};
use serde_json::json;

use super::gate::Gate;
use crate::fixture::{Entity, webhooks};

/// Webhooks of the fixture under one failure policy, with only the one of this name called.
async fn only(name: &'static str, policy: FailurePolicy) -> Gate {
    let nobody = json!({"matchLabels": {"nobody": "has-this"}});
    let change = |webhook: &mut portcullis_manifest::Webhook| {
        webhook.failure_policy = policy;
        if !webhook.name.starts_with(name) {
            webhook.object_selector = Some(serde_json::from_value(nobody.clone()).unwrap());
        }
    };
    Gate::open(webhooks(), change, "forbidden").await
}

/// K8s answers a denial as a denial whatever the policy is; so a failure must not look like one unless that was chosen.
#[tokio::test]
async fn an_error_or_a_crash_follows_the_failure_policy() {
    let (fail, ignore) = (only("username", FailurePolicy::Fail).await, only("username", FailurePolicy::Ignore).await);
    let strict = only("strict", FailurePolicy::Ignore).await;
    for how in ["fail", "panic"] {
        let refused = fail.create(how, json!({"username": how})).await.unwrap_err();
        assert_eq!(refused["code"], 500);
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains("failed calling webhook") && message.contains("handler failed"), "{message}");
        assert!(!message.contains("nobody answers"), "{message}");
        ignore.create(how, json!({"username": how})).await.unwrap();

        let refused = strict.create(how, json!({"username": how})).await.unwrap_err();
        assert_eq!(refused["code"], 500);
        let message = refused["message"].as_str().unwrap();
        assert!(message.ends_with("denied the request: handler failed"), "{message}");
    }
}

/// The API server's own message would be "context deadline exceeded", after the whole timeout.
#[tokio::test]
async fn a_stuck_handler_is_named_before_the_api_server_gives_up() {
    let gate = only("username", FailurePolicy::Fail).await;
    let mut said = Vec::new();
    // A machine that stalls is later than the API server waits now and then, and not each time.
    for attempt in 0..5 {
        let refused = gate.create(&format!("a{attempt}"), json!({"username": "stuck"})).await.unwrap_err();
        let message = refused["message"].as_str().unwrap().to_owned();
        if message.contains("handler did not finish within 3600 ms") {
            return;
        }
        said.push(message);
    }
    panic!("{said:?}");
}

/// K4: what was registered is what the API server sends.
#[tokio::test]
async fn only_registered_operations_and_matching_requests_are_sent() {
    let updates = Validate::<Entity>::new("updates")
        .on_update(|_: Arc<Entity>, _: Arc<Entity>, _: Context| async { Verdict::deny("no updates") })
        .match_condition("not-exempt", "!has(object.metadata.labels) || !('exempt' in object.metadata.labels)");
    let probe = Validate::<Entity>::new("probe").path("/elsewhere/probe").on_create(
        |new: Arc<Entity>, _: Context| async move {
            match new.spec.username.as_str() {
                "probe" => Verdict::deny("in force"),
                _ => Verdict::allow(),
            }
        },
    );
    let gate = Gate::open(Webhooks::new().validate(updates).validate(probe), |_| {}, "probe").await;
    gate.create("a", json!({"username": "fine"})).await.unwrap();
    let refused = gate.change("a", json!({"spec": {"username": "other"}})).await.unwrap_err();
    assert!(refused["message"].as_str().unwrap().ends_with("denied the request: no updates"), "{refused}");
    gate.change("a", json!({"metadata": {"labels": {"exempt": "1"}}, "spec": {"username": "other"}})).await.unwrap();
    gate.delete("a", &kube::api::DeleteParams::default()).await.unwrap();
}
