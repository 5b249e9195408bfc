//! The output of `generate`, applied to a cluster.

use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use portcullis_testing::ControlPlane;
use serde_json::{Value, json};

use super::process::output;

/// The objects that `generate` prints.
pub(crate) async fn generate(arguments: &[&str]) -> Vec<Value> {
    let output = output(&[&["generate"], arguments].concat()).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_saphyr::from_multiple(&String::from_utf8(output.stdout).unwrap()).unwrap()
}

/// The cluster with the operator's kind in it.
pub(crate) async fn cluster() -> &'static ControlPlane {
    let cluster = ControlPlane::shared().await;
    let crds =
        generate(&["crds"]).await.into_iter().map(|crd| serde_json::from_value(crd).unwrap()).collect::<Vec<_>>();
    cluster.install_crds(&crds).await;
    cluster
}

pub(crate) fn entities(client: Client, namespace: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("demo.example", "v1", "Entity");
    Api::namespaced_with(client, namespace, &ApiResource::from_gvk_with_plural(&kind, "entities"))
}

pub(crate) fn entity(name: &str, username: &str) -> DynamicObject {
    let object = json!({
        "apiVersion": "demo.example/v1", "kind": "Entity", "metadata": { "name": name }, "spec": { "username": username },
    });
    serde_json::from_value(object).unwrap()
}
