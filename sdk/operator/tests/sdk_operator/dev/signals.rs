//! Signals to a session: the first ends it in order, a second one at once.

use std::time::Duration;

use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use portcullis_testing::{Grant, Stopwatch, wait_until};

use super::failures::on_configurations;
use super::fixture::{cluster, configurations, entities, entity, judged, start};
use super::process::{Dev, ENTITIES, PATIENCE};

/// Longer than it takes to end at once, and shorter than anything that is waited for.
const AT_ONCE: Duration = Duration::from_secs(5);

#[tokio::test]
async fn a_second_signal_ends_a_session_at_once_after_clean_up() {
    let cluster = cluster().await;
    let team = cluster.namespace("team").await;
    let mut dev = start(cluster, ENTITIES, "hasty", &["--only-namespace", &team, "--think", "60000"]);
    dev.open().await;
    // A call without an answer in time: the session waits for it.
    let entities = entities(cluster, &team);
    let call = tokio::spawn(async move {
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        loop {
            let _ = entities.create(&dry, &entity("slow")).await;
        }
    });
    dev.says("thinking").await;
    dev.signal("-INT").await;
    dev.says("removed ValidatingWebhookConfiguration").await;
    let asked = Stopwatch::start();
    dev.insist("-INT").await;
    let error = dev.fails().await;
    call.abort();
    assert_eq!(error, "error: SIGINT once more: ended at once; all is removed");
    assert!(asked.elapsed() < AT_ONCE, "{:?}", asked.elapsed());
    assert_eq!(configurations(cluster, "hasty").await, [""; 0]);
}

// As `timeout` ends what it started, and a terminal whose foreground process passes its signal on.
#[tokio::test]
async fn two_signals_at_once_are_one() {
    let cluster = cluster().await;
    for signals in [["-TERM", "-INT"], ["-HUP", "-TERM"]] {
        let mut dev = start(cluster, ENTITIES, "echo", &["--only-namespace", "nobody-s"]);
        dev.open().await;
        dev.signal_at_once(signals).await;
        assert_eq!(dev.ended().await.code(), Some(0), "{}", dev.said());
        assert_eq!(configurations(cluster, "echo").await, [""; 0]);
    }
}

#[tokio::test]
async fn a_second_signal_names_the_leftovers_and_their_removal() {
    let cluster = cluster().await;
    let rules = [on_configurations(&["list", "get", "create", "delete"])];
    let user = cluster.user_with("ann", &[Grant::ClusterRules(&rules)]).await;
    let team = cluster.namespace("team").await;
    let mut dev = Dev::start(ENTITIES, &user.kubeconfig, "stuck", &["--only-namespace", &team]);
    dev.open().await;
    judged(&entities(cluster, &team), true).await;
    let bindings: Api<ClusterRoleBinding> = Api::all(cluster.admin());
    bindings.delete(&format!("{}-0", user.name), &DeleteParams::default()).await.unwrap();
    let mine: Api<k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration> =
        Api::all(user.client.clone());
    wait_until("the rights to be gone", PATIENCE, || async {
        mine.list(&kube::api::ListParams::default()).await.is_err().then_some(())
    })
    .await;
    dev.signal("-TERM").await;
    dev.says("not removed yet, trying again").await;
    let asked = Stopwatch::start();
    dev.insist("-TERM").await;
    let error = dev.fails().await;
    let left = "what was put into the cluster may still be there; remove it with: dev --sweep";
    assert_eq!(error, format!("error: SIGTERM once more: ended at once; {left}"));
    assert!(asked.elapsed() < AT_ONCE, "{:?}", asked.elapsed());
    assert_eq!(configurations(cluster, "stuck").await.len(), 2);

    let mut sweep = start(cluster, ENTITIES, "stuck", &["--sweep"]);
    assert_eq!(sweep.ended().await.code(), Some(0), "{}", sweep.said());
    assert_eq!(configurations(cluster, "stuck").await, [""; 0]);
}
