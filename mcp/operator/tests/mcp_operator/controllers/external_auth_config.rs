//! MCPExternalAuthConfig on the API server: who refers to it, when it goes, and what rolls the proxies that use it.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api,
    api::{DeleteParams, DynamicObject},
};
use mcp_api::v1beta1::MCPExternalAuthConfig;
use mcp_plan::workload::ChildKind;
use portcullis_testing::{wait_for_object, wait_until};
use serde_json::{Value, json};

use super::{
    Place,
    support::{DEADLINE, exchange, external_auth_config, labelled, reason_of, remote_proxy, virtual_server},
};

const API_VERSION: &str = "toolhive.stacklok.dev/v1beta1";
const KIND: &str = "MCPExternalAuthConfig";
const CONDITION: &str = "ExternalAuthConfigValidated";

fn configs(place: &Place) -> Api<MCPExternalAuthConfig> {
    place.objects.api()
}

fn reference(name: &str) -> Value {
    json!({"externalAuthConfigRef": {"name": name}})
}

async fn blocked(place: &Place, name: &str, by: &str) {
    let message = format!("Cannot delete: referenced by {by}");
    let says = |config: &MCPExternalAuthConfig| {
        let mut conditions = config.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.any(|it| it.type_ == "DeletionBlocked" && it.message == message)
    };
    wait_for_object(&configs(place), name, &message, DEADLINE, says).await;
}

