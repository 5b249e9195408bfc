//! What stands in the way of a child: another's object, one that is about to go, a refusal.

use kube::api::{DeleteParams, Patch, PatchParams};
use mcp_plan::workload::ChildKind;
use portcullis_testing::wait_until;
use serde_json::{Value, json};

use super::{
    Place,
    support::{DEADLINE, children_of, labelled, minimal, ready_pods, webhook_config},
};

async fn message(place: &Place, server: &str, what: &str) -> String {
    let server = place
        .objects
        .server(server, what, |server| {
            let message = server.status.as_ref().and_then(|status| status.message.as_deref());
            message.is_some_and(|message| message.contains(what))
        })
        .await;
    server.status.and_then(|status| status.message).unwrap()
}

async fn published(place: &Place, server: &str, event: &str) {
    wait_until(&format!("event {event} about {server}"), DEADLINE, || async {
        let events = place.objects.events("MCPServer", server).await;
        events.iter().any(|found| found == event).then_some(())
    })
    .await;
}

/// Neither is it taken for a proxy that lacks the guard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_deployment_of_a_gated_servers_name_is_left_alone_and_named_in_the_status() {
    let place = Place::new("foreign-proxy").await;
    let _operator = place.operator();
    let objects = &place.objects;
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let own = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "labels": {"mine": "yes"}},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template},
    });
    objects.create(own).await;
    objects.create(webhook_config("gate", json!({}))).await;
    objects.create(labelled("web", json!({"webhookConfigRef": {"name": "gate"}}))).await;
    message(&place, "web", "Deployment web: an object of this name exists").await;
    published(&place, "web", "Warning NameTaken").await;
    assert!(!objects.events("MCPServer", "web").await.contains(&"Warning ProxyRemoved".to_owned()));
    objects.servers().delete("web", &DeleteParams::default()).await.unwrap();
    wait_until("the server to be gone", DEADLINE, || async {
        objects.servers().get_opt("web").await.unwrap().is_none().then_some(())
    })
    .await;
    assert_eq!(objects.get(ChildKind::Deployment, "web").await["metadata"]["labels"], json!({"mine": "yes"}));
}

/// `mcp-a-proxy` is the proxy's Service of `a` and the MCP server's Service of `a-proxy`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_servers_whose_children_would_share_a_name_the_second_waits_and_gives_no_address() {
    let place = Place::new("collide").await;
    let _operator = place.operator();
    let objects = &place.objects;
    objects.create(minimal("a-proxy")).await;
    objects.has_children("a-proxy", &children_of("a-proxy")).await;
    objects.create(minimal("a")).await;
    message(&place, "a", "Service mcp-a-proxy: an object of this name is controlled by another owner").await;
    let status = objects.phase("a", "Failed").await.status.unwrap();
    assert_eq!(status.url, None, "it would lead past the other server's proxy");
    assert!(objects.get(ChildKind::Deployment, "a").await.is_null());

    objects.servers().delete("a-proxy", &DeleteParams::default()).await.unwrap();
    objects.has_children("a", &children_of("a")).await;
}

