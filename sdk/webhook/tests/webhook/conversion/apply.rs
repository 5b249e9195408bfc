//! `kubectl apply`, server-side and client-side, in each version: nothing is lost on the way to etcd and back.

use std::collections::BTreeMap;

use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::fixture::{Home, annotations};
use super::kinds::{alone, applied, patched};

const VERSIONS: [&str; 3] = ["v1", "v2", "v3"];
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Ada, in the words of each version. `extra` has members that no type knows.
fn spec(version: &str, notes: &str) -> Value {
    let mut spec = match version {
        "v1" => json!({ "name": "Ada Lovelace" }),
        "v2" => json!({ "firstName": "Ada", "lastName": "Lovelace" }),
        _ => json!({ "first": "Ada", "last": "Lovelace" }),
    };
    spec["extra"] =
        json!({ "unknown": { "list": [1, 2.5, { "deep": null }], "big": 9_007_199_254_740_993_i64 }, "π": "é" });
    spec["notes"] = json!(notes);
    spec
}

/// Owner, fields and version of each entry of `metadata.managedFields`.
fn managers(object: &DynamicObject) -> BTreeMap<(String, String), (String, Value)> {
    let entries = object.metadata.managed_fields.iter().flatten();
    entries
        .map(|entry| {
            let (manager, operation) = (entry.manager.clone().unwrap(), entry.operation.clone().unwrap());
            let fields = serde_json::to_value(&entry.fields_v1).unwrap();
            ((manager, operation), (entry.api_version.clone().unwrap(), fields))
        })
        .collect()
}

