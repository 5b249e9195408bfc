//! M2, D9, O4: deletions wait for what refers to the object, and go through as soon as it is gone.

use kube::api::DeleteParams;
use mcp_api::v1alpha1::MCPWebhookConfig;
use mcp_plan::workload::ChildKind;
use portcullis_testing::wait_until;
use serde_json::{Value, json};

use super::{
    Place,
    support::{DEADLINE, children_of, labelled, minimal, remote_proxy, webhook_config},
};

fn gated(name: &str) -> Value {
    labelled(name, json!({"webhookConfigRef": {"name": "gate"}}))
}

/// M2, O4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleting_a_referenced_config_blocks_and_goes_through_when_the_last_reference_goes() {
    let place = Place::new("referenced").await;
    let _operator = place.operator();
    let (objects, configs) = (&place.objects, place.objects.configs());
    objects.create(webhook_config("gate", json!({}))).await;
    objects.create(gated("first")).await;
    objects.create(gated("second")).await;
    objects.create(remote_proxy("far", json!({"webhookConfigRef": {"name": "gate"}}))).await;
    let referenced = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        move |config: &MCPWebhookConfig| {
            config.status.as_ref().and_then(|status| status.referencing_servers.clone()).unwrap_or_default() == names
        }
    };
    let wait = |what: &'static str, names: Vec<&'static str>| {
        let configs = configs.clone();
        async move { portcullis_testing::wait_for_object(&configs, "gate", what, DEADLINE, referenced(&names)).await }
    };
    wait("both servers in referencingServers", vec!["first", "second"]).await;
    let kinds = |config: &MCPWebhookConfig| {
        let workloads = config.status.iter().flat_map(|status| status.referencing_workloads.iter().flatten());
        workloads.map(|workload| workload.kind.clone()).collect::<Vec<_>>()
    };
    portcullis_testing::wait_for_object(&configs, "gate", "all in referencingWorkloads", DEADLINE, |config| {
        kinds(config) == ["MCPRemoteProxy", "MCPServer", "MCPServer"]
    })
    .await;

    configs.delete("gate", &DeleteParams::default()).await.unwrap();
    let blocked = |config: &MCPWebhookConfig| {
        let conditions = config.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let mut blocked = conditions.into_iter().filter(|it| it.type_ == "DeletionBlocked" && it.status == "True");
        blocked.any(|it| ["first", "second", "far"].iter().all(|name| it.message.contains(name)))
    };
    portcullis_testing::wait_for_object(&configs, "gate", "DeletionBlocked", DEADLINE, blocked).await;
    // One server lets go by an edit, the other by its own deletion.
    objects.edit("first", json!({"webhookConfigRef": null})).await;
    wait("only the second in referencingServers", vec!["second"]).await;
    objects.servers().delete("second", &DeleteParams::default()).await.unwrap();
    let blocked_by_one = |config: &MCPWebhookConfig| kinds(config) == ["MCPRemoteProxy"];
    portcullis_testing::wait_for_object(&configs, "gate", "the remote proxy alone", DEADLINE, blocked_by_one).await;
    let edit = json!({"spec": {"webhookConfigRef": null}});
    objects.merge("toolhive.stacklok.dev/v1beta1", "MCPRemoteProxy", "far", edit).await;
    wait_until("the configuration to go", DEADLINE, || async {
        configs.get_opt("gate").await.unwrap().is_none().then_some(())
    })
    .await;
    assert!(objects.events("MCPWebhookConfig", "gate").await.contains(&"Warning DeletionBlocked".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_server_takes_its_children_with_it_and_nothing_else() {
    let place = Place::new("delete-server").await;
    let _operator = place.operator();
    let objects = &place.objects;
    objects.create(minimal("web")).await;
    objects.create(minimal("other")).await;
    objects.has_children("web", &children_of("web")).await;
    objects.has_children("other", &children_of("other")).await;
    objects.server("web", "its finalizer", |server| server.metadata.finalizers.is_some()).await;
    objects.servers().delete("web", &DeleteParams::default()).await.unwrap();
    for (kind, name) in children_of("web") {
        objects.child(kind, &name, "to be gone", Value::is_null).await;
    }
    wait_until("the server to go", DEADLINE, || async {
        objects.servers().get_opt("web").await.unwrap().is_none().then_some(())
    })
    .await;
    for (kind, name) in children_of("other") {
        let child = objects.get(kind, &name).await;
        assert!(child["metadata"]["deletionTimestamp"].is_null() && !child.is_null(), "{kind:?} {name}");
    }
}

/// A child of a deleted server's name that is somebody else's stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_server_does_not_control_stays_when_it_is_deleted() {
    let place = Place::new("delete-foreign").await;
    let _operator = place.operator();
    let objects = &place.objects;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "web-sa"}});
    objects.create(account).await;
    objects.create(labelled("web", json!({"serviceAccount": "web-sa"}))).await;
    objects.child(ChildKind::Deployment, "web", "to exist", |it| !it.is_null()).await;
    objects.servers().delete("web", &DeleteParams::default()).await.unwrap();
    wait_until("the server to go", DEADLINE, || async {
        objects.servers().get_opt("web").await.unwrap().is_none().then_some(())
    })
    .await;
    let account = objects.get(ChildKind::ServiceAccount, "web-sa").await;
    assert!(account["metadata"]["deletionTimestamp"].is_null() && !account.is_null(), "{account}");
}

/// A namespace with servers, children and a referenced configuration can be deleted as a whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_with_everything_in_it_goes() {
    let place = Place::new("delete-namespace").await;
    let operator_home = place.cluster.namespace("home").await;
    let user = super::shipped_user(place.cluster, &operator_home).await;
    let operator = super::Operator::start_with(
        &user,
        &operator_home,
        &["--watch-namespace", place.namespace(), "--bind", "127.0.0.1:0"],
    );
    operator.reconciles().await;
    place.objects.create(webhook_config("gate", json!({}))).await;
    place.objects.create(gated("web")).await;
    place.objects.has_children("web", &children_of("web")).await;
    place.objects.delete_namespace().await;
    let namespaces: kube::Api<k8s_openapi::api::core::v1::Namespace> = kube::Api::all(place.cluster.admin());
    wait_until("the namespace to go", DEADLINE, || async {
        namespaces.get_opt(place.namespace()).await.unwrap().is_none().then_some(())
    })
    .await;
}
