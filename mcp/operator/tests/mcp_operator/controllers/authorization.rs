//! Authorization on the API server: who refers to an MCPAuthzConfig and when it goes, and what an edit of policies does to
//! the proxies, wherever the policies are.

use kube::{Api, api::DeleteParams};
use mcp_api::v1beta1::{MCPAuthzConfig, MCPServer};
use mcp_plan::workload::ChildKind;
use portcullis_testing::{wait_for_object, wait_until};
use serde_json::{Value, json};

use super::{
    Place,
    support::{
        DEADLINE, authz_config, children_of_remote, labelled, policies, ready_pods, remote_proxy, virtual_server,
    },
};

const API_VERSION: &str = "toolhive.stacklok.dev/v1beta1";
const PERMIT: &str = "permit(principal, action, resource);";
const FORBID: &str = "forbid(principal, action, resource == Tool::\"rm\");";

fn by_name() -> Value {
    json!({"authzConfigRef": {"name": "rules"}})
}

fn in_spec(policies: &[&str]) -> Value {
    json!({"authzConfig": {"type": "inline", "inline": {"policies": policies}}})
}

fn in_config_map() -> Value {
    json!({"authzConfig": {"type": "configMap", "configMap": {"name": "rules"}}})
}

fn configs(place: &Place) -> Api<MCPAuthzConfig> {
    place.objects.api()
}

