//! Our webhooks in the API server's way: what is refused at `kubectl apply`, what is warned of, what passes.
//!
//! The webhook configuration is one per cluster, so these tests take turns.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "in a test this is the failure")]

#[path = "../support/mod.rs"]
mod support;

mod answers;
mod certificates;
mod deletion;
mod oidc_config;
mod remote_proxy;
mod tool_config;
mod virtual_mcp_server;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::api::{Api, DeleteParams, ListParams};
use portcullis_testing::{ControlPlane, User, wait_until};
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

use support::{DEADLINE, Objects, Operator, SoleOwnership, generated, shipped_user, webhook_config};

/// A namespace of its own, an operator's home, and this test's turn.
struct Gate {
    cluster: &'static ControlPlane,
    user: User,
    home: String,
    objects: Objects,
    _ownership: SoleOwnership,
    _turn: MutexGuard<'static, ()>,
}

impl Gate {
    async fn new(prefix: &str) -> Self {
        static TURN: Mutex<()> = Mutex::const_new(());
        static INSTALLED: OnceCell<()> = OnceCell::const_new();
        let turn = TURN.lock().await;
        let cluster = ControlPlane::shared().await;
        let ownership = SoleOwnership::of(cluster);
        INSTALLED.get_or_init(|| async { cluster.install_crds(&mcp_api::crds()).await }).await;
        let home = cluster.namespace(&format!("{prefix}-home")).await;
        let namespace = cluster.namespace(prefix).await;
        let user = shipped_user(cluster, &home).await;
        let objects = Objects::new(cluster.admin(), &namespace);
        let gate = Self { cluster, user, home, objects, _ownership: ownership, _turn: turn };
        gate.open().await;
        gate
    }

    /// Takes out of the API server's way what an earlier turn left there: its operator answers no more.
    async fn open(&self) {
        let installed: Api<ValidatingWebhookConfiguration> = Api::all(self.cluster.admin());
        installed.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
        wait_until("no webhook to be called", DEADLINE, || async { (!self.judged().await).then_some(()) }).await;
    }

    /// Whether a webhook, or its absence, has a say in what is created.
    async fn judged(&self) -> bool {
        let probe = webhook_config("probe", json!({"url": "ftp://nowhere"}));
        let answer = self.objects.post(probe, true).await;
        answer.code != 201 || !answer.warnings.is_empty()
    }

    /// Starts an operator with these flags. Nothing calls it yet.
    fn start(&self, flags: &[&str]) -> Operator {
        let mut all = vec!["--watch-namespace", &self.objects.namespace, "--bind", "127.0.0.1:0"];
        all.extend(flags);
        Operator::start_with(&self.user, &self.home, &all)
    }

    /// Puts the operator's webhooks in the API server's way, as generated, and waits until they are called.
    async fn install(&self, operator: &Operator) {
        let port = operator.webhook_address().await.port();
        self.cluster.install_webhooks(&generated("webhooks", &self.home).await, port).await;
        operator.ready().await;
        // It need not lead to be called.
        operator.logged("the stores are filled").await;
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
