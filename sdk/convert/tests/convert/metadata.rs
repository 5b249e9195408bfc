//! Metadata is the engine's: as it came, whatever converters do to theirs.

use portcullis_convert::{ConvertError, Hub, PROBLEM, STASH};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::kinds::entity::{self, engine, v1, v3};
use crate::{convert, convert_text, read};

/// In an order, with spaces and with members that no type writes.
const METADATA: &str = r#"{ "zz":{"new":"in a Kubernetes to come"},"name":"ada","namespace":"demo","uid":"u","labels":{"b":"1","a":"\u00e9"},"generation":9223372036854775807,
  "managedFields":[{"manager":"m","fieldsV1":{"f:spec":{".":{},"k:{\"a\":\"}\"}":{}}}}],"ownerReferences":[{"kind":"X","new":1}],"annotations":{"k":"v\n"},"finalizers":["f"]}"#;

fn object(version: &str, metadata: &str, spec: &str) -> String {
    format!(r#" {{ "kind" : "Entity", "spec" : {spec} ,"apiVersion":"demo.example/{version}","metadata":{metadata}}} "#)
}

#[test]
fn no_byte_of_the_metadata_is_changed_on_the_fast_way() {
    for (from, spec, to) in [
        ("v1", r#"{"name":"A B"}"#, "v3"),
        ("v3", r#"{"firstname":"a","lastname":"b"}"#, "v1"),
        ("v1", r#"{"name":"A B"}"#, "v2"),
    ] {
        let converted = convert_text(&engine(), &object(from, METADATA, spec), to);
        assert!(converted.object.contains(&format!(r#""metadata":{METADATA},"#)), "{}", converted.object);
        assert_eq!((&*converted.name, &*converted.namespace), ("ada", "demo"));
        assert_eq!((&*converted.from, &*converted.to), (from, to));
    }
}

#[test]
fn only_the_engines_own_annotations_change_on_the_careful_way() {
    // The name without a space cannot be said in v3 without being kept.
    let there = convert_text(&engine(), &object("v1", METADATA, r#"{"name":"Cher","unknown":1}"#), "v3");
    let (before, after) = METADATA.split_once(r#""annotations":{"k":"v\n"}"#).unwrap();
    for part in before.trim_start_matches("{ ").split(",\n  ").chain(after.trim_end_matches('}').split(",\n  ")) {
        assert!(there.object.contains(part), "{part} in {}", there.object);
    }
    let read: Value = serde_json::from_str(&there.object).unwrap();
    assert!(read["metadata"]["annotations"][STASH].is_string());
    let back: Value = serde_json::from_str(&convert_text(&engine(), &there.object, "v1").object).unwrap();
    assert_eq!(back, serde_json::from_str::<Value>(&object("v1", METADATA, r#"{"name":"Cher","unknown":1}"#)).unwrap());
}

#[test]
fn annotations_that_were_not_there_are_not_left_behind() {
    for metadata in [json!({ "name": "n" }), json!({ "name": "n", "annotations": { "a": "b" } }), json!({})] {
        let v1 = json!({
            "apiVersion": "demo.example/v1", "kind": "Entity", "metadata": metadata, "spec": { "name": "Cher" },
        });
        let v3 = convert(&engine(), &v1, "v3");
        assert!(v3["metadata"]["annotations"][STASH].is_string());
        assert_eq!(convert(&engine(), &v3, "v1"), v1);
    }
}

#[test]
fn converters_see_no_managed_fields_and_change_no_metadata() {
    let check = |object: &kube::core::ObjectMeta| {
        assert_eq!(object.name.as_deref(), Some("ada"));
        assert_eq!(object.labels.as_ref().unwrap()["b"], "1");
        assert_eq!(object.managed_fields, None);
        assert!(object.annotations.iter().flatten().all(|(key, _)| key != STASH && key != PROBLEM));
    };
    let engine = Hub::<v3::Entity>::new()
        .spoke(
            move |mut v1: v1::Entity| {
                check(&v1.metadata);
                v1.metadata.labels = None;
                entity::v1_to_v3(v1)
            },
            move |v3: v3::Entity| {
                check(&v3.metadata);
                let mut v1 = entity::v3_to_v1(v3);
                v1.metadata.name = Some("another".into());
                v1
            },
        )
        .build()
        .unwrap();
    for name in ["A B", "Cher"] {
        let there = convert_text(&engine, &object("v1", METADATA, &json!({ "name": name }).to_string()), "v3");
        assert_eq!(there.problem, None);
        assert!(there.object.contains(r#""labels":{"b":"1","a":"\u00e9"}"#));
        let back = convert_text(&engine, &there.object, "v1");
        assert_eq!(back.problem, None);
        assert!(back.object.contains(r#""name":"ada""#));
    }
}

#[test]
fn the_version_that_an_object_is_in_already_gives_its_bytes() {
    let text = object("v1", METADATA, r#"{"name":  5, "name": 6}"#);
    let converted = convert_text(&engine(), &text, "v1");
    assert_eq!((converted.object.as_str(), converted.problem), (text.trim(), None));
}

#[test]
fn of_members_that_are_there_twice_the_last_counts() {
    let text = r#"{"apiVersion":"x/v9","kind":"Entity","apiVersion":"demo.example/v1","spec":{"name":"no"},
        "metadata":{"name":"a"},"metadata":{"name":"b","name":"c"},"spec":{"name":"no","name":"A B","x":1,"x":2}}"#;
    let converted = convert_text(&engine(), text, "v3");
    assert_eq!((&*converted.name, &converted.problem), ("c", &None));
    let object: Value = serde_json::from_str(&converted.object).unwrap();
    assert_eq!(object["spec"], json!({ "firstname": "A", "lastname": "B", "x": 2 }));
    let without = text.replace(r#""metadata":{"name":"b","name":"c"}"#, r#""metadata":null"#);
    let converted = convert_text(&engine(), &without, "v3");
    assert_eq!((&*converted.name, &read(&converted)["metadata"]["name"]), ("", &Value::Null));
}

#[test]
fn what_cannot_be_answered_says_which_object_and_why() {
    let convert = |object: &str, version: &str| {
        let raw: &RawValue = serde_json::from_str(object).unwrap();
        engine().convert(raw, version).unwrap_err()
    };
    for (text, version, message) in [
        ("5", "demo.example/v1", "object without members that end; send a Kubernetes object"),
        ("{}", "demo.example/v1", "object without apiVersion; send a Kubernetes object"),
        (r#"{"metadata":5}"#, "demo.example/v1", "object without metadata; send a Kubernetes object"),
        (r#"{"metadata":{}}"#, "demo.example/v1", "object without apiVersion; send a Kubernetes object"),
        (
            &object("v9", METADATA, "{}"),
            "demo.example/v1",
            "object demo/ada: version v9 of Entity has no converters; it is not one of v3, v1, v2",
        ),
        (
            &object("v1", METADATA, "{}"),
            "demo.example/v9",
            "object demo/ada: version v9 of Entity has no converters; it is not one of v3, v1, v2",
        ),
        (
            &object("v1", METADATA, "{}"),
            "other.example/v1",
            "object demo/ada is other.example/v1 Entity, and this converts demo.example/* Entity; send it to the webhook of its kind",
        ),
        (
            &object("v1", METADATA, "{}").replace("Entity", "Other"),
            "demo.example/v1",
            "object demo/ada is demo.example/v1 Other, and this converts demo.example/* Entity; send it to the webhook of its kind",
        ),
    ] {
        assert_eq!(convert(text, version).to_string(), message);
    }
    assert!(matches!(convert("[]", "demo.example/v1"), ConvertError::Incomplete { .. }));
}

#[test]
fn of_annotations_that_are_there_twice_the_last_count() {
    let metadata = r#"{"name":"a","annotations":{"old":"1"},"annotations":null}"#;
    let there = convert_text(&engine(), &object("v1", metadata, r#"{"name":"Cher"}"#), "v3");
    let annotations = serde_json::from_str::<Value>(&there.object).unwrap()["metadata"]["annotations"].clone();
    assert_eq!(annotations.as_object().unwrap().keys().collect::<Vec<_>>(), [STASH]);
}
