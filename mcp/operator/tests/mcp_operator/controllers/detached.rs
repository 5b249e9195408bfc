//! stdio servers: one proxy at a time, and what becomes of a server that can never be spoken to again.

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use mcp_plan::workload::ChildKind;
use portcullis_testing::wait_until;
use serde_json::{Value, json};

use super::{
    Place,
    support::{DEADLINE, children_of, minimal},
};

/// Plays the node: the pod's only container is in these states.
async fn is(pods: &Api<Pod>, pod: &str, container: &str, state: Value, last_state: Value) {
    let status = json!({"status": {"phase": "Running", "containerStatuses": [{
        "name": container, "ready": true, "restartCount": 1, "image": "i", "imageID": "i", "started": true,
        "state": state, "lastState": last_state,
    }]}});
    pods.patch_status(pod, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
}

async fn uid(pods: &Api<Pod>, pod: &str) -> Option<String> {
    pods.get_opt(pod).await.unwrap().and_then(|pod| pod.metadata.uid)
}

/// Its proxy tells by its exit status that the server goes on although its input has ended. The one that takes its
/// place has started after that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_can_never_be_spoken_to_again_is_replaced_and_its_successor_is_left_alone() {
    let place = Place::new("deaf").await;
    let _operator = place.operator();
    let mut server = minimal("fetch");
    server["spec"]["transport"] = json!("stdio");
    place.objects.create(server).await;
    let pods: Api<Pod> = place.objects.api();
    let proxy = wait_until("the proxy's pod", DEADLINE, || async {
        let found = pods.list(&ListParams::default().labels("app=mcpserver,toolhive-name=fetch")).await.unwrap();
        found.items.into_iter().next().and_then(|pod| pod.metadata.name)
    })
    .await;
    let first = wait_until("the server's pod", DEADLINE, || uid(&pods, "fetch-0")).await;
    is(&pods, "fetch-0", "mcp", json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}}), json!({})).await;

    let ended = |exit: u8, at: &str| json!({"terminated": {"exitCode": exit, "startedAt": at, "finishedAt": at}});
    let runs = json!({"running": {"startedAt": "2026-01-01T00:05:00Z"}});
    is(&pods, &proxy, "toolhive", runs.clone(), ended(1, "2026-01-01T00:04:00Z")).await;
    is(&pods, &proxy, "toolhive", runs.clone(), ended(76, "2026-01-01T00:04:00Z")).await;
    let second =
        wait_until("another pod", DEADLINE, || async { uid(&pods, "fetch-0").await.filter(|uid| *uid != first) });
    let second = second.await;
    let events = place.objects.events("MCPServer", "fetch").await;
    assert!(events.contains(&"Warning ServerReplaced".to_owned()), "{events:?}");

    // Its exit status is still there.
    is(&pods, "fetch-0", "mcp", json!({"running": {"startedAt": "2026-01-01T00:06:00Z"}}), json!({})).await;
    place
        .objects
        .merge("toolhive.stacklok.dev/v1beta1", "MCPServer", "fetch", json!({"spec": {"proxyPort": 8099}}))
        .await;
    place
        .objects
        .child(ChildKind::Service, "mcp-fetch-proxy", "the other port", |it| it["spec"]["ports"][0]["port"] == 8099)
        .await;
    assert_eq!(uid(&pods, "fetch-0").await, Some(second));
}

/// The fields that the API server fills in for a Deployment that rolls must not stand in the way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_changes_to_stdio_gets_a_proxy_that_never_runs_beside_another() {
    let place = Place::new("to-stdio").await;
    let _operator = place.operator();
    place.objects.create(minimal("web")).await;
    place.objects.has_children("web", &children_of("web")).await;
    let stdio = json!({"spec": {"transport": "stdio"}});
    place.objects.merge("toolhive.stacklok.dev/v1beta1", "MCPServer", "web", stdio).await;
    let recreated = |it: &Value| it["spec"]["strategy"]["type"] == "Recreate";
    place.objects.child(ChildKind::Deployment, "web", "one pod at a time", recreated).await;
    place
        .objects
        .child(ChildKind::StatefulSet, "web", "an input that ends", |it| {
            it["spec"]["template"]["spec"]["containers"][0]["stdinOnce"] == true
        })
        .await;
    let back = json!({"spec": {"transport": "streamable-http"}});
    place.objects.merge("toolhive.stacklok.dev/v1beta1", "MCPServer", "web", back).await;
    place
        .objects
        .child(ChildKind::Deployment, "web", "to roll", |it| it["spec"]["strategy"]["type"] == "RollingUpdate")
        .await;
}
