//! The chart in a cluster, with its Jobs' commands run in the order of the hooks.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use portcullis_testing::{ControlPlane, wait_until};
use serde_json::{Value, json};

use super::RELEASE;
use super::installed::{Process, Rendered, misjudged, run_hook};

/// Makes the namespace of the release.
pub(crate) async fn with_namespace(cluster: &ControlPlane) {
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": RELEASE[1] } });
    cluster.apply(&[namespace]).await;
}

/// Installs it for the first time: hooks make and publish certificates under which the operator is called, with no more
/// rights than they have.
async fn installed(cluster: &ControlPlane) -> Process {
    let rendered = Rendered::new(&json!({}));
    let said = run_hook(cluster, &rendered.before).await;
    assert!(said.contains("Secret platform-system/webhook-server-cert: a certificate for "), "{said}");

    rendered.install_kinds(cluster).await;
    let mut operator = Process::start(cluster, &rendered).await;
    rendered.install_webhooks(cluster, &operator).await;
    // As 'helm install --wait' does before it runs the other hook.
    operator.ready().await;

    let said = run_hook(cluster, &rendered.after).await;
    assert!(said.contains("published: ValidatingWebhookConfiguration platform-dynamo-operator-validating"), "{said}");
    cluster.webhooks_in_force().await;
    misjudged(cluster).await.unwrap();
    operator
}

/// Installs it in place of the one before: a new process serves before the old one goes.
async fn upgraded(cluster: &ControlPlane, values: &Value, before: Process) -> Process {
    let rendered = Rendered::new(values);
    let hooks = !rendered.before.is_empty();
    if hooks {
        run_hook(cluster, &rendered.before).await;
    }
    rendered.install_webhooks(cluster, &before).await;
    let mut after = Process::start(cluster, &rendered).await;
    after.ready().await;
    rendered.install_webhooks(cluster, &after).await;
    cluster.webhooks_in_force().await;
    before.stop().await;
    if hooks {
        run_hook(cluster, &rendered.after).await;
    }
    after
}

/// On a control plane of its own: another test installs the same release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_from_hooks_to_the_operators_own_rotation_and_back_loses_no_admission() {
    let cluster = &ControlPlane::start().await.unwrap();
    with_namespace(cluster).await;
    let mut operator = installed(cluster).await;
    let (hooks, own) = (json!({}), json!({ "webhook": { "rotation": "operator" } }));
    let judged = &AtomicUsize::new(0);
    let writer = async {
        loop {
            misjudged(cluster).await.unwrap();
            judged.fetch_add(1, Ordering::Relaxed);
        }
    };
    let upgrades = async move {
        for values in [&own, &hooks, &hooks] {
            let before = judged.load(Ordering::Relaxed);
            operator = upgraded(cluster, values, operator).await;
            let later = || async { (judged.load(Ordering::Relaxed) > before + 1).then_some(()) };
            wait_until("objects to be judged after the upgrade", Duration::from_mins(2), later).await;
        }
        operator
    };
    tokio::select! {
        _operator = upgrades => {}
        () = writer => {}
    }
}
