//! Objects whose annotations leave no room for what a version cannot hold: they break no list, and no write in that
//! version takes from them what it left out.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use portcullis::conversion::{INCOMPLETE, STASH};
use portcullis_testing::wait_until;
use serde_json::{Value, json};

use super::fixture::{Home, PATIENCE};
use super::kinds::{full, fuller, labelled};

const LIMIT: usize = 256 * 1024;
const KEPT_OUT: &str = "update or delete it in v3, or make its annotations smaller there";

/// A person of v3 with a nickname, and annotations that leave so many bytes.
fn countess(home: &Home, name: &str, room: usize) -> DynamicObject {
    let annotations = json!({ "note": "x".repeat(LIMIT - 4 - room) });
    let object = home.object(
        "v3",
        &json!({
            "metadata": { "name": name, "annotations": annotations },
            "spec": { "first": "Ada", "last": "Lovelace", "nicknames": ["Countess"] },
        }),
    );
    serde_json::from_value(object).unwrap()
}

fn merge(patch: Value) -> Patch<Value> {
    Patch::Merge(patch)
}

#[tokio::test]
async fn full_annotations_hide_no_object_from_a_list() {
    let home = Home::new(full::convert(), full::crd("v3")).await;
    let rooms = [0, 20, 31, 60, 100, 150, 1000];
    for room in rooms {
        let person = countess(&home, &format!("room-{room:04}"), room);
        home.api("v3").create(&PostParams::default(), &person).await.unwrap();
    }
    for version in ["v1", "v2", "v3"] {
        for params in [ListParams::default(), ListParams::default().limit(500)] {
            let list = home.api(version).list(&params).await.unwrap();
            assert_eq!(list.items.len(), rooms.len(), "{version}");
            for person in &list.items {
                let ObjectMeta { name, labels, annotations, .. } = &person.metadata;
                let incomplete = labels.as_ref().is_some_and(|labels| labels.contains_key(INCOMPLETE));
                let kept = annotations.as_ref().unwrap().contains_key(STASH);
                assert_eq!(incomplete, version != "v3" && !kept, "{version} {name:?}");
            }
        }
        let read = home.api(version).get("room-0020").await.unwrap();
        assert_eq!(read.metadata.labels.is_some(), version != "v3");
    }
    let old = home.api("v1");
    assert!(old.get("room-1000").await.unwrap().metadata.annotations.unwrap().contains_key(STASH));
    assert!(home.counted(&["portcullis_conversion_objects_total", r#"outcome="flagged""#, r#"to="v1""#]) > 0);
}

#[tokio::test]
#[allow(clippy::disallowed_methods, reason = "what clients do that replace whole objects")]
async fn an_old_version_stores_nothing_without_what_it_left_out() {
    let home = Home::new(fuller::convert(), fuller::crd("v3")).await;
    let (old, new) = (home.api("v1"), home.api("v3"));
    new.create(&PostParams::default(), &countess(&home, "ada", 20)).await.unwrap();
    let stored = new.get("ada").await.unwrap();
    let read = old.get("ada").await.unwrap();
    let mut unlabelled = read.clone();
    unlabelled.metadata.labels = None;
    unlabelled.data["spec"]["notes"] = json!("replaced");
    let (plain, forced) = (PatchParams::default(), PatchParams::apply("somebody").force());
    let applied = home.object("v1", &json!({ "metadata": { "name": "ada" }, "spec": { "name": "Ada King" } }));
    let status = merge(json!({ "status": { "seen": 1 } }));
    let answers = [
        ("an edit", old.patch("ada", &plain, &merge(json!({ "spec": { "notes": "n" } }))).await.map(drop)),
        (
            "a label",
            old.patch("ada", &plain, &merge(json!({ "metadata": { "labels": { "a": "b" } } }))).await.map(drop),
        ),
        ("no label", old.patch("ada", &plain, &merge(json!({ "metadata": { "labels": null } }))).await.map(drop)),
        ("an apply", old.patch("ada", &forced, &Patch::Apply(applied)).await.map(drop)),
        ("a status", old.patch_status("ada", &plain, &status).await.map(drop)),
        ("a replacement", old.replace("ada", &PostParams::default(), &read).await.map(drop)),
        ("one without the label", old.replace("ada", &PostParams::default(), &unlabelled).await.map(drop)),
        ("a deletion", old.delete("ada", &DeleteParams::default()).await.map(drop)),
    ];
    for (what, answer) in answers {
        let error = answer.expect_err(what).to_string();
        assert!(error.contains(KEPT_OUT) && error.contains(&format!("{}/ada", home.namespace)), "{what}: {error}");
    }
    assert_eq!(new.get("ada").await.unwrap(), stored, "nothing has changed");
    assert!(home.counted(&["portcullis_conversion_objects_total", r#"outcome="refused""#, r#"from="v1""#]) > 0);

    // In the version that is stored everything goes.
    let keep = json!({ "metadata": { "finalizers": ["demo.example/keep"] }, "spec": { "notes": "n" } });
    new.patch("ada", &plain, &merge(keep)).await.unwrap();
    new.patch_status("ada", &plain, &status).await.unwrap();
    new.delete("ada", &DeleteParams::default()).await.unwrap();
    let left = new.get("ada").await.unwrap();
    assert_eq!((&left.data["spec"]["nicknames"], &left.data["spec"]["notes"]), (&json!(["Countess"]), &json!("n")));
    new.patch("ada", &plain, &merge(json!({ "metadata": { "finalizers": null } }))).await.unwrap();
    assert!(new.get_opt("ada").await.unwrap().is_none());

    // With smaller annotations it is like any other.
    new.create(&PostParams::default(), &countess(&home, "grace", 0)).await.unwrap();
    new.patch("grace", &plain, &merge(json!({ "metadata": { "annotations": { "note": null } } }))).await.unwrap();
    let edit = merge(json!({ "spec": { "notes": "edited" } }));
    // The API server begins with the object as its cache of v1 has it, which may be an earlier one.
    let edited = || async { old.patch("grace", &plain, &edit).await.ok() };
    let edited = wait_until("the edit in v1", PATIENCE, edited).await;
    assert_eq!(edited.metadata.labels, None);
    assert_eq!(new.get("grace").await.unwrap().data["spec"]["nicknames"], json!(["Countess"]));
}

// While objects may be stored in v1, what comes from there may be read for a list; and a user wrote the label.
#[tokio::test]
async fn a_forged_label_hides_no_object() {
    let mut home = Home::new(labelled::convert(), labelled::crd("v1")).await;
    let mut forged = home.person("v1", "forged", json!({ "name": "Ada King" }));
    let label = json!({ "labels": { INCOMPLETE: "v3" }, "annotations": { "note": "x".repeat(LIMIT - 4) } });
    forged.metadata = ObjectMeta { name: Some("forged".into()), ..serde_json::from_value(label).unwrap() };
    home.api("v1").create(&PostParams::default(), &forged).await.unwrap();
    // v1 is stored, and has no room for the nickname.
    let refused = home.api("v3").create(&PostParams::default(), &countess(&home, "full", 0)).await.unwrap_err();
    assert!(refused.to_string().contains("v1, the stored version, cannot hold"), "{refused}");
    for storage in ["v1", "v3"] {
        home.replace(labelled::crd(storage));
        home.convert().await;
        for version in ["v1", "v2", "v3"] {
            let list = home.api(version).list(&ListParams::default()).await.unwrap();
            let names: Vec<_> = list.items.into_iter().map(|person| person.metadata.name.unwrap()).collect();
            assert_eq!(names, ["forged"], "{version}, and {storage} is stored");
        }
    }
    home.api("v3").delete("forged", &DeleteParams::default()).await.unwrap();
}
