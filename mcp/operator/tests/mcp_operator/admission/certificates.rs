//! D3: certificates outlive restarts, and operators that start together agree.

use k8s_openapi::api::{admissionregistration::v1::ValidatingWebhookConfiguration, core::v1::Secret};
use kube::Api;
use portcullis_testing::wait_until;
use serde_json::json;

use super::{
    Gate,
    support::{DEADLINE, webhook_config},
};

const SECRETS: [&str; 2] = ["webhook-tls", "webhook-tls-ca"];

async fn secrets(gate: &Gate) -> Vec<Secret> {
    let api: Api<Secret> = Api::namespaced(gate.cluster.admin(), &gate.home);
    let mut found = Vec::new();
    for name in SECRETS {
        found.extend(api.get_opt(&format!("{}-{name}", gate.home)).await.unwrap());
    }
    found
}

async fn bundles(gate: &Gate) -> Vec<Vec<u8>> {
    let api: Api<ValidatingWebhookConfiguration> = Api::all(gate.cluster.admin());
    let configuration = api.get(&format!("{}-validating", gate.home)).await.unwrap();
    let webhooks = configuration.webhooks.unwrap_or_default();
    webhooks.into_iter().map(|webhook| webhook.client_config.ca_bundle.unwrap_or_default().0).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_reused_by_the_next_start() {
    let gate = Gate::new("reuse").await;
    let first = gate.serving(&[]).await;
    let (before, published) = (secrets(&gate).await, bundles(&gate).await);
    assert_eq!(before.len(), 2);
    first.kill().await;
    let _second = gate.serving(&[]).await;
    assert_eq!(secrets(&gate).await, before);
    assert_eq!(bundles(&gate).await, published);
}

/// Killed between and after the writes of the certificates' Secrets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_while_certificates_are_made_the_next_start_finishes_them() {
    for writes in 0..3 {
        let gate = Gate::new("cert-kill").await;
        let since = gate.cluster.audit().mark();
        let first = gate.start(&[]);
        wait_until("the n-th write", DEADLINE, || async {
            (gate.cluster.audit().writes_by(&gate.user.name, since).await.len() >= writes).then_some(())
        })
        .await;
        first.kill().await;
        let _second = gate.serving(&[]).await;
        assert_eq!(secrets(&gate).await.len(), 2);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_starts_at_once_agree_on_one_authority() {
    let gate = Gate::new("together").await;
    let operators = [gate.start(&[]), gate.start(&[])];
    // Each in turn is in the API server's way, under whatever bundle is published.
    for operator in &operators {
        gate.install(operator).await;
        let answer = gate.objects.post(webhook_config("bad", json!({"url": "ftp://nowhere"})), true).await;
        assert_eq!(answer.code, 422, "{}", answer.body);
    }
    let tls = secrets(&gate).await.into_iter().next().unwrap().data.unwrap();
    for bundle in bundles(&gate).await {
        assert_eq!(bundle, tls["ca.crt"].0, "one authority, published everywhere");
    }
}