#[tokio::test]
async fn server_side_apply_in_each_version_loses_nothing() {
    // Stored in a spoke, so that every way leads over the hub.
    let home = Home::new(applied::convert(), applied::crd("v1")).await;
    for version in VERSIONS {
        let name = format!("applied-in-{version}");
        let mut first = home.object(version, &json!({
            "metadata": {
                "name": name, "labels": { "app": "people" }, "annotations": { "note": "with \"quotes\" and\nlines" },
                "finalizers": ["demo.example/keep"],
                "ownerReferences": [{ "apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "00000000-0000-0000-0000-000000000001" }],
            },
            "spec": spec(version, "first"),
        }));
        if version == "v3" {
            first["spec"]["nicknames"] = json!(["Countess", "Ada"]);
        }
        let (api, one) = (home.api(version), PatchParams::apply("one"));
        let made = api.patch(&name, &one, &Patch::Apply(&first)).await.unwrap();
        assert_eq!(made.data["spec"], first["spec"]);

        // Another manager, in each of the other versions in turn, adds what is its own.
        for other in VERSIONS.into_iter().filter(|other| *other != version) {
            let more = home.object(other, &json!({ "metadata": { "name": name, "labels": { other: "seen" } } }));
            home.api(other).patch(&name, &PatchParams::apply(other), &Patch::Apply(&more)).await.unwrap();
        }
        let before = managers(&made);
        for reading in VERSIONS {
            let read = home.api(reading).get(&name).await.unwrap();
            assert_eq!(read.types.as_ref().unwrap().api_version, format!("{}/{reading}", home.group()));
            let mut expected = spec(reading, "first");
            if version == "v3" && reading == "v3" {
                expected["nicknames"] = json!(["Countess", "Ada"]);
            }
            assert_eq!(read.data["spec"], expected, "{version} read in {reading}");
            let labels = read.metadata.labels.clone().unwrap();
            assert_eq!(labels.len(), 3, "{labels:?}");
            assert_eq!(annotations(&read), [("note".to_owned(), "with \"quotes\" and\nlines".to_owned())].into());
            assert_eq!(read.metadata.finalizers, made.metadata.finalizers);
            assert_eq!(read.metadata.owner_references, made.metadata.owner_references);
            assert_eq!(read.metadata.uid, made.metadata.uid);
            let after = managers(&read);
            assert_eq!(after.len(), 3, "{after:?}");
            for (manager, owned) in &before {
                assert_eq!(after.get(manager), Some(owned), "what a manager owns stays its own");
            }
        }
        // All of them again: nothing changes, and there is no conflict.
        let version_now = api.get(&name).await.unwrap().metadata.resource_version;
        api.patch(&name, &one, &Patch::Apply(&first)).await.unwrap();
        for other in VERSIONS.into_iter().filter(|other| *other != version) {
            let more = home.object(other, &json!({ "metadata": { "name": name, "labels": { other: "seen" } } }));
            home.api(other).patch(&name, &PatchParams::apply(other), &Patch::Apply(&more)).await.unwrap();
        }
        let again = api.get(&name).await.unwrap();
        assert_eq!(again.metadata.resource_version, version_now, "an apply of what is there writes nothing");

        // A field that its manager leaves out is removed, in any version; the rest stays.
        let mut less = first.clone();
        less["spec"]["extra"] = json!({ "π": "é" });
        let read = api.patch(&name, &one, &Patch::Apply(&less)).await.unwrap();
        assert_eq!(read.data["spec"], less["spec"]);
        for reading in VERSIONS {
            let read = home.api(reading).get(&name).await.unwrap();
            assert_eq!(read.data["spec"]["extra"], json!({ "π": "é" }), "{version} read in {reading}");
            assert_eq!(read.metadata.labels.as_ref().unwrap().len(), 3);
        }
        let none = json!({ "metadata": { "finalizers": null } });
        api.patch(&name, &PatchParams::default(), &Patch::Merge(none)).await.unwrap();
    }
}

// The API server takes the fields away that the manager owned in the other version, which is all of `spec`, and converts
// what is left, with the managed fields of the object.
#[tokio::test]
async fn a_manager_that_changes_its_version_makes_no_bad_object() {
    let home = Home::new(alone::convert(), alone::crd("v1")).await;
    let manager = PatchParams::apply("gitops");
    let steps = [
        ("v1", json!({ "name": "Ada Lovelace" }), json!({ "first": "Ada", "last": "Lovelace" })),
        // One field of `v1` is two of `v3`: the one that is left out keeps its value, until one version owns both.
        ("v3", json!({ "first": "Grace" }), json!({ "first": "Grace", "last": "Lovelace" })),
        ("v3", json!({ "first": "Grace", "last": "Hopper" }), json!({ "first": "Grace", "last": "Hopper" })),
        ("v3", json!({ "first": "Grace" }), json!({ "first": "Grace" })),
        ("v1", json!({ "name": "Ada King", "notes": "n" }), json!({ "first": "Ada", "last": "King", "notes": "n" })),
        ("v2", json!({ "firstName": "Ada", "lastName": "King" }), json!({ "first": "Ada", "last": "King" })),
    ];
    for metadata in [json!({ "name": "alone" }), json!({ "name": "labelled", "labels": { "app": "people" } })] {
        for (version, spec, expected) in &steps {
            let name = metadata["name"].as_str().unwrap();
            let object = home.object(version, &json!({ "metadata": metadata, "spec": spec }));
            home.api(version).patch(name, &manager, &Patch::Apply(&object)).await.unwrap();
            let read = home.api("v3").get(name).await.unwrap();
            assert_eq!(read.data["spec"], *expected, "after {spec} in {version}");
            assert_eq!(annotations(&read), BTreeMap::new());
            let flagged = home.counted(&["portcullis_conversion_objects_total", r#"outcome="flagged""#]);
            assert_eq!(flagged, 0, "after {spec} in {version}");
        }
    }
}

/// `kubectl apply` without `--server-side` sends at first the object, with itself in an annotation; then a merge patch
/// of the changes.
#[tokio::test]
async fn client_side_apply_in_each_version_loses_nothing() {
    let home = Home::new(patched::convert(), patched::crd("v2")).await;
    let kubectl = || PatchParams { field_manager: Some("kubectl-client-side-apply".into()), ..PatchParams::default() };
    for version in VERSIONS {
        let (api, name) = (home.api(version), format!("applied-in-{version}"));
        let document = |notes: &str| {
            let mut spec = spec(version, notes);
            if version == "v3" {
                spec["nicknames"] = json!(["Countess"]);
            }
            home.object(version, &json!({ "metadata": { "name": name, "labels": { "app": "people" } }, "spec": spec }))
        };
        let mut made = document("first");
        made["metadata"]["annotations"] = json!({ LAST_APPLIED: document("first").to_string() });
        let create = PostParams { field_manager: kubectl().field_manager, ..PostParams::default() };
        api.create(&create, &serde_json::from_value(made).unwrap()).await.unwrap();

        for (step, other) in VERSIONS.into_iter().enumerate() {
            // Another client writes in another version…
            let label = json!({ "metadata": { "labels": { "step": step.to_string() } } });
            home.api(other).patch(&name, &PatchParams::default(), &Patch::Merge(label)).await.unwrap();
            // … and it is applied again, with one change.
            let live = api.get(&name).await.unwrap();
            let last: Value = serde_json::from_str(&annotations(&live)[LAST_APPLIED]).unwrap();
            assert_eq!(last["apiVersion"], format!("{}/{version}", home.group()));
            assert_eq!(live.data["spec"], last["spec"], "what is there is what was applied");
            let notes = format!("change {step}");
            let patch = json!({
                "metadata": { "annotations": { LAST_APPLIED: document(&notes).to_string() } }, "spec": { "notes": notes },
            });
            let changed = api.patch(&name, &kubectl(), &Patch::Merge(patch)).await.unwrap();
            assert_eq!(changed.data["spec"], document(&notes)["spec"]);
            for reading in VERSIONS {
                let read = home.api(reading).get(&name).await.unwrap();
                let mut expected = spec(reading, &notes);
                if version == "v3" && reading == "v3" {
                    expected["nicknames"] = json!(["Countess"]);
                }
                assert_eq!(read.data["spec"], expected, "{version} read in {reading}");
                assert_eq!(annotations(&read), annotations(&changed));
                assert_eq!(read.metadata.labels, changed.metadata.labels);
                assert_eq!(managers(&read).len(), 2, "{:?}", managers(&read));
            }
        }
    }
}

// Issue 16, through the API server: what was kept for a version that could not say it comes back, but not over an edit
// that was made since.
#[tokio::test]
async fn a_stashed_value_does_not_come_back_over_a_newer_edit() {
    let home = Home::new(super::kinds::kept::convert(), super::kinds::kept::crd("v1")).await;
    let (old, new) = (home.api("v1"), home.api("v3"));
    let spec = json!({ "first": "Ada", "last": "Lovelace", "nicknames": ["Countess"] });
    new.create(&PostParams::default(), &home.person("v3", "ada", spec)).await.unwrap();
    let edit = Patch::Merge(json!({ "spec": { "name": "Ada King" } }));
    old.patch("ada", &PatchParams::default(), &edit).await.unwrap();
    let read = new.get("ada").await.unwrap();
    assert_eq!(read.data["spec"], json!({ "first": "Ada", "last": "King", "nicknames": ["Countess"] }));
    assert_eq!(annotations(&read), BTreeMap::new(), "what was kept is not seen where it is restored");
    let none = Patch::Merge(json!({ "spec": { "nicknames": null } }));
    new.patch("ada", &PatchParams::default(), &none).await.unwrap();
    old.patch("ada", &PatchParams::default(), &Patch::Merge(json!({ "spec": { "notes": "n" } }))).await.unwrap();
    let read = new.get("ada").await.unwrap();
    assert_eq!(read.data["spec"], json!({ "first": "Ada", "last": "King", "notes": "n" }));
}
