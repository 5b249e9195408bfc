//! Bad objects: stored when the schema was looser, or met by a converter that panics.

use futures::StreamExt as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchParams};
use kube::core::WatchEvent;
use portcullis::conversion::{Convert, ConverterFn, PROBLEM, Version};
use portcullis_testing::ControlPlane;
use serde_json::{Value, json};

use super::fixture::{Home, PATIENCE};
use super::kinds::{flagged, panicking, strict};

/// The kind, with these stored in `v1` before its schema was what it is now.
pub(crate) async fn stored_before<H: Version>(
    cluster: &'static ControlPlane,
    convert: Convert<H>,
    crd: CustomResourceDefinition,
    objects: &[Value],
) -> Home {
    let mut home = Home::unconverted(cluster, convert, loose(&crd)).await;
    for members in objects {
        let person: DynamicObject = serde_json::from_value(home.object("v1", members)).unwrap();
        home.api("v1").create(&PostParams::default(), &person).await.unwrap();
    }
    home.serve().await;
    home.replace(crd);
    home.convert().await;
    home
}

/// The same CRD, with a schema that takes anything.
fn loose(crd: &CustomResourceDefinition) -> CustomResourceDefinition {
    let mut crd = crd.clone();
    for version in &mut crd.spec.versions {
        let anything = json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
        version.schema = Some(serde_json::from_value(anything).unwrap());
    }
    crd
}

pub(crate) fn person(name: &str, spec: Value) -> Value {
    json!({ "metadata": { "name": name }, "spec": spec })
}

// Issue 14: one invalid object, and watches of its kind failed in the whole cluster.
#[tokio::test]
async fn a_bad_object_does_not_hide_others_from_lists_and_watches() {
    let objects = [
        person("a-good", json!({ "name": "Ada Lovelace" })),
        person("b-bad", json!({ "name": { "secret": "value" }, "notes": "kept" })),
        person("c-good", json!({ "name": "Grace Hopper" })),
    ];
    let home = stored_before(ControlPlane::shared().await, flagged::convert(), flagged::crd("v1"), &objects).await;
    for version in ["v2", "v3"] {
        let list = home.api(version).list(&ListParams::default()).await.unwrap();
        let names: Vec<_> = list.items.iter().map(|object| object.metadata.name.as_deref().unwrap()).collect();
        assert_eq!(names, ["a-good", "b-bad", "c-good"], "{version}");
        for object in &list.items {
            let problem = object.metadata.annotations.as_ref().and_then(|annotations| annotations.get(PROBLEM));
            if object.metadata.name.as_deref() == Some("b-bad") {
                let problem = problem.unwrap();
                assert!(problem.contains("spec.name") && !problem.contains("value"), "{problem}");
            } else {
                assert_eq!(problem, None);
            }
        }
    }
    assert!(home.counted(&["portcullis_conversion_objects_total", r#"outcome="flagged""#, r#"to="v3""#]) > 0);

    let api = home.api("v3");
    let mut events = std::pin::pin!(api.watch(&WatchParams::default(), "0").await.unwrap());
    let mut seen = Vec::new();
    while seen.len() < 3 {
        match tokio::time::timeout(PATIENCE, events.next()).await.unwrap().unwrap().unwrap() {
            WatchEvent::Added(object) => seen.push(object.metadata.name.unwrap()),
            WatchEvent::Bookmark(_) => {}
            other => panic!("{other:?}"),
        }
    }
    seen.sort();
    assert_eq!(seen, ["a-good", "b-bad", "c-good"]);

    // Fixed in the stored version, it converts as the others do.
    let mend = Patch::Merge(json!({ "spec": { "name": "Mary" } }));
    home.api("v1").patch("b-bad", &PatchParams::default(), &mend).await.unwrap();
    let mended = home.api("v3").get("b-bad").await.unwrap();
    assert_eq!(mended.data["spec"], json!({ "first": "Mary", "notes": "kept" }));
    assert_eq!(mended.metadata.annotations, None);
}

#[tokio::test]
async fn a_failed_review_names_the_bad_object_and_the_path() {
    let objects = [
        person("a-good", json!({ "name": "Ada Lovelace" })),
        person("b-bad", json!({ "name": { "secret": "value" } })),
    ];
    let home = stored_before(
        ControlPlane::shared().await,
        strict::convert().fail_on_bad_objects(),
        strict::crd("v1"),
        &objects,
    )
    .await;
    let api = home.api("v3");
    let problem = api.get("b-bad").await.unwrap_err().to_string();
    for words in ["object 0 of 1", &format!("{}/b-bad", home.namespace), "spec.name"] {
        assert!(problem.contains(words), "{words}: {problem}");
    }
    assert!(!problem.contains("secret") && !problem.contains("value\""), "{problem}");
    assert!(home.counted(&["portcullis_conversion_objects_total", r#"outcome="failed""#]) > 0);
    assert_eq!(api.get("a-good").await.unwrap().data["spec"]["first"], "Ada");
    assert!(api.list(&ListParams::default().limit(10)).await.is_err());
    // In the version in which it is stored it can go.
    home.api("v1").delete("b-bad", &DeleteParams::default()).await.unwrap();
    let listed = || async { api.list(&ListParams::default()).await.ok() };
    let list = portcullis_testing::wait_until("lists to work again", PATIENCE, listed).await;
    assert_eq!(list.items.len(), 1);
}

#[derive(Debug, thiserror::Error)]
#[error("{0:?} is refused, and nobody may read that in the object")]
struct NotANick(String);

/// Refuses one name, as a closure over state does.
fn v1_to_v3(refused: &'static str) -> impl ConverterFn<panicking::v1::Person, panicking::v3::Person> {
    move |old: panicking::v1::Person| {
        if old.spec.name == refused {
            return Err(NotANick(old.spec.name));
        }
        Ok(panicking::v1_to_v3(old))
    }
}

// Issue 13: a panic in a converter closed the connection, and all that users saw was "EOF".
#[tokio::test]
async fn a_converter_that_panics_is_not_seen_as_eof() {
    use panicking::v3;
    let convert = Convert::<v3::Person>::hub()
        .spoke(panicking::v2_to_v3, panicking::v3_to_v2)
        .spoke(v1_to_v3("fail"), panicking::v3_to_v1);
    let home = Home::new(convert, panicking::crd("v1")).await;
    let api = home.api("v1");
    for (name, whole) in [("calm", "Ada Lovelace"), ("lost", "fail"), ("wild", "panic")] {
        api.create(&PostParams::default(), &home.person("v1", name, json!({ "name": whole }))).await.unwrap();
    }
    let list = home.api("v3").list(&ListParams::default()).await.unwrap();
    assert_eq!(list.items.len(), 3);
    assert_eq!(list.items[0].data["spec"]["last"], "Lovelace");
    // So it is with one that returns an error.
    for (bad, how) in list.items[1..].iter().zip(["failed", "panicked"]) {
        let problem = &bad.metadata.annotations.as_ref().unwrap()[PROBLEM];
        assert_eq!(problem, &format!(".: the converter from v1 to v3 {how}"));
        // It can be edited, and then it is converted.
        let calmed = Patch::Merge(json!({ "spec": { "name": "Wild Bill" } }));
        let name = bad.metadata.name.as_deref().unwrap();
        api.patch(name, &PatchParams::default(), &calmed).await.unwrap();
        let read = tokio::time::timeout(PATIENCE, home.api("v3").get(name)).await.unwrap().unwrap();
        assert_eq!(read.data["spec"], json!({ "first": "Wild", "last": "Bill" }));
    }
}
