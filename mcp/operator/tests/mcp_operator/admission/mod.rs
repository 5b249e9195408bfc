//! Our webhooks in the API server's way: what is refused at `kubectl apply`, what is warned of, what passes.
//!
//! A webhook configuration is cluster-scoped. Each test has one of its own, by a release of its own, which is asked about
//! the test's namespace alone.

mod answers;
mod authorization;
mod authors;
mod certificates;
mod deletion;
mod examples;
mod external_auth_config;
mod oidc_config;
mod remote_proxy;
mod session_storage;
mod telemetry_config;
mod tool_config;
mod virtual_mcp_server;

use portcullis_testing::{ControlPlane, User, wait_until};
use serde_json::{Value, json};

use crate::support::{self, DEADLINE, Objects, Operator, SoleOwnership, cluster, generated, webhook_config};

/// A namespace of its own, and an operator's home, after which its release is named.
struct Gate {
    cluster: &'static ControlPlane,
    user: User,
    home: String,
    objects: Objects,
    _ownership: SoleOwnership,
}

impl Gate {
    async fn new(prefix: &str) -> Self {
        let cluster = cluster().await;
        let ownership = SoleOwnership::of(cluster);
        let home = cluster.namespace(&format!("{prefix}-home")).await;
        let namespace = cluster.namespace(prefix).await;
        Self::of(cluster, ownership, home, &namespace).await
    }

    /// With the operator's home as the one namespace.
    async fn at_home(prefix: &str) -> Self {
        let cluster = cluster().await;
        let ownership = SoleOwnership::of(cluster);
        let home = cluster.namespace(prefix).await;
        Self::of(cluster, ownership, home.clone(), &home).await
    }

    async fn of(cluster: &'static ControlPlane, ownership: SoleOwnership, home: String, namespace: &str) -> Self {
        let user =
            cluster.user_from_manifests(&generated("rbac", &["--namespace", &home, "--release", &home]).await).await;
        let objects = Objects::new(cluster.admin(), namespace);
        Self { cluster, user, home, objects, _ownership: ownership }
    }

    /// Whether a webhook has a say in what is created. With a code of 500, the API server still calls one that has ended.
    async fn judged(&self) -> bool {
        let probe = webhook_config("probe", json!({"url": "ftp://nowhere"}));
        let answer = self.objects.post(probe, true).await;
        answer.code != 500 && (answer.code != 201 || !answer.warnings.is_empty())
    }

    /// Starts an operator with these flags. Nothing calls it yet.
    fn start(&self, flags: &[&str]) -> Operator {
        let watched = &self.objects.namespace;
        let mut all = vec!["--watch-namespace", watched, "--release", &self.home, "--bind", "127.0.0.1:0"];
        all.extend(flags);
        Operator::start_with(&self.user, &self.home, &all)
    }

    /// Puts the operator's webhooks in the API server's way, as generated but for the namespace that they are asked about,
    /// and waits until they are called.
    async fn install(&self, operator: &Operator) {
        let port = operator.webhook_address().await.port();
        let mut manifests = generated("webhooks", &["--namespace", &self.home, "--release", &self.home]).await;
        for webhook in manifests.iter_mut().flat_map(|manifest| manifest["webhooks"].as_array_mut().unwrap()) {
            let name = json!({"kubernetes.io/metadata.name": self.objects.namespace});
            webhook["namespaceSelector"]["matchLabels"] = name;
        }
        self.cluster.install_webhooks(&manifests, port).await;
        operator.ready().await;
        // It need not lead to be called.
        operator.logged("the caches hold every watched kind").await;
        wait_until("the webhooks to be called", DEADLINE, || async { self.judged().await.then_some(()) }).await;
    }

    /// An operator with these flags, in the API server's way.
    async fn serving(&self, flags: &[&str]) -> Operator {
        let operator = self.start(flags);
        self.install(&operator).await;
        operator
    }
}

/// Fields of the causes in an answer.
fn fields(answer: &Value) -> Vec<&str> {
    let causes = answer["details"]["causes"].as_array().map(Vec::as_slice).unwrap_or_default();
    causes.iter().filter_map(|cause| cause["field"].as_str()).collect()
}
