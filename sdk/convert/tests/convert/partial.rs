//! Objects that lack fields, as server-side apply converts them: what one field manager owns.

use serde_json::{Value, json};

use crate::kinds::entity::{engine, entity};
use crate::kinds::nasty;
use crate::{convert_text, read, stash};

#[test]
fn a_partial_object_converts_the_fields_that_it_has() {
    let nasty = |version: &str, spec: Value| {
        json!({
            "apiVersion": format!("demo.example/{version}"), "kind": "Nasty", "metadata": { "name": "n" }, "spec": spec,
        })
    };
    for (engine, object, version, spec) in [
        (engine(), entity("v1", json!({})), "v3", json!({})),
        (engine(), entity("v3", json!({ "firstname": "Ada" })), "v1", json!({ "name": "Ada " })),
        (engine(), entity("v2", json!({ "lastname": "King" })), "v3", json!({ "lastname": "King" })),
        (engine(), entity("v2", json!({ "lastname": "King" })), "v1", json!({ "name": " King" })),
        (nasty::engine(), nasty("v2", json!({ "replicas": 3 })), "v1", json!({ "replicas": 3 })),
        (nasty::engine(), nasty("v2", json!({ "placement": { "zone": "z" } })), "v1", json!({ "zone": "z" })),
    ] {
        let converted = convert_text(&engine, &object.to_string(), version);
        assert!(converted.partial && converted.problem.is_some(), "{object}");
        let there = read(&converted);
        assert_eq!(there["spec"], spec, "{object} to {version}");
        let from = object["apiVersion"].as_str().unwrap().rsplit('/').next().unwrap();
        let back = read(&convert_text(&engine, &there.to_string(), from));
        for (key, value) in object["spec"].as_object().unwrap() {
            assert_eq!(back["spec"][key], *value, "back from {there}");
        }
    }
}

#[test]
fn an_object_has_a_stash_only_if_it_would_lose_something() {
    let object = r#"{"apiVersion":"demo.example/v2","kind":"Entity","spec":{"lastname":"King"}}"#;
    for object in [object.to_owned(), object.replace(r#""spec""#, r#""metadata":null,"spec""#)] {
        let there = read(&convert_text(&engine(), &object, "v3"));
        assert_eq!((&there["spec"], there["metadata"].is_object()), (&json!({ "lastname": "King" }), true));
        assert_eq!(stash(&there), json!({}));
    }
    let whole = r#"{"apiVersion":"demo.example/v1","kind":"Entity","spec":{"name":"A B"}}"#;
    assert_eq!(convert_text(&engine(), whole, "v3").object.matches(r#""metadata":{}"#).count(), 1);
}

// The API server adds the resource version to what it has read from storage, and removes it from what goes there.
#[test]
fn an_object_that_comes_from_storage_is_no_part_of_one() {
    let managed = json!([{ "manager": "m" }]);
    let stored = json!({ "name": "ada", "managedFields": managed, "resourceVersion": "" });
    let pruned = json!({ "name": "ada", "managedFields": managed, "resourceVersion": "7" });
    let labelled = json!({ "name": "ada", "labels": { "a": "b" } });
    // Too large for placeholders.
    let large = json!({ "notes": "n".repeat(300_000) });
    for (metadata, spec, partial) in [
        (&stored, Some(json!({})), false),
        (&stored, None, false),
        (&pruned, Some(json!({})), true),
        (&pruned, None, true),
        (&pruned, Some(large.clone()), true),
        (&pruned, Some(json!({ "name": 5 })), false),
        (&labelled, None, true),
        (&labelled, Some(large), true),
        (&labelled, Some(json!({ "name": 5 })), false),
    ] {
        let mut object = entity("v1", json!(spec));
        object["metadata"] = metadata.clone();
        if spec.is_none() {
            object.as_object_mut().unwrap().remove("spec");
        }
        let converted = convert_text(&engine(), &object.to_string(), "v3");
        assert!(converted.problem.is_some());
        assert_eq!(converted.partial, partial, "{object:.200}");
    }
}
