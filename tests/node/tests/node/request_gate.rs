//! The request gate in pods: operator, webhook, MCP server, proxy and client each in their own.

use mcp_api::v1alpha1::MCPWebhookConfig;
use portcullis_node::{DEADLINE, Namespace, Node, Outcome, POD_IMAGE, greeter, install_operator};
use portcullis_testing::wait_for_object;
use serde_json::{Value, json};

/// JSON-RPC code of what a webhook denies.
const DENIED: i64 = 403;

fn webhook_config(namespace: &Namespace, path: &str, failure_policy: &str) -> Value {
    json!({
        "apiVersion": "toolhive.stacklok.dev/v1alpha1", "kind": "MCPWebhookConfig", "metadata": { "name": "policy" },
        "spec": { "mutating": [{
            "name": "echo", "url": format!("https://echo.{}.svc.cluster.local:8443{path}", namespace.name),
            "failurePolicy": failure_policy, "tlsConfig": { "insecureSkipVerify": true },
        }] },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_without_a_verdict_refuses_each_call_until_edited() {
    let node = Node::running().await;
    install_operator().await;
    let namespace = node.namespace("plan").await;
    let healthy = json!({ "httpGet": { "path": "/healthz", "port": 8443, "scheme": "HTTPS" } });
    namespace.serve("echo", POD_IMAGE, &["webhook", "-listen", ":8443"], 8443, healthy).await;
    namespace.apply([webhook_config(&namespace, "/echo", "fail")]).await;
    let url = greeter::start(&namespace, json!({ "webhookConfigRef": { "name": "policy" } })).await;
    let configs = namespace.api::<MCPWebhookConfig>();
    wait_for_object(&configs, "policy", "the operator to set configHash", DEADLINE, |config| {
        config.status.as_ref().is_some_and(|status| status.config_hash.is_some())
    })
    .await;
    let first = namespace.pods(greeter::NAME).await;

    let caller = namespace.caller("stateless", 10, &url, "bob").await;
    let refusal = caller.next("a refusal", |outcome| matches!(outcome, Outcome::Refused { .. })).await;
    let until_then = caller.outcomes().len();
    assert!(matches!(&refusal, Outcome::Refused { code: DENIED, .. }), "{refusal:?}");
    let log = namespace.log(&first[0]).await;
    assert!(log.contains("webhook answered without `allowed: true`"), "the pod's log does not say why:\n{log}");

    namespace.apply([webhook_config(&namespace, "/echo", "ignore")]).await;
    let second = namespace.replaced(greeter::NAME, &first).await;
    namespace.apply([webhook_config(&namespace, "/slow", "ignore")]).await;
    let third = namespace.replaced(greeter::NAME, &second).await;
    caller.next("an answer that took the webhook three seconds", |outcome| outcome.answers("Hi bob")).await;
    // Some thirty calls are on their way at any time now.
    namespace.apply([webhook_config(&namespace, "/mutate", "ignore")]).await;
    namespace.replaced(greeter::NAME, &third).await;
    caller.next("an answer to the name that the webhook put in", |outcome| outcome.answers("Hi Robert")).await;

    let outcomes = caller.finish().await;
    let lost: Vec<_> =
        outcomes[until_then..].iter().filter(|outcome| matches!(outcome, Outcome::Lost { .. })).collect();
    assert!(lost.is_empty(), "{} of {} calls were lost: {lost:?}", lost.len(), outcomes.len() - until_then);
}
