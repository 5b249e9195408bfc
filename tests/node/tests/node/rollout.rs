//! Rolling updates and drains of a proxy under a client at fifty calls a second.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{EvictParams, Patch, PatchParams};
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

/// As `kubectl drain` does: the pods are evicted one after another, each when the one before is replaced.
#[tokio::test(flavor = "multi_thread")]
async fn a_drain_of_a_two_replica_proxy_loses_no_stateless_call() {
    let node = Node::running().await;
    install_operator().await;
    let namespace = node.namespace("drain").await;
    let url = greeter::start(&namespace, json!({ "replicas": 2 })).await;
    let caller = namespace.caller("stateless", 50, &url, "Ada").await;
    caller.next("an answer", |outcome| outcome.answers("Hi Ada")).await;
    let begun = caller.outcomes().len();
    for pod in namespace.pods(greeter::NAME).await {
        namespace.api::<Pod>().evict(&pod, &EvictParams::default()).await.unwrap();
        namespace.replaced(greeter::NAME, &[pod]).await;
    }
    caller.next("an answer after the drain", |outcome| outcome.answers("Hi Ada")).await;
    let outcomes = caller.finish().await;
    let failed: Vec<_> = outcomes[begun..].iter().filter(|outcome| !outcome.answers("Hi Ada")).collect();
    assert!(failed.is_empty(), "{} of {} calls failed: {failed:?}", failed.len(), outcomes.len() - begun);
}

/// A client of the legacy era has sessions, which end with the pod that they were opened on: each costs the client one answer 404, and the
/// client opens another, as MCP 2025-11-25 has it ("Session Management").
#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_costs_a_legacy_session_one_404_at_most() {
    let outcomes = restart_under_load("legacy").await;
    let failed: Vec<_> = outcomes.iter().filter(|outcome| !outcome.answers("Hi Ada")).collect();
    eprintln!("{} of {} calls of the legacy era failed: {failed:?}", failed.len(), outcomes.len());
    let without_session = |outcome: &Outcome| matches!(outcome, Outcome::Lost { text } if text.to_lowercase().contains("session not found"));
    assert!(failed.iter().all(|outcome| without_session(outcome)), "{failed:?}");
}
