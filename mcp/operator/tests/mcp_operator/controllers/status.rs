//! What a user sees: phase, URL, conditions, events.

use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::{
    Place,
    oidc_config::condition,
    support::{children_of, labelled, minimal, ready_pods, requests, webhook_config, writes},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_goes_from_pending_to_ready_to_stopped_and_tells_each_step_once() {
    let place = Place::new("phases").await;
    let operator = place.operator();
    let objects = &place.objects;
    objects.create(minimal("web")).await;
    let server = objects.phase("web", "Pending").await;
    let url = format!("http://mcp-web-proxy.{}.svc.cluster.local:8080/mcp", place.namespace());
    assert_eq!(server.status.unwrap().url, Some(url.clone()));
    ready_pods(objects, "web").await;
    let server = objects.phase("web", "Ready").await;
    assert_eq!(server.status.as_ref().unwrap().ready_replicas, Some(1));
    // A port of its own: the URL follows, at once.
    objects.edit("web", json!({"proxyPort": 9000, "replicas": 0})).await;
    let server = objects.phase("web", "Stopped").await;
    assert_eq!(server.status.unwrap().url, Some(url.replace("8080", "9000")));
    operator.idle(place.cluster).await;
    let events = objects.events("MCPServer", "web").await;
    for event in ["Normal Pending", "Normal Ready", "Normal Stopped"] {
        assert_eq!(events.iter().filter(|it| *it == event).count(), 1, "{event} in {events:?}");
    }
}

/// O3: its children are the operator's own writes, which wake nobody, and no pod follows them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_server_says_all_that_it_has_to_say_in_one_status() {
    let place = Place::new("stopped").await;
    let operator = place.operator();
    operator.reconciles().await;
    let (objects, since) = (&place.objects, place.cluster.audit().mark());
    objects.create(labelled("web", json!({"replicas": 0, "backendReplicas": 0}))).await;
    objects.has_children("web", &children_of("web")).await;
    objects.phase("web", "Stopped").await;
    operator.idle(place.cluster).await;
    let server = objects.phase("web", "Stopped").await;
    assert!(condition(&server, "BackendReady").is_some(), "{:?}", server.status);
    let mut written = requests(place.cluster, &place.user, since).await;
    written.retain(|write| (&*write.resource, &*write.subresource) == ("mcpservers", "status"));
    assert_eq!(written.len(), 1, "{written:?}");
}

/// O3: a foreign write to the status is repaired; a foreign condition is not ours to remove.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_belongs_field_by_field_to_who_wrote_it() {
    let place = Place::new("status-owner").await;
    let operator = place.operator();
    let objects = &place.objects;
    objects.create(minimal("web")).await;
    objects.has_children("web", &children_of("web")).await;
    objects.phase("web", "Pending").await;
    operator.idle(place.cluster).await;
    let since = place.cluster.audit().mark();
    let foreign = json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPServer",
        "status": {"toolConfigHash": "theirs", "phase": "Terminating", "conditions": [{
            "type": "Theirs", "status": "True", "reason": "Because", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]},
    });
    let params = PatchParams::apply("somebody-else").force();
    objects.servers().patch_status("web", &params, &Patch::Apply(&foreign)).await.unwrap();
    let server = objects.phase("web", "Pending").await;
    operator.idle(place.cluster).await;
    let status = server.status.unwrap();
    assert_eq!(status.tool_config_hash.as_deref(), Some("theirs"));
    assert!(status.conditions.unwrap().iter().any(|condition| condition.type_ == "Theirs"));
    let written = writes(place.cluster, &place.user, since).await;
    assert_eq!(written.len(), 1, "{}", written.join("\n"));
}

/// M2, O1: hash, validity and references of a configuration; the workload's reconcile leaves the configuration alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_config_has_a_hash_that_the_server_repeats_and_a_verdict_on_its_spec() {
    let place = Place::new("config-status").await;
    let operator = place.operator();
    let objects = &place.objects;
    objects.create(webhook_config("gate", json!({}))).await;
    objects.create(webhook_config("bad", json!({"timeout": "31s"}))).await;
    let mut server = minimal("web");
    server["spec"]["webhookConfigRef"] = json!({"name": "gate"});
    objects.create(server).await;
    let server = objects
        .server("web", "webhookConfigHash", |server| {
            server.status.as_ref().is_some_and(|status| status.webhook_config_hash.is_some())
        })
        .await;
    operator.idle(place.cluster).await;
    let config = objects.configs().get("gate").await.unwrap();
    let status = config.status.clone().unwrap();
    assert_eq!(status.config_hash, server.status.unwrap().webhook_config_hash);
    assert_eq!(status.referencing_servers, Some(vec!["web".to_owned()]));
    let bad = objects.configs().get("bad").await.unwrap().status.unwrap();
    let valid = |conditions: &Option<Vec<k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition>>| {
        let valid = conditions.iter().flatten().find(|it| it.type_ == "Valid").unwrap();
        (valid.status.clone(), valid.reason.clone())
    };
    assert_eq!(valid(&status.conditions), ("True".to_owned(), "ValidationSucceeded".to_owned()));
    assert_eq!(valid(&bad.conditions), ("False".to_owned(), "ValidationFailed".to_owned()));
    assert_eq!(bad.config_hash, None);

    // O2: a reconcile of the workload that writes leaves the configuration's version as it was.
    objects.edit("web", json!({"args": ["--other"]})).await;
    objects.phase("web", "Pending").await;
    operator.idle(place.cluster).await;
    let after = objects.configs().get("gate").await.unwrap();
    assert_eq!(after.metadata.resource_version, config.metadata.resource_version);
}
