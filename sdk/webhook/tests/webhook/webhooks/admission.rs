//! Decisions as users of the API server see them.

use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use super::gate::Gate;
use crate::fixture::webhooks;

async fn gate() -> Gate {
    // `strict` decides as `username` does, and either could answer first.
    let gate = Gate::open(
        webhooks(),
        |webhook| {
            if webhook.name.starts_with("strict") {
                webhook.object_selector =
                    Some(serde_json::from_value(json!({"matchLabels": {"strict": "yes"}})).unwrap());
            }
        },
        "overwrite",
    );
    let gate = gate.await;
    // The two configurations come into force one after the other.
    portcullis_testing::wait_until("the validating webhooks", std::time::Duration::from_mins(1), || async {
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let forbidden = gate.object("probe", json!({"username": "forbidden"}));
        gate.api().create(&dry, &forbidden).await.err()
    })
    .await;
    gate
}

/// K1: code, message and causes as the handler said them.
#[tokio::test]
async fn a_denial_is_shown_with_its_code_and_its_fields() {
    let gate = gate().await;
    let refused = gate.create("a", json!({"username": "forbidden"})).await.unwrap_err();
    assert_eq!((&refused["code"], &refused["reason"]), (&json!(422), &json!("Invalid")));
    assert_eq!(
        refused["message"],
        "admission webhook \"username.entities.demo.example\" denied the request: name may not be 'forbidden'."
    );

    let refused = gate.create("a", json!({"username": "odd"})).await.unwrap_err();
    assert_eq!(refused["code"], 422);
    assert_eq!(
        refused["details"],
        json!({"name": "a", "group": "demo.example", "kind": "Entity", "causes": [
            {"field": "spec.username", "message": "is odd", "reason": "FieldValueInvalid"},
            {"field": "spec.parts", "message": "an odd one needs parts", "reason": "FieldValueRequired"},
        ]})
    );

    gate.create("a", json!({"username": "fine"})).await.unwrap();
    let refused = gate.change("a", json!({"spec": {"username": "forbidden"}})).await.unwrap_err();
    assert_eq!((&refused["code"], &refused["reason"]), (&json!(400), &json!("BadRequest")));
    assert_eq!(refused["details"]["causes"][0]["field"], "spec.username");
}

#[tokio::test]
async fn an_object_that_does_not_decode_is_refused_with_the_field() {
    let gate = gate().await;
    // The schema keeps unknown members of spec, such as `parts`.
    let refused =
        gate.create("a", json!({"username": "fine", "parts": [{"name": "x"}, {"name": 7}]})).await.unwrap_err();
    assert_eq!(refused["code"], 400);
    assert_eq!(refused["details"]["causes"][0]["field"], "spec.parts[1].name");
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("invalid type: integer `7`, expected a string"), "{message}");
}

/// K2
#[tokio::test]
async fn a_patch_is_applied_and_what_the_type_does_not_know_is_kept() {
    let gate = gate().await;
    let made = gate
        .create(
            "a",
            json!({"username": "sidecar", "new": {"x": [1, {"y": 0.1}]},
            "parts": [{"name": "app", "new": 1, "image": null}, {"name": "db", "image": "d", "new": [2]}]}),
        )
        .await
        .unwrap();
    assert_eq!(
        made.data["spec"],
        json!({"username": "sidecar", "new": {"x": [1, {"y": 0.1}]}, "parts": [
            {"name": "proxy", "image": "p"},
            {"name": "app", "new": 1, "image": "default"},
            {"name": "db", "image": "d", "new": [2]},
        ]})
    );
    assert_eq!(made.metadata.labels.unwrap()["demo.example/made"], "edited");
    assert_eq!(
        gate.create("b", json!({"username": "overwrite"})).await.unwrap().data["spec"]["username"],
        "random overwritten"
    );
}

#[tokio::test]
async fn warnings_reach_the_client() {
    let gate = gate().await;
    let body = serde_json::to_vec(&gate.object("a", json!({"username": "old"}))).unwrap();
    let request = http::Request::post(format!("/apis/demo.example/v1/namespaces/{}/entities", gate.namespace))
        .header("content-type", "application/json")
        .body(kube::client::Body::from(body))
        .unwrap();
    let response = gate.client.send(request).await.unwrap();
    assert_eq!(response.status(), 201);
    let warnings: Vec<_> = response.headers().get_all("warning").iter().map(|w| w.to_str().unwrap()).collect();
    assert_eq!(warnings, [r#"299 - "spec.username 'old' is deprecated use another""#]);
}

#[tokio::test]
async fn a_handler_knows_a_dry_run() {
    let gate = gate().await;
    let object = gate.object("a", json!({"username": "dry"}));
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let Err(kube::Error::Api(refused)) = gate.api().create(&dry, &object).await else { panic!("it was not seen") };
    assert_eq!(refused.code, 409);
    gate.create("a", json!({"username": "dry"})).await.unwrap();
}

/// K1, K2: the mutating webhook sees the deletion too, and a patch from it would be an internal error.
#[tokio::test]
async fn a_deletion_is_judged_by_the_object_the_user_and_the_options() {
    let gate = gate().await;
    gate.create("a", json!({"username": "fine"})).await.unwrap();
    gate.change("a", json!({"metadata": {"annotations": {"protected": ""}}})).await.unwrap();
    let refused = gate.delete("a", &DeleteParams::default()).await.unwrap_err();
    assert_eq!((&refused["code"], &refused["reason"]), (&json!(403), &json!("Forbidden")));
    assert!(refused["message"].as_str().unwrap().ends_with("admin may not delete it"), "{refused}");
    gate.delete("a", &DeleteParams::default().grace_period(0)).await.unwrap();
    assert!(gate.api().get_opt("a").await.unwrap().is_none());
}

/// D9: only what is stored says that an object is going; a client that claims so walks past no handler.
#[tokio::test]
async fn claiming_a_deletion_does_not_pass_the_gate() {
    let gate = gate().await;
    let claim = |name: &str, username: &str| {
        let mut object = gate.object(name, json!({"username": username}));
        object.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-11-21T00:00:00Z")).unwrap());
        object
    };
    let (api, apply) = (gate.api(), PatchParams::apply("test").force());
    for made in [
        api.create(&PostParams::default(), &claim("a", "forbidden")).await,
        api.patch("a", &apply, &Patch::Apply(claim("a", "forbidden"))).await,
    ] {
        let refused = made.expect_err("it went past the webhook").to_string();
        assert!(refused.contains("name may not be 'forbidden'"), "{refused}");
    }
    let made = api.patch("b", &apply, &Patch::Apply(claim("b", "overwrite"))).await.unwrap();
    assert_eq!(made.data["spec"]["username"], "random overwritten");
}
