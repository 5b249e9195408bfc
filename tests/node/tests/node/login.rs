//! Tokens of the cluster's own ServiceAccounts.

use portcullis_node::{Node, Outcome, greeter, install_operator};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_calls_only_with_its_service_account_token() {
    let node = Node::running().await;
    install_operator().await;
    let namespace = node.namespace("login").await;
    namespace
        .apply([json!({
            "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPOIDCConfig", "metadata": { "name": "cluster" },
            "spec": {
                "type": "kubernetesServiceAccount",
                "kubernetesServiceAccount": { "issuer": "https://kubernetes.default.svc.cluster.local" },
            },
        })])
        .await;
    let url =
        greeter::start(&namespace, json!({ "oidcConfigRef": { "name": "cluster", "audience": "greeter" } })).await;

    let right = namespace.caller_as("stateless", 2, &url, "Ada", Some("greeter")).await;
    right.next("an answer", |outcome| outcome.answers("Hi Ada")).await;
    for audience in [None, Some("another")] {
        let wrong = namespace.caller_as("stateless", 2, &url, "Ada", audience).await;
        let unauthorized =
            |outcome: &Outcome| matches!(outcome, Outcome::Lost { text } if text.contains("Unauthorized"));
        wrong.next("HTTP 401", unauthorized).await;
        let outcomes = wrong.finish().await;
        assert!(!outcomes.iter().any(|outcome| outcome.answers("Hi Ada")), "{outcomes:?}");
    }
    right.finish().await;
}