async fn gone(place: &Place, name: &str) {
    wait_until("the configuration to go", DEADLINE, || async {
        configs(place).get_opt(name).await.unwrap().is_none().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workloads_that_refer_to_a_credential_block_its_deletion() {
    let place = Place::new("credential-referenced").await;
    let _operator = place.operator();
    let objects = &place.objects;
    objects.create(external_auth_config("none", json!({"type": "unauthenticated"}))).await;
    let config = objects.referenced(KIND, "none", &[]).await;
    let finalizer = "mcpexternalauthconfig.toolhive.stacklok.dev/finalizer".to_owned();
    assert_eq!(config.metadata.finalizers, Some(vec![finalizer]));
    objects.create(labelled("web", reference("none"))).await;
    objects.create(labelled("auth", json!({"authServerRef": {"name": "none"}}))).await;
    objects.create(remote_proxy("far", reference("none"))).await;
    let mut all = virtual_server("all", "absent", "absent");
    let credential = json!({"type": "externalAuthConfigRef", "externalAuthConfigRef": {"name": "none"}});
    all["spec"]["outgoingAuth"] = json!({"backends": {"git": credential}});
    objects.create(all).await;
    let workloads =
        [("MCPRemoteProxy", "far"), ("MCPServer", "auth"), ("MCPServer", "web"), ("VirtualMCPServer", "all")];
    let hash = objects.referenced(KIND, "none", &workloads).await.data["status"]["configHash"].clone();
    for (kind, name) in [workloads[0], workloads[2]] {
        let told = |it: &DynamicObject| it.data["status"]["externalAuthConfigHash"] == hash;
        wait_for_object(&objects.dynamic(API_VERSION, kind), name, "externalAuthConfigHash", DEADLINE, told).await;
    }
    let wrong = |server: &_| reason_of(server, "AuthServerRefValidated", "False") == Some("AuthServerRefInvalidType");
    objects.server("auth", "AuthServerRefInvalidType", wrong).await;
    configs(&place).delete("none", &DeleteParams::default()).await.unwrap();
    let by = "MCPRemoteProxies: far; MCPServers: auth, web; VirtualMCPServers: all";
    blocked(&place, "none", by).await;
    for (kind, name) in workloads {
        objects.dynamic(API_VERSION, kind).delete(name, &DeleteParams::default()).await.unwrap();
    }
    gone(&place, "none").await;
}

/// The kind `MCPServerEntry` of ToolHive's, which this operator does not serve.
fn entries() -> CustomResourceDefinition {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    serde_json::from_value(json!({
        "metadata": {"name": "mcpserverentries.toolhive.stacklok.dev"},
        "spec": {
            "group": "toolhive.stacklok.dev", "scope": "Namespaced",
            "names": {"kind": "MCPServerEntry", "plural": "mcpserverentries", "singular": "mcpserverentry"},
            "versions": [{"name": "v1beta1", "served": true, "storage": true, "schema": schema}],
        },
    }))
    .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_of_a_kind_without_a_controller_blocks_a_deletion() {
    let place = Place::new("credential-entry").await;
    place.cluster.install_crds(&[entries()]).await;
    let _operator = place.operator();
    let objects = &place.objects;
    for name in ["none", "other"] {
        objects.create(external_auth_config(name, json!({"type": "unauthenticated"}))).await;
        objects.referenced(KIND, name, &[]).await;
    }
    let entry = json!({
        "apiVersion": API_VERSION, "kind": "MCPServerEntry", "metadata": {"name": "git"}, "spec": reference("none"),
    });
    objects.create(entry).await;
    for name in ["none", "other"] {
        configs(&place).delete(name, &DeleteParams::default()).await.unwrap();
    }
    gone(&place, "other").await;
    blocked(&place, "none", "MCPServerEntries: git").await;
    objects.dynamic(API_VERSION, "MCPServerEntry").delete("git", &DeleteParams::default()).await.unwrap();
    gone(&place, "none").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edit_of_a_credential_rolls_the_deployment() {
    let place = Place::new("credential-roll").await;
    let operator = place.operator();
    let objects = &place.objects;
    let key = json!({"name": "client", "key": "secret"});
    objects.create(external_auth_config("tokens", exchange(json!({"clientId": "c", "clientSecretRef": key})))).await;
    let bearer = json!({"type": "bearerToken", "bearerToken": {"tokenSecretRef": key}});
    objects.create(external_auth_config("bearer", bearer)).await;
    objects.create(labelled("web", reference("tokens"))).await;
    objects.create(remote_proxy("far", reference("bearer"))).await;
    let missing = |server: &_| reason_of(server, CONDITION, "False") == Some("ExternalAuthSecretNotFound");
    objects.server("web", "ExternalAuthSecretNotFound", missing).await;
    assert!(objects.get(ChildKind::Deployment, "web").await.is_null());

    let secret = |value: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "client"}, "stringData": {"secret": value}});
    objects.create(secret("hunter2-first")).await;
    for name in ["web", "far"] {
        objects.child(ChildKind::Deployment, name, "to come", |it| !it.is_null()).await;
    }
    operator.idle(place.cluster).await;
    let rolled = async |name: &str, before: &Value| {
        let differs = |it: &Value| it["spec"]["template"] != before["spec"]["template"];
        let after = objects.child(ChildKind::Deployment, name, "to roll", differs).await;
        assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"], "{name}: it is the same one");
        after
    };
    let before = [objects.get(ChildKind::Deployment, "web").await, objects.get(ChildKind::Deployment, "far").await];
    objects.merge("v1", "Secret", "client", json!({"stringData": {"secret": "hunter2-second"}})).await;
    rolled("far", &before[1]).await;
    operator.idle(place.cluster).await;
    let web = objects.get(ChildKind::Deployment, "web").await;
    assert_eq!(web["spec"], before[0]["spec"], "the proxy reads the secret of its client from a file");
    let edit = json!({"spec": {"tokenExchange": {"scopes": ["read"]}}});
    objects.merge(API_VERSION, KIND, "tokens", edit).await;
    rolled("web", &web).await;
    let map = objects.get(ChildKind::ConfigMap, "web-runconfig").await;
    assert!(map["data"]["runconfig.json"].as_str().unwrap().contains("\"token_exchange_config\""), "{map}");
    operator.idle(place.cluster).await;
    let before = objects.get(ChildKind::Deployment, "web").await;
    objects.dynamic("v1", "Secret").delete("client", &DeleteParams::default()).await.unwrap();
    objects.server("web", "ExternalAuthSecretNotFound", missing).await;
    operator.idle(place.cluster).await;
    assert_eq!(objects.get(ChildKind::Deployment, "web").await["spec"], before["spec"], "what runs is left as it is");

    let mut said = operator.log();
    for (version, kind) in [(API_VERSION, KIND), (API_VERSION, "MCPServer"), (API_VERSION, "MCPRemoteProxy")] {
        let all = objects.dynamic(version, kind).list(&kube::api::ListParams::default()).await.unwrap();
        said += &serde_json::to_string(&all.items).unwrap();
    }
    let events = objects.dynamic("events.k8s.io/v1", "Event").list(&kube::api::ListParams::default()).await.unwrap();
    said += &serde_json::to_string(&events.items).unwrap();
    for name in ["web-runconfig", "far-runconfig"] {
        said += &objects.get(ChildKind::ConfigMap, name).await.to_string();
    }
    assert!(!said.contains("hunter2"), "no value of a Secret is logged, told or written");
}