/// Reason and message of a condition with this status.
fn says<'a>(server: &'a MCPServer, type_: &str, status: &str) -> Option<(&'a str, &'a str)> {
    let mut conditions = server.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.find(|it| it.type_ == type_ && it.status == status).map(|it| (&*it.reason, &*it.message))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_of_workload_that_refers_to_a_config_of_policies_is_listed_and_blocks_its_deletion() {
    let place = Place::new("policies-referenced").await;
    let _operator = place.operator();
    let objects = &place.objects;
    objects.create(authz_config("rules", &[PERMIT])).await;
    objects.create(labelled("web", by_name())).await;
    objects.create(remote_proxy("far", by_name())).await;
    let mut all = virtual_server("all", "absent", "absent");
    all["spec"]["incomingAuth"]["authzConfigRef"] = json!({"name": "rules"});
    objects.create(all).await;
    let workloads = [("MCPRemoteProxy", "far"), ("MCPServer", "web"), ("VirtualMCPServer", "all")];
    let wanted = json!(workloads.map(|(kind, name)| json!({"kind": kind, "name": name})));
    let referenced =
        |config: &MCPAuthzConfig| serde_json::to_value(&config.status).unwrap()["referencingWorkloads"] == wanted;
    let config = wait_for_object(&configs(&place), "rules", "its referrers", DEADLINE, referenced).await;
    let finalizer = "mcpauthzconfig.toolhive.stacklok.dev/finalizer".to_owned();
    assert_eq!(config.metadata.finalizers, Some(vec![finalizer]));
    let hash = config.status.unwrap().config_hash;
    for (kind, name) in workloads {
        let told = |it: &kube::api::DynamicObject| it.data["status"]["authzConfigHash"].as_str() == hash.as_deref();
        wait_for_object(&objects.dynamic(API_VERSION, kind), name, "authzConfigHash", DEADLINE, told).await;
    }
    configs(&place).delete("rules", &DeleteParams::default()).await.unwrap();
    let blocked = |config: &MCPAuthzConfig| {
        let mut conditions = config.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let message = "Cannot delete: referenced by MCPRemoteProxies: far; MCPServers: web; VirtualMCPServers: all";
        conditions.any(|it| it.type_ == "DeletionBlocked" && it.message == message)
    };
    wait_for_object(&configs(&place), "rules", "DeletionBlocked", DEADLINE, blocked).await;
    for (kind, name) in workloads {
        objects.dynamic(API_VERSION, kind).delete(name, &DeleteParams::default()).await.unwrap();
    }
    wait_until("the configuration to go", DEADLINE, || async {
        configs(&place).get_opt("rules").await.unwrap().is_none().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edit_of_policies_rolls_the_deployment_wherever_they_are() {
    let place = Place::new("policies-roll").await;
    let operator = place.operator();
    let objects = &place.objects;
    objects.create(authz_config("rules", &[PERMIT])).await;
    objects.create(policies("rules", &[PERMIT])).await;
    objects.create(labelled("named", by_name())).await;
    objects.create(labelled("mapped", in_config_map())).await;
    objects.create(labelled("own", in_spec(&[PERMIT]))).await;
    objects.create(remote_proxy("far", in_config_map())).await;
    objects.has_children("far", &children_of_remote("far")).await;
    let names = ["named", "mapped", "own", "far"];
    for name in names {
        objects.child(ChildKind::Deployment, name, "to come", |it| !it.is_null()).await;
    }
    operator.idle(place.cluster).await;
    let mut before = Vec::new();
    for name in names {
        before.push(objects.get(ChildKind::Deployment, name).await);
    }
    let text = policies("rules", &[PERMIT, FORBID]);
    objects.merge("v1", "ConfigMap", "rules", json!({"data": text["data"]})).await;
    let rules = json!({"spec": {"config": {"policies": [PERMIT, FORBID]}}});
    objects.merge(API_VERSION, "MCPAuthzConfig", "rules", rules).await;
    objects.edit("own", in_spec(&[PERMIT, FORBID])).await;
    for (name, before) in names.iter().zip(before) {
        let rolled = |it: &Value| it["spec"]["template"] != before["spec"]["template"];
        let after = objects.child(ChildKind::Deployment, name, "to roll", rolled).await;
        assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"], "{name}: it is the same one");
        let map = objects.get(ChildKind::ConfigMap, &format!("{name}-runconfig")).await;
        assert!(map["data"]["runconfig.json"].as_str().unwrap().contains("forbid("), "{name}");
    }
}

/// A ConfigMap whose text breaks takes nothing down, and is told of; one that was broken from the start gets no proxy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_config_map_of_policies_that_changes_wakes_its_workload() {
    let place = Place::new("policies-map").await;
    let operator = place.operator();
    let objects = &place.objects;
    objects.create(labelled("web", in_config_map())).await;
    let missing = |server: &MCPServer| {
        says(server, "AuthzConfigValidated", "False").is_some_and(|it| it.0 == "AuthzConfigMapNotFound")
    };
    objects.server("web", "AuthzConfigMapNotFound", missing).await;
    assert!(objects.get(ChildKind::Deployment, "web").await.is_null());
    objects.create(policies("rules", &["permit(principal"])).await;
    let invalid = |server: &MCPServer| {
        says(server, "AuthzConfigValidated", "False").is_some_and(|it| {
            it.0 == "AuthzConfigMapInvalid" && it.1.contains("ConfigMap rules/authz.json: cedar.policies[0]: ")
        })
    };
    objects.server("web", "AuthzConfigMapInvalid", invalid).await;
    assert!(objects.get(ChildKind::Deployment, "web").await.is_null());

    let text = |policies_: &[&str]| json!({"data": policies("rules", policies_)["data"]});
    objects.merge("v1", "ConfigMap", "rules", text(&[PERMIT])).await;
    ready_pods(objects, "web").await;
    objects.phase("web", "Ready").await;
    operator.idle(place.cluster).await;
    let before = objects.get(ChildKind::Deployment, "web").await;
    objects.merge("v1", "ConfigMap", "rules", text(&["permit("])).await;
    let server = objects.server("web", "AuthzConfigMapInvalid", invalid).await;
    assert_eq!(says(&server, "GuardsEnforced", "False").unwrap().0, "GuardNotUsable");
    operator.idle(place.cluster).await;
    let after = objects.get(ChildKind::Deployment, "web").await;
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(after["spec"], before["spec"], "what serves goes on with the policies that it has");
    assert!(!operator.log().contains("permit("), "no text is logged");
}
