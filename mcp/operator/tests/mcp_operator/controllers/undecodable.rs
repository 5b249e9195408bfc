//! One object that does not decode (stored under a looser schema) stops neither the watch nor its own deletion.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, ResourceExt as _, api::DeleteParams};
use mcp_api::{
    v1alpha1::MCPWebhookConfig,
    v1beta1::{MCPServer, MCPToolConfig},
};
use mcp_operator::controllers::referrers;
use portcullis_testing::{ControlPlane, wait_for_object, wait_until};
use serde_json::{Value, json};
use tokio::sync::RwLock;

use crate::support::{
    DEADLINE, Objects, Operator, children_of, labelled, minimal, owned, shipped_user, webhook_config,
};

/// Held by who needs the kinds of the other control plane, and alone by who takes some of them away.
static KINDS: RwLock<()> = RwLock::const_new(());

/// Another control plane, with kinds that take any spec: in that of the other tests the schema stays as it is.
async fn other_cluster() -> &'static ControlPlane {
    let cluster = ControlPlane::shared().await;
    cluster.install_crds(&loose()).await;
    cluster
}

/// The CRDs, with a schema that takes any spec.
fn loose() -> Vec<CustomResourceDefinition> {
    let loosen = |crd| {
        let mut crd: Value = serde_json::to_value(crd).unwrap();
        for version in crd["spec"]["versions"].as_array_mut().unwrap() {
            version["schema"]["openAPIV3Schema"]["properties"]["spec"] =
                json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        }
        serde_json::from_value(crd).unwrap()
    };
    mcp_api::crds().into_iter().map(loosen).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_does_not_decode_stops_nothing_and_can_be_deleted() {
    let _kinds = KINDS.read().await;
    let cluster = other_cluster().await;
    let since = cluster.audit().mark();
    let namespace = cluster.namespace("loose").await;
    let user = shipped_user(cluster, &namespace).await;
    let objects = Objects::new(cluster.admin(), &namespace);
    let mut bad = labelled("bad", json!({"image": {"not": "a string"}}));
    bad["metadata"]["finalizers"] = json!(["mcpserver.toolhive.stacklok.dev/finalizer"]);
    objects.create(bad).await;
    objects
        .create(json!({
            "apiVersion": "toolhive.stacklok.dev/v1alpha1", "kind": "MCPWebhookConfig", "metadata": {"name": "bad"},
            "spec": {"validating": "no list"},
        }))
        .await;
    let operator = Operator::start(&user, &namespace);
    objects.create(minimal("good")).await;
    objects.has_children("good", &children_of("good")).await;
    operator.logged("MCPServer does not decode").await;
    operator.logged("MCPWebhookConfig does not decode").await;

    let dynamic = objects.dynamic("toolhive.stacklok.dev/v1beta1", "MCPServer");
    dynamic.delete("bad", &DeleteParams::default()).await.unwrap();
    wait_until("the bad server to go", DEADLINE, || async {
        dynamic.get_opt("bad").await.unwrap().is_none().then_some(())
    })
    .await;
    owned(&cluster.audit().writes(since).await);
}

/// A deletion is decided by a list in pages, whatever a page holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reference_is_found_on_the_last_page_also_where_its_object_does_not_decode() {
    let _kinds = KINDS.read().await;
    let cluster = other_cluster().await;
    let namespace = cluster.namespace("pages").await;
    let objects = Objects::new(cluster.admin(), &namespace);
    for name in ["a", "b", "c", "d"] {
        objects.create(minimal(name)).await;
    }
    objects.create(labelled("e", json!({"webhookConfigRef": {"name": "last"}}))).await;
    let found = async |name: &'static str, page: u32| {
        referrers::<MCPServer>(&cluster.admin(), &namespace, "MCPWebhookConfig", name, page).await.unwrap()
    };
    for page in 1..=6 {
        assert_eq!(found("last", page).await, ["e"], "{page} on a page");
        assert_eq!(found("free", page).await, Vec::<String>::new(), "{page} on a page");
    }
    let image = json!({"not": "a string"});
    objects.create(labelled("f", json!({"image": image, "webhookConfigRef": {"name": "last"}}))).await;
    for page in 1..=7 {
        assert_eq!(found("last", page).await, ["e", "f"], "{page} on a page");
        assert_eq!(found("free", page).await, Vec::<String>::new(), "{page} on a page");
    }
}

