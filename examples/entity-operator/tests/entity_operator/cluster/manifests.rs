//! The manifests of the README, applied as a user would.

use kube::api::{Patch, PatchParams};
use portcullis_testing::wait_until;
use serde_json::{Value, json};

use crate::cluster::installation::{Installation, PATIENCE};

fn manifest(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

#[tokio::test]
async fn the_manifests_do_what_the_readme_says() {
    let home = Installation::new().await;
    let (ada, grace, plato, forbidden) = (
        manifest(include_str!("../../../manifests/ada.yaml")),
        manifest(include_str!("../../../manifests/grace.yaml")),
        manifest(include_str!("../../../manifests/plato.yaml")),
        manifest(include_str!("../../../manifests/forbidden.yaml")),
    );
    let kubectl = PatchParams::apply("kubectl");
    let apply = async |version: &str, manifest: &Value| {
        let name = manifest["metadata"]["name"].as_str().unwrap();
        home.entities(version).patch(name, &kubectl, &Patch::Apply(manifest)).await
    };
    apply("v1", &ada).await.unwrap();
    apply("v3", &grace).await.unwrap();
    assert_eq!(apply("v1", &plato).await.unwrap().data["spec"]["username"], "random overwritten");
    let refused = apply("v2", &forbidden).await.unwrap_err().to_string();
    assert!(refused.contains("name may not be 'forbidden'."), "{refused}");

    assert_eq!(home.spec("v3", "ada").await, json!({"firstname": "Ada", "lastname": "Lovelace", "username": "ada"}));
    assert_eq!(home.spec("v1", "grace").await, json!({"name": "Grace Brewster Hopper", "username": "grace"}));
    assert_eq!(home.spec("v2", "plato").await["lastname"], "");

    // Applied again, when the controller has said what it has to say, nothing is written.
    let first = wait_until("the status", PATIENCE, || async {
        let ada = home.entities("v1").get("ada").await.ok()?;
        (ada.data["status"]["fullName"] == "Ada Lovelace").then_some(ada)
    })
    .await;
    let again = apply("v1", &ada).await.unwrap();
    assert_eq!(again.metadata.resource_version, first.metadata.resource_version);
    assert_eq!(again.metadata.managed_fields, first.metadata.managed_fields);
}
