//! The operator as a user meets it: its binary, installed as `generate` says, on a real API server.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kettle_operator::v1::{Kettle, Spec};
use kettle_operator::{rules, v1};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use portcullis_testing::admission::Reviews;
use portcullis_testing::{ControlPlane, OperatorBinary, wait_for_object};

const PATIENCE: Duration = Duration::from_mins(2);

fn object(message: &str) -> Kettle {
    Kettle::new(
        "first",
        Spec {
            message: message.to_owned(),
        },
    )
}

/// In this process, in milliseconds.
#[tokio::test]
async fn a_blank_message_is_refused() {
    let reviews = Reviews::new(&rules::webhooks()).unwrap();
    let answer = reviews.create(&object(" ")).validate("rules").await;
    answer
        .assert_denied(422, "there is no message")
        .assert_cause("spec.message");
}

#[tokio::test]
async fn a_message_becomes_a_config_map_and_follows_its_changes() {
    let cluster = ControlPlane::shared().await;
    let _operator = OperatorBinary::new(env!("CARGO_BIN_EXE_kettle-operator"))
        .install(cluster)
        .await;
    let namespace = cluster.namespace("demo").await;
    let objects: Api<v1::Kettle> = Api::namespaced(cluster.admin(), &namespace);
    let maps: Api<ConfigMap> = Api::namespaced(cluster.admin(), &namespace);

    let refused = objects
        .create(&PostParams::default(), &object(" "))
        .await
        .unwrap_err();
    assert!(
        refused.to_string().contains("there is no message"),
        "{refused}"
    );

    objects
        .create(&PostParams::default(), &object("hello"))
        .await
        .unwrap();
    let says = |map: &ConfigMap, message: &str| {
        map.data
            .as_ref()
            .is_some_and(|data| data["message"] == message)
    };
    wait_for_object(&maps, "first", "the message", PATIENCE, |map| {
        says(map, "hello")
    })
    .await;
    let change = Patch::Merge(serde_json::json!({"spec": {"message": "good night"}}));
    objects
        .patch("first", &PatchParams::default(), &change)
        .await
        .unwrap();
    wait_for_object(&maps, "first", "the new message", PATIENCE, |map| {
        says(map, "good night")
    })
    .await;
    let is_ready = |object: &Kettle| {
        let conditions = object
            .status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().any(|it| {
            it.type_ == "Ready" && it.status == "True" && it.observed_generation == Some(2)
        })
    };
    wait_for_object(&objects, "first", "Ready", PATIENCE, is_ready).await;
}