/// What refers to a configuration and does not decode is in no index.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_config_is_not_released_while_an_object_that_does_not_decode_may_refer_to_it() {
    let _kinds = KINDS.read().await;
    let cluster = other_cluster().await;
    let since = cluster.audit().mark();
    let namespace = cluster.namespace("loose-reference").await;
    let user = shipped_user(cluster, &namespace).await;
    let objects = Objects::new(cluster.admin(), &namespace);
    let _operator = Operator::start(&user, &namespace);
    for name in ["gate", "free"] {
        objects.create(webhook_config(name, json!({}))).await;
    }
    let image = json!({"not": "a string"});
    objects.create(labelled("bad", json!({"image": image, "webhookConfigRef": {"name": "gate"}}))).await;
    let configs = objects.configs();
    for name in ["gate", "free"] {
        wait_for_object(&configs, name, "its finalizer", DEADLINE, |config| config.metadata.finalizers.is_some()).await;
        configs.delete(name, &DeleteParams::default()).await.unwrap();
    }
    let gone = async |name: &str| {
        wait_until(&format!("{name} to go"), DEADLINE, || async {
            configs.get_opt(name).await.unwrap().is_none().then_some(())
        })
        .await;
    };
    gone("free").await;
    let blocked = |config: &MCPWebhookConfig| {
        let mut conditions = config.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions
            .any(|it| it.type_ == "DeletionBlocked" && it.message == "Cannot delete: referenced by MCPServers: bad")
    };
    wait_for_object(&configs, "gate", "DeletionBlocked", DEADLINE, blocked).await;
    let servers = objects.dynamic("toolhive.stacklok.dev/v1beta1", "MCPServer");
    servers.delete("bad", &DeleteParams::default()).await.unwrap();
    gone("gate").await;
    owned(&cluster.audit().writes(since).await);
}

/// `kubectl delete crd` with all of them: the kinds of those that could refer may go before the config.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_config_goes_when_the_kinds_that_could_refer_to_it_are_gone() {
    let _alone = KINDS.write().await;
    let cluster = other_cluster().await;
    let namespace = cluster.namespace("kinds").await;
    let user = shipped_user(cluster, &namespace).await;
    let objects = Objects::new(cluster.admin(), &namespace);
    let _operator = Operator::start(&user, &namespace);
    objects
        .create(json!({
            "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPToolConfig", "metadata": {"name": "tools"},
            "spec": {"toolsFilter": ["greet"]},
        }))
        .await;
    let configs: Api<MCPToolConfig> = Api::namespaced(cluster.admin(), &namespace);
    wait_for_object(&configs, "tools", "its finalizer", DEADLINE, |config| !config.finalizers().is_empty()).await;
    let kinds: Api<CustomResourceDefinition> = Api::all(cluster.admin());
    for plural in ["mcpservers", "mcpremoteproxies", "virtualmcpservers"] {
        let kind = format!("{plural}.toolhive.stacklok.dev");
        kinds.delete(&kind, &DeleteParams::default()).await.unwrap();
        wait_until("the kind to be gone", DEADLINE, || async {
            kinds.get_opt(&kind).await.unwrap().is_none().then_some(())
        })
        .await;
    }
    configs.delete("tools", &DeleteParams::default()).await.unwrap();
    wait_until("the config to go", DEADLINE, || async {
        configs.get_opt("tools").await.unwrap().is_none().then_some(())
    })
    .await;
}
