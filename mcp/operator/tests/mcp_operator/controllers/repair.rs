//! What others change comes back; what is not ours is left alone.

use std::time::Duration;

use kube::api::{DeleteParams, Patch, PatchParams};
use mcp_plan::workload::ChildKind;
use portcullis_testing::wait_until;
use serde_json::{Value, json};

use super::{
    Place,
    support::{DEADLINE, children_of, minimal, writes},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_change_of_a_value_is_repaired() {
    let place = Place::new("repair").await;
    let operator = place.operator();
    place.objects.create(minimal("web")).await;
    place.objects.has_children("web", &children_of("web")).await;
    // A change that apply alone cannot undo (the result would have both our element and theirs, and be invalid) costs
    // four writes: the apply that is refused, the merge, the apply that counts, the traces of the merge.
    let cases: Vec<(ChildKind, &str, Value, &str, Value)> = vec![
        (
            ChildKind::ConfigMap,
            "web-runconfig",
            json!({"data": {"runconfig.json": "{}"}}),
            "/data/runconfig.json",
            json!("{}"),
        ),
        (ChildKind::ConfigMap, "web-runconfig", json!({"data": null}), "/data", Value::Null),
        (
            ChildKind::Service,
            "mcp-web-proxy",
            json!({"spec": {"ports": [{"name": "http", "port": 9999, "targetPort": 9999}]}}),
            "/spec/ports/0/port",
            json!(9999),
        ),
        (ChildKind::Service, "mcp-web-proxy", json!({"metadata": {"labels": null}}), "/metadata/labels", Value::Null),
        (
            ChildKind::Deployment,
            "web",
            json!({"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 1}}}}),
            "/spec/template/spec/terminationGracePeriodSeconds",
            json!(1),
        ),
        (
            ChildKind::Deployment,
            "web",
            json!({"spec": {"template": {"metadata": {"annotations": {"toolhive.stacklok.dev/runconfig-checksum": "x"}}}}}),
            "/spec/template/metadata/annotations/toolhive.stacklok.dev~1runconfig-checksum",
            json!("x"),
        ),
        (
            ChildKind::Deployment,
            "web",
            json!({"spec": {"template": {"spec": {"volumes": [{"name": "runconfig", "secret": {"secretName": "theirs"}}]}}}}),
            "/spec/template/spec/volumes/0/secret",
            json!({"secretName": "theirs", "defaultMode": 420}),
        ),
        (
            ChildKind::StatefulSet,
            "web",
            json!({"spec": {"template": {"metadata": {"labels": {"toolhive": "false"}}}}}),
            "/spec/template/metadata/labels/toolhive",
            json!("false"),
        ),
        (
            ChildKind::ServiceAccount,
            "web-sa",
            json!({"metadata": {"ownerReferences": null}}),
            "/metadata/ownerReferences",
            Value::Null,
        ),
        (
            ChildKind::ServiceAccount,
            "web-sa",
            json!({"metadata": {"annotations": {"portcullis.dev/applied-digest": "forged"}}}),
            "/metadata/annotations/portcullis.dev~1applied-digest",
            json!("forged"),
        ),
    ];
    operator.idle(place.cluster).await;
    for (kind, name, patch, pointer, foreign) in cases {
        let before = place.objects.get(kind, name).await;
        let value = |object: &Value| object.pointer(pointer).cloned().unwrap_or_default();
        let since = place.cluster.audit().mark();
        let resource = kind.api_resource();
        place.objects.merge(&resource.api_version, &resource.kind, name, patch.clone()).await;
        let after =
            place.objects.child(kind, name, &format!("{pointer} repaired"), |now| value(now) == value(&before)).await;
        assert_ne!(value(&after), foreign, "{kind:?} {name} {pointer}");
        operator.idle(place.cluster).await;
        let written = writes(place.cluster, &place.user, since).await;
        let most = if written.iter().any(|write| write.ends_with(": 422")) { 4 } else { 1 };
        assert!(written.len() <= most, "{patch} on {kind:?} {name}:\n{}", written.join("\n"));
    }
}

/// A name in another cluster, an address of another's, the port of a node: callers follow the Service.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_leads_nowhere_else_than_to_its_pods() {
    let place = Place::new("elsewhere").await;
    let operator = place.operator();
    place.objects.create(minimal("web")).await;
    place.objects.has_children("web", &children_of("web")).await;
    operator.idle(place.cluster).await;
    let outside =
        json!({"type": "ExternalName", "externalName": "evil.example", "clusterIP": null, "clusterIPs": null});
    for name in ["mcp-web-proxy", "mcp-web", "mcp-web-headless"] {
        let mut edits = vec![
            outside.clone(),
            json!({"externalIPs": ["192.0.2.1"]}),
            json!({"publishNotReadyAddresses": true}),
            json!({"selector": {"app": "evil"}}),
            json!({"selector": {"own": "too"}}),
        ];
        if name == "mcp-web" {
            edits.push(json!({"type": "NodePort"}));
        }
        let made = place.objects.get(ChildKind::Service, name).await["spec"].clone();
        for edit in edits {
            let since = place.cluster.audit().mark();
            place.objects.merge("v1", "Service", name, json!({"spec": edit})).await;
            let is_itself = |now: &Value| {
                ["type", "externalName", "externalIPs", "publishNotReadyAddresses", "selector"]
                    .iter()
                    .all(|field| now["spec"][field] == made[field])
            };
            place.objects.child(ChildKind::Service, name, &format!("to be itself after {edit}"), is_itself).await;
            operator.idle(place.cluster).await;
            let written = writes(place.cluster, &place.user, since).await;
            assert!(written.len() <= 2, "{edit} on {name}:\n{}", written.join("\n"));
        }
    }
    // Another reconcile finds nothing that somebody else holds. Who opens the proxy to the world opens the gate's own door.
    let since = place.cluster.audit().mark();
    for name in ["mcp-web", "mcp-web-headless"] {
        place.objects.merge("v1", "Service", name, json!({"metadata": {"labels": {"own": "yes"}}})).await;
    }
    place.objects.merge("v1", "Service", "mcp-web-proxy", json!({"spec": {"type": "NodePort"}})).await;
    operator.wrote_nothing(place.cluster, since, "after what others held was taken away").await;
}

/// Changes that the other client tries to make.
const UNDOINGS: usize = 60;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_undoes_every_repair_costs_a_handful_of_writes_and_is_named() {
    let place = Place::new("undone").await;
    let operator = place.operator();
    place.objects.create(minimal("web")).await;
    place.objects.has_children("web", &children_of("web")).await;
    let quiet = operator.idle(place.cluster).await;
    let deployments = place.objects.children(ChildKind::Deployment);
    let params = PatchParams { field_manager: Some("other-controller".to_owned()), ..PatchParams::default() };
    let theirs = json!({"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 1}}}});
    for _ in 0..UNDOINGS {
        deployments.patch("web", &params, &Patch::Merge(&theirs)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let grace = "/spec/template/spec/terminationGracePeriodSeconds";
    let itself = |child: &Value| child.pointer(grace).is_some_and(|seconds| *seconds != json!(1));
    place.objects.child(ChildKind::Deployment, "web", "to be itself in the end", itself).await;
    let written = writes(place.cluster, &place.user, quiet).await;
    assert!(written.len() <= UNDOINGS / 3, "after {UNDOINGS} changes:\n{}", written.join("\n"));
    let events = place.objects.events("MCPServer", "web").await;
    assert_eq!(events.iter().filter(|event| *event == "Warning RepairUndone").count(), 1, "{events:?}");
    let path = "spec.template.spec.terminationGracePeriodSeconds";
    operator.logged(&format!("field manager other-controller changes {path} again and again")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_child_comes_back() {
    let place = Place::new("deleted-child").await;
    let operator = place.operator();
    place.objects.create(minimal("web")).await;
    let children = children_of("web");
    place.objects.has_children("web", &children).await;
    operator.idle(place.cluster).await;
    for (kind, name) in &children {
        let before = place.objects.get(*kind, name).await["metadata"]["uid"].clone();
        place.objects.children(*kind).delete(name, &DeleteParams::background()).await.unwrap();
        place
            .objects
            .child(*kind, name, "to come back", |child| !child.is_null() && child["metadata"]["uid"] != before)
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_managed_fields_reset_costs_one_write_per_child_and_converges() {
    let place = Place::new("reset").await;
    let operator = place.operator();
    place.objects.create(minimal("web")).await;
    place.objects.has_children("web", &children_of("web")).await;
    operator.idle(place.cluster).await;
    let since = place.cluster.audit().mark();
    let reset = json!([{"op": "replace", "path": "/metadata/managedFields", "value": [{}]}]);
    let patch: json_patch::Patch = serde_json::from_value(reset).unwrap();
    for (kind, name) in children_of("web") {
        let api = place.objects.children(kind);
        api.patch(&name, &PatchParams::default(), &Patch::Json::<()>(patch.clone())).await.unwrap();
    }
    wait_until("a write of each", DEADLINE, || async {
        (writes(place.cluster, &place.user, since).await.len() >= children_of("web").len()).then_some(())
    })
    .await;
    operator.idle(place.cluster).await;
    let written = writes(place.cluster, &place.user, since).await;
    assert_eq!(written.len(), children_of("web").len(), "{}", written.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_of_a_childs_name_that_is_not_ours_is_left_alone_and_named_in_the_status() {
    let place = Place::new("not-ours").await;
    let _operator = place.operator();
    let own = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web-runconfig"}, "data": {"mine": "yes"},
    });
    place.objects.create(own).await;
    place.objects.create(minimal("web")).await;
    let server = place.objects.phase("web", "Failed").await;
    let message = server.status.unwrap().message.unwrap();
    assert!(message.contains("ConfigMap web-runconfig") && message.contains("not made by this operator"), "{message}");
    assert_eq!(place.objects.get(ChildKind::ConfigMap, "web-runconfig").await["data"], json!({"mine": "yes"}));
    assert!(place.objects.get(ChildKind::Deployment, "web").await.is_null(), "no proxy without its RunConfig");

    place.objects.children(ChildKind::ConfigMap).delete("web-runconfig", &DeleteParams::default()).await.unwrap();
    place.objects.has_children("web", &children_of("web")).await;
}
