//! A kind that is served in two versions, and requests without a name or with many objects.

use std::sync::{Arc, Mutex};

use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::crd::merge_crds;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{CustomResource, CustomResourceExt};
use portcullis::webhooks::{Context, Mutate, Mutation, Validate, Verdict, Webhooks};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::gate::{Gate, status};
use crate::fixture::Entity;

#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "demo.example", version = "v1", kind = "Twin", plural = "twins", namespaced)]
struct TwinSpec {
    size: i32,
}

mod v2 {
    use super::*;
    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "demo.example", version = "v2", kind = "Twin", plural = "twins", namespaced)]
    pub(super) struct TwinSpec {
        size: i32,
    }
}

/// K1: a client of another version goes past no webhook, and its patch goes to the version that it was made for.
#[tokio::test]
async fn no_version_of_a_kind_is_a_way_past_the_webhook_of_another() {
    let judge = Validate::<Twin>::new("twins").on_update(|old: Arc<Twin>, new: Arc<Twin>, cx: Context| async move {
        let asked = cx.request_kind.map_or_else(String::new, |kind| kind.version);
        match (old.spec.size, new.spec.size) {
            (old, new) if new < old => Verdict::deny(format!("{} as {}, {old} to {new}", asked, cx.kind.version)),
            _ => Verdict::allow(),
        }
    });
    let round = Mutate::<Twin>::new("round").on_create(|mut new: Twin, _: Context| async move {
        new.spec.size = new.spec.size / 10 * 10;
        Mutation::modified(new)
    });
    let crd = merge_crds(vec![Twin::crd(), v2::Twin::crd()], "v1").unwrap();
    let gate = Gate::over(Webhooks::new().validate(judge).mutate(round), &[crd]).await;
    let kind = |version: &str| {
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("demo.example", version, "Twin"), "twins")
    };
    for (version, name) in [("v1", "a"), ("v2", "b")] {
        let twins: Api<DynamicObject> = Api::namespaced_with(gate.client.clone(), &gate.namespace, &kind(version));
        let mut twin = DynamicObject::new(name, &kind(version));
        twin.data = json!({"spec": {"size": 15}});
        let made = twins.create(&PostParams::default(), &twin).await.unwrap();
        assert_eq!(made.data["spec"]["size"], 10, "{version}");
        let smaller = Patch::Merge(json!({"spec": {"size": 9}}));
        let refused = status(&twins.patch(name, &PatchParams::default(), &smaller).await.unwrap_err());
        let said = format!("denied the request: {version} as v1, 10 to 9");
        assert!(refused["message"].as_str().unwrap().ends_with(&said), "{refused}");
    }
}

/// K1: names that the API server makes, collections that go, each by itself.
#[tokio::test]
async fn objects_without_a_name_and_collections_are_judged_one_by_one() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let judge = Validate::<Entity>::new("names")
        .on_create(|new: Arc<Entity>, cx: Context| async move {
            match &new.metadata.generate_name {
                Some(stem) => Verdict::deny(format!("{stem}: {}", cx.name == new.metadata.name)),
                None => Verdict::allow(),
            }
        })
        .on_delete(move |old: Arc<Entity>, _: Context| {
            noted.lock().unwrap().push(old.metadata.name.clone());
            async { Verdict::allow() }
        });
    let mark = Mutate::<Entity>::new("mark").on_create(|mut new: Entity, _: Context| async move {
        new.spec.username = "marked".into();
        Mutation::modified(new)
    });
    let gate = Gate::over(Webhooks::new().validate(judge).mutate(mark), &[Entity::crd()]).await;
    let mut object = gate.object("x", json!({"username": "a"}));
    object.metadata.name = None;
    object.metadata.generate_name = Some("made-".into());
    let refused = status(&gate.api().create(&PostParams::default(), &object).await.unwrap_err());
    assert!(refused["message"].as_str().unwrap().ends_with("denied the request: made-: true"), "{refused}");

    for name in ["a", "b"] {
        gate.create(name, json!({"username": name})).await.unwrap();
    }
    gate.api().delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    let mut deleted: Vec<_> = seen.lock().unwrap().drain(..).collect();
    deleted.sort();
    assert_eq!(deleted, ["a", "b"].map(|name| Some(name.to_owned())));
}
