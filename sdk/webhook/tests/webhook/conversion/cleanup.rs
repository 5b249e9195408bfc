//! Bad objects go like others: by deletion, with finalizers, with their namespace, with their owner.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Api;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use portcullis_testing::{ControlPlane, wait_until};
use serde_json::json;

use super::bad::{person, stored_before};
use super::kinds::cleaned;

/// The garbage collector looks for new kinds every half a minute.
const COLLECTED: Duration = Duration::from_mins(2);

// Issue 15: deletion, garbage collection and the end of namespaces, stopped by conversion. The namespace controller
// lists every kind there is, so this cluster has no other whose conversion is away.
#[tokio::test]
async fn a_bad_object_does_not_block_its_deletion() {
    let bad = |name: &str| person(name, json!({ "name": ["not", "a", "name"] }));
    let mut kept = bad("kept");
    kept["metadata"]["finalizers"] = json!(["demo.example/keep"]);
    let objects = [kept, bad("plain"), bad("owned"), person("good", json!({ "name": "Ada" })), bad("last")];
    let cluster = ControlPlane::shared_with_controller_manager().await;
    let home = stored_before(cluster, cleaned::convert(), cleaned::crd("v1"), &objects).await;
    let gone = |name: &'static str| {
        let api = home.api("v1");
        async move {
            wait_until(name, COLLECTED, || async { api.get_opt(name).await.unwrap().is_none().then_some(()) }).await;
        }
    };
    let api = home.api("v3");
    api.delete("plain", &DeleteParams::default()).await.unwrap();
    gone("plain").await;

    api.delete("kept", &DeleteParams::default()).await.unwrap();
    let kept = api.get("kept").await.unwrap();
    assert!(kept.metadata.deletion_timestamp.is_some());
    // A controller removes its finalizer in the version that it knows.
    let done = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    api.patch("kept", &PatchParams::default(), &done).await.unwrap();
    gone("kept").await;

    let owners: Api<ConfigMap> = Api::namespaced(home.client.clone(), &home.namespace);
    let metadata = ObjectMeta { name: Some("owner".to_owned()), ..ObjectMeta::default() };
    let owner = owners.create(&PostParams::default(), &ConfigMap { metadata, ..ConfigMap::default() }).await.unwrap();
    for name in ["owned", "good"] {
        let reference = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.metadata.uid });
        let patch = Patch::Merge(json!({ "metadata": { "ownerReferences": [reference] } }));
        // In a version that is not stored: the bad object is written as far as it goes, and stays what it is.
        api.patch(name, &PatchParams::default(), &patch).await.unwrap();
    }
    let read = home.api("v1").get("owned").await.unwrap();
    assert_eq!(read.data["spec"]["name"], json!(["not", "a", "name"]));
    owners.delete("owner", &DeleteParams::default()).await.unwrap();
    gone("owned").await;
    gone("good").await;

    let namespaces: Api<Namespace> = Api::all(home.client.clone());
    namespaces.delete(&home.namespace, &DeleteParams::default()).await.unwrap();
    let ended = || async { namespaces.get_opt(&home.namespace).await.unwrap().is_none().then_some(()) };
    wait_until("the namespace to end", COLLECTED, ended).await;
}
