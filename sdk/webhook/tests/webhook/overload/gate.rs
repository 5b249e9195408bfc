//! Namespaces of a real API server whose ConfigMaps go through a webhook.

use std::time::{Duration, Instant};

use base64::Engine as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use portcullis_testing::{ControlPlane, wait_until};
use serde_json::json;

/// The Service's name, and what makes names of the server unique to one test.
pub(crate) const SERVICE: &str = "overloaded";

/// A namespace, and one webhook in front of its ConfigMaps.
pub(crate) struct Gate {
    maps: Api<ConfigMap>,
}

impl Gate {
    /// Registers the webhook at `path` of the server on `port`, and waits until it is in force: it refuses a ConfigMap
    /// with a password, or counts a call, whichever `in_force` looks for.
    pub(crate) async fn open(namespace: &str, service_namespace: &str, path: &str, ca_pem: &str, port: u16) -> Self {
        let cluster = ControlPlane::shared().await;
        let bundle = base64::engine::general_purpose::STANDARD.encode(ca_pem);
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": namespace},
            "webhooks": [{
                "name": "configmaps.overload.example", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "failurePolicy": "Fail", "timeoutSeconds": 10,
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}],
                "clientConfig": {
                    "caBundle": bundle,
                    "service": {"namespace": service_namespace, "name": SERVICE, "path": path, "port": 443},
                },
            }],
        });
        cluster.install_webhooks(&[configuration], port).await;
        Self { maps: Api::namespaced(cluster.admin(), namespace) }
    }

    /// Creates a ConfigMap, without storing it.
    pub(crate) async fn create(&self, data: serde_json::Value) -> kube::Result<ConfigMap> {
        let map = serde_json::from_value(json!({"metadata": {"name": "probe"}, "data": data})).unwrap();
        self.maps.create(&PostParams { dry_run: true, ..PostParams::default() }, &map).await
    }

    /// The time until the API server has a decision of the webhook: it refuses passwords.
    pub(crate) async fn decides(&self) -> Duration {
        let began = Instant::now();
        wait_until("a decision through the API server", Duration::from_secs(25), || async {
            let refused = self.create(json!({"password": "x"})).await.err()?;
            refused.to_string().contains("passwords belong in Secrets").then_some(())
        })
        .await;
        began.elapsed()
    }
}