/// Anybody may apply under the operator's name. What such an object holds is not taken over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_planted_under_our_manager_is_created_again() {
    let place = Place::new("planted").await;
    let operator = place.operator();
    let objects = &place.objects;
    objects.create(webhook_config("gate", json!({}))).await;
    objects.create(labelled("real", json!({"webhookConfigRef": {"name": "gate"}}))).await;
    objects.has_children("real", &children_of("real")).await;
    let real = objects.get(ChildKind::Deployment, "real").await;
    let real: Value = serde_json::from_str(&real.to_string().replace("\"real\"", "\"web\"")).unwrap();
    let guards = real["spec"]["template"]["metadata"]["annotations"]["toolhive.stacklok.dev/guards"].clone();
    assert!(guards.is_string(), "{real}");
    operator.kill().await;

    let labels =
        json!({"app": "mcpserver", "app.kubernetes.io/name": "mcpserver", "toolhive": "true", "toolhive-name": "web"});
    let planted = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "labels": labels},
        "spec": {"selector": real["spec"]["selector"], "template": {
            "metadata": {"labels": real["spec"]["selector"]["matchLabels"], "annotations": {"toolhive.stacklok.dev/guards": guards}},
            "spec": {
                "initContainers": [{"name": "first", "image": "own:1"}],
                "containers": [{"name": "own", "image": "own:1"}],
            },
        }},
    });
    objects.create(planted).await;
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "mcp-web-proxy"},
        "spec": {"ports": [{"port": 9}], "publishNotReadyAddresses": true}});
    objects.create(service).await;
    for (kind, name) in [(ChildKind::Deployment, "web"), (ChildKind::Service, "mcp-web-proxy")] {
        let resource = kind.api_resource();
        let note = json!({"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"annotations": {"own": "yes"}}});
        let params = PatchParams::apply("portcullis-mcpserver");
        objects.children(kind).patch(name, &params, &Patch::Apply(note)).await.unwrap();
    }
    objects.create(labelled("web", json!({"webhookConfigRef": {"name": "gate"}}))).await;

    let _operator = place.operator();
    let is_ours = |child: &Value| child["metadata"]["ownerReferences"][0]["kind"] == "MCPServer";
    let deployment = objects.child(ChildKind::Deployment, "web", "to be created again", is_ours).await;
    let service = objects.child(ChildKind::Service, "mcp-web-proxy", "to be created again", is_ours).await;
    for (child, planted) in [(&deployment, "own:1"), (&service, "publishNotReadyAddresses")] {
        assert!(!child.to_string().contains(planted), "{planted} in {child}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_whose_owner_reference_was_stripped_still_goes_when_a_guard_is_missing() {
    let place = Place::new("stripped").await;
    let operator = place.operator();
    let objects = &place.objects;
    objects.create(minimal("web")).await;
    objects.has_children("web", &children_of("web")).await;
    ready_pods(objects, "web").await;
    objects.phase("web", "Ready").await;
    operator.kill().await;
    objects.merge("apps/v1", "Deployment", "web", json!({"metadata": {"ownerReferences": null}})).await;
    objects.edit("web", json!({"externalAuthConfigRef": {"name": "x"}})).await;

    let _operator = place.operator();
    objects.child(ChildKind::Deployment, "web", "to be gone", Value::is_null).await;
    published(&place, "web", "Warning ProxyRemoved").await;
    published(&place, "web", "Warning ExternalAuthConfigNotFound").await;
}

/// A proxy started on the old document would say that it has the guard, and not have it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guarded_proxy_is_not_started_while_its_run_config_is_still_the_unguarded_one() {
    let place = Place::new("stuck-config").await;
    let operator = place.operator();
    let objects = &place.objects;
    objects.create(minimal("web")).await;
    objects.has_children("web", &children_of("web")).await;
    operator.idle(place.cluster).await;
    objects.merge("v1", "ConfigMap", "web-runconfig", json!({"metadata": {"finalizers": ["example.com/hold"]}})).await;
    objects.children(ChildKind::ConfigMap).delete("web-runconfig", &DeleteParams::default()).await.unwrap();
    objects.create(webhook_config("gate", json!({}))).await;
    objects.edit("web", json!({"webhookConfigRef": {"name": "gate"}})).await;
    objects.child(ChildKind::Deployment, "web", "to be gone", Value::is_null).await;
    message(&place, "web", "ConfigMap web-runconfig is being deleted").await;
    published(&place, "web", "Warning ChildBeingDeleted").await;
    operator.idle(place.cluster).await;
    assert!(objects.get(ChildKind::Deployment, "web").await.is_null());

    objects.merge("v1", "ConfigMap", "web-runconfig", json!({"metadata": {"finalizers": null}})).await;
    objects.has_children("web", &children_of("web")).await;
    let document = objects.get(ChildKind::ConfigMap, "web-runconfig").await;
    assert!(document["data"]["runconfig.json"].as_str().unwrap().contains("policy.example.svc"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_child_is_reported_once_in_the_api_servers_words() {
    let place = Place::new("refused").await;
    let _operator = place.operator();
    let objects = &place.objects;
    let labels: Value = (0..40).map(|at| (format!("not a key {at}"), json!("v"))).collect();
    objects.create(labelled("web", json!({"podTemplateSpec": {"metadata": {"labels": labels}}}))).await;
    let message = message(&place, "web", "cannot apply StatefulSet").await;
    assert!(message.contains("spec.template.labels: Invalid value") && !message.contains("StatusDetails"), "{message}");
    published(&place, "web", "Warning ApplyFailed").await;
    objects.edit("web", json!({"podTemplateSpec": null})).await;
    objects.has_children("web", &children_of("web")).await;
    let events = objects.events("MCPServer", "web").await;
    assert_eq!(events.iter().filter(|event| *event == "Warning ApplyFailed").count(), 1, "{events:?}");
}
