//! All annotations together have a limit. Data that has no room there is left out and reported, and never stored so.

use portcullis_convert::{ConvertError, Engine, INCOMPLETE, PROBLEM, STASH};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use crate::convert_text;
use crate::kinds::nasty;

const LIMIT: usize = 256 * 1024;

/// An object of v2 with data that v1 cannot hold, and these annotations.
fn object(annotations: &Value) -> Value {
    json!({
        "apiVersion": "demo.example/v2", "kind": "Nasty", "metadata": { "name": "n", "annotations": annotations },
        "spec": { "host": "h", "replicas": 1, "mode": "Auto", "signed": 1 },
    })
}

/// The object with annotations that leave so many bytes.
fn with_room(bytes: usize) -> Value {
    object(&json!({ "note": "x".repeat(LIMIT - 4 - bytes) }))
}

/// Counts as apimachinery's `ValidateAnnotations` does.
fn size(object: &Value) -> usize {
    let annotations = object["metadata"]["annotations"].as_object();
    annotations.into_iter().flatten().map(|(key, value)| key.len() + value.as_str().unwrap().len()).sum()
}

fn converted(engine: &Engine, object: &Value, version: &str) -> Result<Value, ConvertError> {
    let converted = engine.convert(&to_raw_value(object).unwrap(), &format!("demo.example/{version}"))?;
    Ok(serde_json::from_str(&converted.object).unwrap())
}

#[test]
fn annotations_never_exceed_what_kubernetes_allows() {
    let engine = nasty::engine();
    let needed = size(&converted(&engine, &object(&json!({})), "v1").unwrap());
    assert!(needed > STASH.len());
    let escaped = json!({ "quote\"": "\"".repeat(100_000), "line": "\n\u{1}é\u{1f600}".repeat(16_000) });
    // Unknown versions are kept, and take twice the bytes of their names.
    let names = json!({ STASH: json!({ "\n".repeat(30_000): 0 }).to_string(), "note": "x".repeat(LIMIT - 62_000) });
    let rooms = [0, 1, 20, 31, needed - 1, needed, needed + 1, needed + PROBLEM.len(), 400, 1000].map(with_room);
    for object in rooms.into_iter().chain([object(&escaped), object(&names)]) {
        assert!(size(&object) <= LIMIT);
        let v1 = converted(&engine, &object, "v1").unwrap();
        assert!(size(&v1) <= LIMIT, "{} bytes of {}", size(&v1), size(&object));
        let kept =
            v1["metadata"]["annotations"].get(STASH).is_some_and(|stash| stash.as_str().unwrap().contains("signed"));
        let label = v1["metadata"]["labels"].get(INCOMPLETE).and_then(Value::as_str);
        assert_eq!(label, if kept { None } else { Some("v2") }, "{} bytes", size(&object));
        if kept {
            assert_eq!(converted(&engine, &v1, "v2").unwrap()["spec"], object["spec"]);
        }
    }
    let (full, enough) = (with_room(needed - 1), with_room(needed));
    let kept =
        |object: &Value| converted(&engine, object, "v1").unwrap()["metadata"]["annotations"].get(STASH).is_some();
    assert_eq!((kept(&full), kept(&enough)), (false, true), "and not a byte is left unused");
}

#[test]
fn an_object_without_room_is_converted_and_reported() {
    for (labels, expected) in [
        (Value::Null, json!({ INCOMPLETE: "v2" })),
        (json!({}), json!({ INCOMPLETE: "v2" })),
        (json!({ "app": "é" }), json!({ "app": "é", INCOMPLETE: "v2" })),
        (json!({ INCOMPLETE: "whatever" }), json!({ INCOMPLETE: "whatever" })),
    ] {
        let mut full = with_room(20);
        full["metadata"]["labels"] = labels;
        let v1 = convert_text(&nasty::engine(), &full.to_string(), "v1");
        let problem = v1.problem.unwrap().to_string();
        assert_eq!(problem, ".: annotations have no room for data of v2 that v1 does not know: it is left out");
        let v1: Value = serde_json::from_str(&v1.object).unwrap();
        assert_eq!(v1["metadata"]["annotations"], full["metadata"]["annotations"]);
        assert_eq!((&v1["metadata"]["labels"], &v1["spec"]["address"]), (&expected, &json!("h")));
    }
    // As before, where there is room.
    let mut small = object(&json!({}));
    small["metadata"]["labels"] = json!({ "app": "x" });
    assert_eq!(converted(&nasty::engine(), &small, "v1").unwrap()["metadata"]["labels"], json!({ "app": "x" }));
}

#[test]
fn an_incomplete_object_is_not_converted_to_be_stored() {
    let engine = nasty::engine();
    let full = with_room(0);
    let v1 = converted(&engine, &full, "v1").unwrap();
    let mut unlabelled = v1.clone();
    unlabelled["metadata"]["labels"].as_object_mut().unwrap().remove(INCOMPLETE);
    let stored = |version: &str, stored: &[&str]| {
        engine.clone().set_storage(version, stored.iter().map(|version| (*version).to_owned()));
    };
    let (mut left_out, mut no_room) = (0, 0);
    for (storage, versions, refuses_v1, refuses_v2) in [
        (None, &[][..], false, false),
        // Lists read v2, and nothing is read of v1.
        (Some("v2"), &["v2"], true, false),
        // A stored v1 may be read for a list: a user put the label there.
        (Some("v2"), &["v1", "v2"], false, false),
        (Some("v1"), &["v1"], false, true),
        (Some("v1"), &["v2", "v1"], false, false),
    ] {
        if let Some(storage) = storage {
            stored(storage, versions);
        }
        match converted(&engine, &v1, "v2") {
            Ok(v2) => assert_eq!((refuses_v1, &v2["metadata"]["labels"][INCOMPLETE]), (false, &json!("v2"))),
            Err(error) => {
                let said = "object n is incomplete in v1, as its annotations have no room for data that v1 cannot hold: \
                            update or delete it in v2, or make its annotations smaller there";
                assert_eq!((refuses_v1, error.to_string().as_str()), (true, said), "{storage:?} {versions:?}");
                left_out += 1;
            }
        }
        match converted(&engine, &full, "v1") {
            Ok(v1) => assert_eq!((refuses_v2, &v1["metadata"]["labels"][INCOMPLETE]), (false, &json!("v2"))),
            Err(error) => {
                let said = "object n has data of v2 that v1, the stored version, cannot hold, and its annotations have no \
                            room for them: make the annotations smaller";
                assert_eq!((refuses_v2, error.to_string().as_str()), (true, said), "{storage:?} {versions:?}");
                no_room += 1;
            }
        }
        // A complete object is converted in any case.
        converted(&engine, &unlabelled, "v2").unwrap();
        converted(&engine, &object(&json!({})), "v1").unwrap();
    }
    assert_eq!((left_out, no_room), (1, 1));
}

// Its text goes over, and the API server prunes it by a schema that it was not written for.
#[test]
fn an_object_too_large_to_convert_is_not_stored_converted() {
    let engine = nasty::engine();
    engine.set_storage("v2", ["v2".to_owned()]);
    let mut large = object(&json!({}));
    large["spec"]["new"] = json!(vec![0; 200_000]);
    let v1 = converted(&engine, &large, "v1").unwrap();
    assert_eq!(v1["metadata"]["labels"][INCOMPLETE], "v2");
    assert!(matches!(converted(&engine, &v1, "v2"), Err(ConvertError::LeftOut { .. })));
}
