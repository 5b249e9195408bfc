//! The cluster, and what sessions leave in it.

use std::collections::BTreeMap;

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use portcullis_testing::{ControlPlane, wait_until};
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};

use super::process::{Dev, ENTITIES, PATIENCE, VERSIONS, command};

/// The CRD of the example with versions.
pub(crate) const PEOPLE: &str = "people.versions.example";

/// What `generate` of an example prints.
pub(crate) async fn generate(example: &str, arguments: &[&str]) -> Vec<Value> {
    let output = command(example, &[&["generate"], arguments].concat()).output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_saphyr::from_multiple(&String::from_utf8(output.stdout).unwrap()).unwrap()
}

async fn crds(example: &str) -> Vec<CustomResourceDefinition> {
    generate(example, &["crds"]).await.into_iter().map(|crd| serde_json::from_value(crd).unwrap()).collect()
}

/// The control plane of these tests, with the kinds of the examples: controllers of a session act on the objects of other
/// tests too. The owner of each session is another.
pub(crate) async fn cluster() -> &'static ControlPlane {
    let cluster = ControlPlane::shared_with_controllers().await;
    cluster.install_crds(&crds(ENTITIES).await).await;
    cluster
}

/// The conversion of a kind is the same for the whole cluster: one test at a time has it to itself.
pub(crate) async fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::const_new(());
    ALONE.lock().await
}

/// Controllers reconcile what is in any namespace: one test at a time has them to itself, without the Leases that leaders
/// of tests before it were killed with.
pub(crate) async fn controllers_alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::const_new(());
    let guard = ALONE.lock().await;
    let client = ControlPlane::shared_with_controllers().await.admin();
    let labelled = ListParams::default().labels("portcullis.dev/operator=entity-operator");
    for lease in Api::<Lease>::all(client.clone()).list(&labelled).await.unwrap() {
        let leases = Api::<Lease>::namespaced(client.clone(), &lease.namespace().unwrap());
        leases.delete(&lease.name_any(), &DeleteParams::default()).await.unwrap();
    }
    guard
}

/// The shared control plane with the kind that has versions, as it was installed.
pub(crate) async fn cluster_with_people() -> &'static ControlPlane {
    let cluster = cluster().await;
    without_people(cluster).await;
    cluster.install_crds(&crds(VERSIONS).await).await;
    cluster
}

/// The same cluster without that kind.
pub(crate) async fn without_people(cluster: &ControlPlane) {
    let crds: Api<CustomResourceDefinition> = Api::all(cluster.admin());
    let _ = crds.delete(PEOPLE, &DeleteParams::default()).await;
    wait_until("the CRD to be gone", PATIENCE, || async {
        crds.get_opt(PEOPLE).await.unwrap().is_none().then_some(())
    })
    .await;
}

/// Starts `dev` as the administrator.
pub(crate) fn start(cluster: &ControlPlane, example: &str, owner: &str, arguments: &[&str]) -> Dev {
    Dev::start(example, &cluster.kubeconfig_path(), owner, arguments)
}

fn api(client: Client, group: &str, version: &str, kind: &str, plural: &str, namespace: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(group, version, kind);
    Api::namespaced_with(client, namespace, &ApiResource::from_gvk_with_plural(&kind, plural))
}

pub(crate) fn entities(cluster: &ControlPlane, namespace: &str) -> Api<DynamicObject> {
    api(cluster.admin(), "demo.example", "v1", "Entity", "entities", namespace)
}

pub(crate) fn people(cluster: &ControlPlane, version: &str) -> Api<DynamicObject> {
    api(cluster.admin(), "versions.example", version, "Person", "people", "default")
}

pub(crate) fn entity(username: &str) -> DynamicObject {
    object("demo.example/v1", "Entity", "e", &json!({ "username": username }))
}

pub(crate) fn object(version: &str, kind: &str, name: &str, spec: &Value) -> DynamicObject {
    let object = json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name }, "spec": spec });
    serde_json::from_value(object).unwrap()
}

/// What the API server says to an object, which it does not keep; its message where it refuses it.
pub(crate) async fn try_create(entities: &Api<DynamicObject>, username: &str) -> Result<DynamicObject, String> {
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    match entities.create(&dry, &entity(username)).await {
        Err(kube::Error::Api(status)) => Err(status.message),
        made => Ok(made.unwrap()),
    }
}

/// Waits until `forbidden` is refused there, or is not.
pub(crate) async fn judged(entities: &Api<DynamicObject>, wanted: bool) {
    let what = if wanted { "the webhook to be called" } else { "the webhook not to be called any more" };
    wait_until(what, PATIENCE, || async { (try_create(entities, "forbidden").await.is_err() == wanted).then_some(()) })
        .await;
}

/// Names of the configurations of development sessions of this person.
pub(crate) async fn configurations(cluster: &ControlPlane, owner: &str) -> Vec<String> {
    let all = ListParams::default();
    let validating = Api::<ValidatingWebhookConfiguration>::all(cluster.admin()).list(&all).await.unwrap();
    let mutating = Api::<MutatingWebhookConfiguration>::all(cluster.admin()).list(&all).await.unwrap();
    let names =
        validating.iter().map(kube::ResourceExt::name_any).chain(mutating.iter().map(kube::ResourceExt::name_any));
    names.filter(|name| name.contains(&format!("-dev-{owner}-"))).collect()
}

pub(crate) async fn people_crd(cluster: &ControlPlane) -> CustomResourceDefinition {
    Api::all(cluster.admin()).get(PEOPLE).await.unwrap()
}

/// What of a CRD a session may not change for good.
pub(crate) fn lasting(crd: &CustomResourceDefinition) -> (Value, BTreeMap<String, String>, Vec<String>) {
    let managers = crd.managed_fields().iter().filter_map(|entry| entry.manager.clone()).collect();
    (json!(crd.spec), crd.annotations().clone(), managers)
}
