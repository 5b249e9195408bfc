//! Objects that do not read as the version they are in, and converters that fail or panic. Issues 13, 14 and 15 of
//! docs/src/reference/issues.md: one bad object must not hide the others, nor block deletion and garbage collection.

use portcullis_convert::{BoxError, Engine, Hub, PROBLEM};
use serde_json::{Value, json};

use crate::kinds::entity::{self, engine, entity, v1, v3};
use crate::kinds::nasty;
use crate::{bare, convert, convert_text, read, stash};

fn flagged(engine: &Engine, object: &Value, version: &str) -> (Value, String) {
    let converted = convert_text(engine, &object.to_string(), version);
    let problem = converted.problem.clone().unwrap_or_else(|| panic!("not flagged: {}", converted.object));
    let converted = read(&converted);
    assert_eq!(converted["metadata"]["annotations"][PROBLEM], problem.to_string());
    (converted, problem.to_string())
}

#[test]
fn a_bad_object_is_converted_partly_and_flagged_without_values() {
    let cases = [
        (json!({ "name": 5, "a": 1 }), "spec.name: invalid type: integer, expected a string (read as v1)"),
        (json!({ "name": null }), "spec.name: invalid type: null, expected a string (read as v1)"),
        (json!({ "name": { "s3cret": "s3cret" } }), "spec.name: invalid type: map, expected a string (read as v1)"),
        (json!({}), "spec: missing field `name` (read as v1)"),
        (json!("s3cret, expected nothing"), "spec: invalid type: string, expected struct EntitySpec (read as v1)"),
    ];
    for (spec, message) in cases {
        let bad = entity("v1", spec.clone());
        let (converted, problem) = flagged(&engine(), &bad, "v3");
        assert_eq!(problem, message);
        assert_eq!(converted["apiVersion"], "demo.example/v3");
        assert_eq!(converted["spec"], spec);
        assert_eq!(converted["metadata"]["name"], "ada");
    }
    let mut bad = entity("v1", Value::Null);
    bad.as_object_mut().unwrap().remove("spec");
    assert_eq!(flagged(&engine(), &bad, "v3").1, ".: missing field `spec` (read as v1)");
}

#[test]
fn a_bad_object_comes_back_as_it_was_whatever_the_way() {
    let bad = entity("v1", json!({ "name": 5, "list": [1, { "a": null }] }));
    for way in [&["v3"][..], &["v2"], &["v3", "v2"], &["v2", "v3"], &["v3", "v2", "v3"], &["v2", "v2", "v3"]] {
        let mut object = bad.clone();
        for version in way {
            object = read(&convert_text(&engine(), &object.to_string(), version));
        }
        assert_eq!(convert(&engine(), &object, "v1"), bad, "by {way:?}, last as {object}");
    }
}

#[test]
fn a_flagged_object_is_flagged_once() {
    let bad = entity("v1", json!({ "name": 5 }));
    let (once, _) = flagged(&engine(), &bad, "v3");
    let back = convert(&engine(), &once, "v1");
    assert_eq!(flagged(&engine(), &back, "v3").0, once);
    // Asked again for the version that it is in: the bytes as they are.
    let text = once.to_string();
    assert_eq!(convert_text(&engine(), &text, "v3").object, text);
}

