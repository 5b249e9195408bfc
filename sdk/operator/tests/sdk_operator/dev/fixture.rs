//! The cluster, and what sessions leave in it.

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams};
use portcullis_testing::{ControlPlane, wait_until};
use serde_json::{Value, json};

use super::process::{Dev, ENTITIES, PATIENCE, command};

/// The documents that `generate` of an example prints.
pub(crate) async fn generate(example: &str, arguments: &[&str]) -> Vec<Value> {
    let output = command(example, &[&["generate"], arguments].concat()).output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_saphyr::from_multiple(&String::from_utf8(output.stdout).unwrap()).unwrap()
}

async fn crds(example: &str) -> Vec<CustomResourceDefinition> {
    generate(example, &["crds"]).await.into_iter().map(|crd| serde_json::from_value(crd).unwrap()).collect()
}

/// The control plane of these tests, with the kind of the example. The owner of each session is another.
pub(crate) async fn cluster() -> &'static ControlPlane {
    let cluster = ControlPlane::shared_with_controller_manager().await;
    cluster.install_crds(&crds(ENTITIES).await).await;
    cluster
}

/// Starts `dev` as the administrator.
pub(crate) fn start(cluster: &ControlPlane, example: &str, owner: &str, arguments: &[&str]) -> Dev {
    Dev::start(example, &cluster.kubeconfig_path(), owner, arguments)
}

pub(crate) fn entities(cluster: &ControlPlane, namespace: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("demo.example", "v1", "Entity");
    Api::namespaced_with(cluster.admin(), namespace, &ApiResource::from_gvk_with_plural(&kind, "entities"))
}

pub(crate) fn entity(username: &str) -> DynamicObject {
    let spec = json!({ "username": username });
    let object =
        json!({ "apiVersion": "demo.example/v1", "kind": "Entity", "metadata": { "name": "e" }, "spec": spec });
    serde_json::from_value(object).unwrap()
}

/// The answer of the API server to an object, which it does not keep; its message where it refuses it.
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

/// Names of the configurations of sessions of this person.
pub(crate) async fn configurations(cluster: &ControlPlane, owner: &str) -> Vec<String> {
    let all = ListParams::default();
    let validating = Api::<ValidatingWebhookConfiguration>::all(cluster.admin()).list(&all).await.unwrap();
    let mutating = Api::<MutatingWebhookConfiguration>::all(cluster.admin()).list(&all).await.unwrap();
    let names =
        validating.iter().map(kube::ResourceExt::name_any).chain(mutating.iter().map(kube::ResourceExt::name_any));
    names.filter(|name| name.contains(&format!("-dev-{owner}-"))).collect()
}
