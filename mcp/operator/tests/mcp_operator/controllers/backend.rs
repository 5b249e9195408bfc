//! The MCP server behind a proxy: nothing is ready that it does not run behind.

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use mcp_api::v1beta1::MCPServer;
use portcullis_testing::wait_until;
use serde_json::{Value, json};

use super::{
    Place,
    support::{DEADLINE, minimal, ready_pods, writes},
};

/// Plays the node: the status of the server's first pod becomes this.
async fn server_is(place: &Place, status: Value) {
    let pods: Api<Pod> = place.objects.api();
    let patch = Patch::Merge(json!({"status": status}));
    pods.patch_status("web-0", &PatchParams::default(), &patch).await.unwrap();
}

/// The status of a pod whose container has these members in its own.
fn container(members: Value) -> Value {
    let mut all = json!({"name": "mcp", "ready": false, "restartCount": 0, "image": "web:1", "imageID": ""});
    all.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    json!({"phase": "Running", "conditions": [], "containerStatuses": [all]})
}

fn runs() -> Value {
    container(json!({"ready": true, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}))
}

fn waits(reason: &str) -> Value {
    container(json!({"state": {"waiting": {"reason": reason}}}))
}

/// Reason and message of a condition with this status.
fn says<'a>(server: &'a MCPServer, type_: &str, status: &str) -> Option<(&'a str, &'a str)> {
    let mut conditions = server.status.as_ref()?.conditions.iter().flatten();
    let found = conditions.find(|it| it.type_ == type_ && it.status == status)?;
    Some((&found.reason, &found.message))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_server_is_ready_whose_pod_does_not_run_and_each_is_again_when_it_does() {
    let place = Place::new("backend").await;
    let _operator = place.operator();
    let objects = &place.objects;
    objects.create(minimal("web")).await;
    ready_pods(objects, "web").await;
    objects.phase("web", "Ready").await;
    let killed = json!({"exitCode": 137, "reason": "OOMKilled", "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:01Z"});
    let killed = json!({"restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": killed}});
    let unscheduled =
        json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": null}]);
    for (status, reason) in [
        (waits("ImagePullBackOff"), "ErrImagePull"),
        (waits("CrashLoopBackOff"), "CrashLoopBackOff"),
        (waits("CreateContainerConfigError"), "CreateContainerConfigError"),
        (container(killed), "OOMKilled"),
        (json!({"phase": "Pending", "conditions": unscheduled, "containerStatuses": []}), "Unschedulable"),
    ] {
        server_is(&place, status).await;
        let server = objects.phase("web", "Failed").await;
        let (told, message) = says(&server, "BackendReady", "False").unwrap();
        assert_eq!(told, reason, "{message}");
        let next = format!("-n {} web-0", place.namespace());
        assert!(message.contains("pod web-0") && message.contains(&next), "{message}");
        assert_eq!(says(&server, "Ready", "False"), Some(("NotReady", message)));
        assert_eq!(server.status.as_ref().unwrap().message.as_deref(), Some(message));
        let told = format!("Warning {reason}");
        wait_until(&told, DEADLINE, || async {
            let events = objects.events("MCPServer", "web").await;
            (events.iter().filter(|event| **event == told).count() == 1).then_some(())
        })
        .await;
        server_is(&place, runs()).await;
        let server = objects.phase("web", "Ready").await;
        assert_eq!(says(&server, "BackendReady", "True").map(|(reason, _)| reason), Some("PodsRun"));
    }
}

/// A kubelet starts such a container seventeen times in an hour.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_loop_of_an_hour_costs_two_writes_of_the_status() {
    let place = Place::new("crash-loop").await;
    let operator = place.operator();
    let objects = &place.objects;
    objects.create(minimal("web")).await;
    ready_pods(objects, "web").await;
    objects.phase("web", "Ready").await;
    let since = operator.idle(place.cluster).await;
    let end = json!({"terminated": {
        "exitCode": 1, "reason": "Error", "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:30Z",
    }});
    for restarts in 2..19 {
        let now = jiff::Timestamp::now().to_string();
        for state in [
            json!({"restartCount": restarts, "state": end}),
            json!({"restartCount": restarts, "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": end}),
            json!({"restartCount": restarts + 1, "ready": true, "state": {"running": {"startedAt": now}}, "lastState": end}),
        ] {
            server_is(&place, container(state)).await;
            operator.idle(place.cluster).await;
        }
    }
    let written = writes(place.cluster, &place.user, since).await;
    assert!(written.len() <= 2, "a status and an event, not {}:\n{}", written.len(), written.join("\n"));
    let server = objects.phase("web", "Failed").await;
    assert_eq!(says(&server, "BackendReady", "False").map(|(reason, _)| reason), Some("CrashLoopBackOff"));
}

/// A StatefulSet waits until a pod is ready before it replaces it by one of its new template.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_cannot_run_does_not_keep_the_mended_one_away() {
    let place = Place::new("mended").await;
    let _operator = place.operator();
    let objects = &place.objects;
    objects.create(minimal("web")).await;
    ready_pods(objects, "web").await;
    objects.phase("web", "Ready").await;
    server_is(&place, waits("ImagePullBackOff")).await;
    objects.phase("web", "Failed").await;
    objects.edit("web", json!({"image": "localhost/everything:2"})).await;
    let pods: Api<Pod> = objects.api();
    wait_until("a pod with the other image", DEADLINE, || async {
        let spec = pods.get_opt("web-0").await.unwrap()?.spec?;
        (spec.containers[0].image.as_deref() == Some("localhost/everything:2")).then_some(())
    })
    .await;
    server_is(&place, runs()).await;
    objects.phase("web", "Ready").await;
    wait_until("an event that tells of it", DEADLINE, || async {
        objects.events("MCPServer", "web").await.contains(&"Normal PodReplaced".to_owned()).then_some(())
    })
    .await;
}