// The API server prunes what the schema of a version does not know and adds its defaults, before anyone sees it.
#[test]
fn a_bad_object_survives_pruning_and_defaulting_in_between() {
    let engine = nasty::engine();
    let bad = json!({
        "apiVersion": "demo.example/v1", "kind": "Nasty", "metadata": { "name": "n" },
        "spec": { "address": "h:1", "host": "h", "replicas": "three", "zone": "z" }, "status": { "ready": true },
    });
    let (mut v2, _) = flagged(&engine, &bad, "v2");
    v2["spec"].as_object_mut().unwrap().retain(|key, _| key == "host" || key == "replicas");
    v2["status"] = json!({});
    v2["metadata"]["finalizers"] = json!([]);
    let back = convert(&engine, &v2, "v1");
    assert_eq!((&back["spec"], &back["status"]), (&bad["spec"], &bad["status"]));
    assert_eq!(back["metadata"]["finalizers"], json!([]));

    // One that reads as the other version by chance: nothing in it is known there.
    let bad = json!({
        "apiVersion": "demo.example/v1", "kind": "Nasty", "metadata": { "name": "n" },
        "spec": { "address": 5, "host": "h", "zone": "z" },
    });
    let (mut v2, _) = flagged(&engine, &bad, "v2");
    v2["spec"].as_object_mut().unwrap().retain(|key, _| key == "host");
    v2["spec"]["replicas"] = json!(2);
    assert_eq!(convert(&engine, &v2, "v1"), bad);
}

#[test]
fn a_correction_of_a_bad_object_in_another_version_is_kept() {
    let bad = entity("v1", json!({ "name": 5 }));
    let (mut v3, _) = flagged(&engine(), &bad, "v3");
    v3["spec"] = json!({ "firstname": "Ada", "lastname": "King" });
    assert_eq!(convert(&engine(), &v3, "v1"), entity("v1", json!({ "name": "Ada King" })));
    // And not flagged any longer, wherever it goes.
    let v2 = convert(&engine(), &v3, "v2");
    assert_eq!(v2["spec"], v3["spec"]);
    assert_eq!(bare(&convert(&engine(), &v2, "v1")), entity("v1", json!({ "name": "Ada King" })));
}

fn panicking() -> Engine {
    fn panic_on<T>(name: &str, value: T) -> T {
        assert!(name != "s3cret", "{name} is not to be converted");
        value
    }
    Hub::<v3::Entity>::new()
        .spoke(
            |v1: v1::Entity| panic_on(&v1.spec.name.clone(), entity::v1_to_v3(v1)),
            |v3: v3::Entity| panic_on(&v3.spec.lastname.clone(), entity::v3_to_v1(v3)),
        )
        .spoke(entity::v2_to_v3, |v3: v3::Entity| panic_on(&v3.spec.firstname.clone(), entity::v3_to_v2(v3)))
        .build()
        .unwrap()
}

// Issue 13 of docs/src/reference/issues.md: users saw EOF.
#[test]
fn a_panic_of_a_converter_is_not_a_lost_answer() {
    let bad = entity("v1", json!({ "name": "s3cret" }));
    let (v3, problem) = flagged(&panicking(), &bad, "v3");
    assert_eq!(problem, ".: the converter from v1 to v3 panicked");
    assert_eq!(v3["spec"], bad["spec"]);
    assert_eq!(convert(&panicking(), &v3, "v1"), bad);

    // On the second edge, and on the way back only.
    let (v2, problem) = flagged(&panicking(), &entity("v1", json!({ "name": "s3cret x" })), "v2");
    assert_eq!(problem, ".: the converter from v3 to v2 panicked");
    assert_eq!(convert(&panicking(), &v2, "v1"), entity("v1", json!({ "name": "s3cret x" })));
    let one_way = entity("v1", json!({ "name": "a s3cret" }));
    let v3 = convert(&panicking(), &one_way, "v3");
    assert_eq!(v3["spec"], json!({ "firstname": "a", "lastname": "s3cret" }));
    assert_eq!(convert(&panicking(), &v3, "v1"), one_way);
}

