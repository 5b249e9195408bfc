//! Rolling updates of a proxy under a client at fifty calls a second.

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Patch, PatchParams};
use portcullis_node::{Node, Outcome, greeter, install_operator};
use serde_json::json;

/// Restarts the proxy's Deployment under load, as `kubectl rollout restart` does, and returns what the calls came to from the first
/// answer on.
async fn restart_under_load(era: &str) -> Vec<Outcome> {
    let node = Node::running().await;
    install_operator().await;
    let namespace = node.namespace("rollout").await;
    let url = greeter::start(&namespace, json!({})).await;
    let caller = namespace.caller(era, 50, &url, "Ada").await;
    caller.next("an answer", |outcome| outcome.answers("Hi Ada")).await;
    let begun = caller.outcomes().len();
    let deployments = namespace.api::<Deployment>();
    for restart in ["first", "second"] {
        let annotations = json!({ "kubectl.kubernetes.io/restartedAt": restart });
        let template = json!({ "spec": { "template": { "metadata": { "annotations": annotations } } } });
        let before = namespace.pods(greeter::NAME).await;
        deployments.patch(greeter::NAME, &PatchParams::default(), &Patch::Strategic(template)).await.unwrap();
        namespace.replaced(greeter::NAME, &before).await;
    }
    caller.next("an answer after the rollouts", |outcome| outcome.answers("Hi Ada")).await;
    let outcomes = caller.finish().await;
    outcomes[begun..].to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_of_the_proxy_loses_no_call_of_the_stateless_era() {
    let outcomes = restart_under_load("stateless").await;
    let failed: Vec<_> = outcomes.iter().filter(|outcome| !outcome.answers("Hi Ada")).collect();
    assert!(failed.is_empty(), "{} of {} calls failed: {failed:?}", failed.len(), outcomes.len());
}