#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not to be converted")]
struct NotToBe(String, #[source] std::num::ParseIntError);

fn failing() -> Engine {
    fn fail_on(name: &str) -> Result<(), NotToBe> {
        match name.strip_prefix("s3cret").map(str::parse::<u8>) {
            Some(Err(source)) => Err(NotToBe(name.to_owned(), source)),
            Some(Ok(_)) | None => Ok(()),
        }
    }
    let to_hub = |v1: v1::Entity| -> Result<_, BoxError> {
        fail_on(&v1.spec.name)?;
        Ok(entity::v1_to_v3(v1))
    };
    let from_hub = |v3: v3::Entity| fail_on(&v3.spec.lastname).map(|()| entity::v3_to_v1(v3));
    Hub::<v3::Entity>::new().spoke(to_hub, from_hub).spoke(entity::v2_to_v3, entity::v3_to_v2).build().unwrap()
}

#[test]
fn a_converters_error_flags_the_object_and_stays_out_of_it() {
    let bad = entity("v1", json!({ "name": "s3cret" }));
    let converted = convert_text(&failing(), &bad.to_string(), "v3");
    let problem = converted.problem.clone().unwrap();
    assert_eq!(problem.to_string(), ".: the converter from v1 to v3 failed");
    let error = r#""s3cret" is not to be converted: cannot parse integer from empty string"#;
    assert_eq!(problem.error.as_deref(), Some(error));
    let (v3, told) = flagged(&failing(), &bad, "v3");
    assert_eq!(told, problem.to_string());
    assert_eq!((&v3["spec"], convert(&failing(), &v3, "v1")), (&bad["spec"], bad.clone()));

    // One that fails on the way back alone makes no bad object: what it would have said is kept.
    let one_way = entity("v1", json!({ "name": "a s3cret" }));
    let v3 = convert(&failing(), &one_way, "v3");
    assert_eq!(v3["spec"], json!({ "firstname": "a", "lastname": "s3cret" }));
    assert_eq!(convert(&failing(), &v3, "v1"), one_way);
    assert_eq!(convert(&failing(), &entity("v1", json!({ "name": "s3cret7" })), "v3")["spec"]["firstname"], "s3cret7");
}

#[test]
fn nothing_larger_than_the_limit_is_kept_and_the_object_says_so() {
    let engine = nasty::engine();
    let mut v2 = json!({
        "apiVersion": "demo.example/v2", "kind": "Nasty", "metadata": { "name": "n" },
        "spec": { "host": "h", "replicas": 1, "mode": "x".repeat(70_000), "signed": 1 },
    });
    let (v1, problem) = flagged(&engine, &v2, "v1");
    assert_eq!(problem, ".: annotations have no room for data of v2 that v1 does not know: it is left out");
    assert_eq!(stash(&v1), json!({}));
    assert!(v1.to_string().len() < 1000, "{v1}");
    v2["spec"]["mode"] = json!("x".repeat(60_000));
    let v1 = convert(&engine, &v2, "v1");
    assert_eq!(convert(&engine, &v1, "v2"), v2);
}

#[test]
fn what_is_too_deep_or_no_number_goes_over_as_text() {
    let deep = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    for (extra, message) in [
        (deep(200), ".: nested deeper than 127"),
        (deep(100_000), ".: nested deeper than 127"),
        ("1e400".to_owned(), "spec: holds a number that is out of range"),
    ] {
        let object = format!(
            r#"{{"apiVersion":"demo.example/v1","kind":"Entity","metadata":{{"name":"a"}},"spec":{{"name":"A B","x":{extra}}}}}"#
        );
        let converted = convert_text(&engine(), &object, "v3");
        assert_eq!(converted.problem.unwrap().to_string(), message);
        assert!(converted.object.contains(&extra), "{message}");
        let back = convert_text(&engine(), &converted.object, "v1").object;
        assert!(back.contains(&format!(r#""spec":{{"name":"A B","x":{extra}}}"#)), "{message}");
    }
    // As deep as is followed, in what is known and in what is not.
    for name in ["extra", "unknown"] {
        let object = format!(
            r#"{{"apiVersion":"demo.example/v2","kind":"Nasty","metadata":{{"name":"a"}},"spec":{{"host":"h","replicas":1,"mode":"Auto","{name}":{}}}}}"#,
            deep(125)
        );
        let object: Value = serde_json::from_str(&object).unwrap();
        for version in ["v1", "v3"] {
            let there = convert(&nasty::engine(), &object, version);
            assert_eq!(convert(&nasty::engine(), &there, "v2"), object, "{name} {version}");
        }
    }
}
