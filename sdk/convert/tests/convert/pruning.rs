//! The API server prunes every object by the schema of its version, also behind a conversion: members that only one of
//! the schemas keeps must come back all the same.

use portcullis_convert::INCOMPLETE;
use serde_json::{Value, json};

use crate::kinds::{entity, nasty};
use crate::{convert, convert_text, read, stash};

fn v1() -> Value {
    entity::entity("v1", json!({ "name": "A B", "new": { "a": [1, 2] }, "newer": 2 }))
}

/// What the schemas of the types leave of an entity.
fn prune(mut object: Value) -> Value {
    let keeps = |key: &str| ["name", "firstname", "lastname"].contains(&key);
    object["spec"].as_object_mut().unwrap().retain(|key, _| keeps(key));
    object
}

#[test]
fn an_unknown_member_that_only_one_schema_keeps_is_not_lost_by_pruning() {
    let engine = entity::engine();
    for version in ["v2", "v3"] {
        let there = prune(convert(&engine, &v1(), version));
        assert_eq!(convert(&engine, &there, "v1"), v1(), "by {version}");
        // Edited there, and stored in the hub on the way.
        let mut edited = there.clone();
        edited["spec"]["lastname"] = json!("C");
        let stored = prune(convert(&engine, &edited, "v3"));
        let back = convert(&engine, &stored, "v1");
        assert_eq!(back["spec"], json!({ "name": "A C", "new": { "a": [1, 2] }, "newer": 2 }), "by {version}");
    }
}

#[test]
fn an_unknown_member_of_an_element_is_not_lost_by_pruning() {
    let engine = nasty::engine();
    let object = json!({
        "apiVersion": "demo.example/v2", "kind": "Nasty", "metadata": { "name": "n" },
        "spec": {
            "host": "h", "replicas": 1, "mode": "Auto",
            "ports": [{ "name": "a", "port": 1, "new": "A" }, { "name": "b", "port": 2, "new": "B" }],
        },
    });
    let mut v1 = convert(&engine, &object, "v1");
    for port in v1["spec"]["ports"].as_array_mut().unwrap() {
        port.as_object_mut().unwrap().remove("new");
    }
    assert_eq!(convert(&engine, &v1, "v2"), object);
    v1["spec"]["ports"].as_array_mut().unwrap().remove(0);
    assert_eq!(convert(&engine, &v1, "v2")["spec"]["ports"], json!([{ "name": "b", "port": 2, "new": "B" }]));
}

#[test]
fn where_both_schemas_keep_them_edits_of_unknown_members_count() {
    let engine = entity::engine();
    let mut v3 = convert(&engine, &v1(), "v3");
    v3["spec"]["new"] = json!({ "a": [3] });
    assert_eq!(convert(&engine, &v3, "v1")["spec"], json!({ "name": "A B", "new": { "a": [3] }, "newer": 2 }));
    // What the API server leaves beside it shows that it was not the API server who removed it.
    v3["spec"].as_object_mut().unwrap().remove("newer");
    let back = convert(&engine, &v3, "v1");
    assert_eq!(back["spec"], json!({ "name": "A B", "new": { "a": [3] } }));
    assert_eq!(stash(&back), json!({}));
}

// Where both schemas keep them, they come back; where one prunes them, they do not, and nobody here knows which it is.
#[test]
fn unknown_members_without_room_make_an_object_incomplete() {
    let engine = entity::engine();
    let v1 = entity::entity("v1", json!({ "name": "A B", "new": "x".repeat(70_000) }));
    let v3 = read(&convert_text(&engine, &v1.to_string(), "v3"));
    assert_eq!((stash(&v3), &v3["metadata"]["labels"][INCOMPLETE]), (json!({}), &json!("v1")));
    assert_eq!(read(&convert_text(&engine, &v3.to_string(), "v1"))["spec"], v1["spec"]);
}

// Server-side apply converts the part of an object that one field manager owns; the API server refuses it with a member that the version lacks.
#[test]
fn a_part_of_an_object_has_only_members_that_the_other_version_has_and_comes_back() {
    let text = json!({ "type": "string" });
    let object = |properties: Value| json!({ "type": "object", "properties": properties });
    let free = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": { "a": text } });
    let resource = json!({ "type": "object", "x-kubernetes-embedded-resource": true, "properties": {} });
    for (schema, part, there) in [
        (object(json!({ "a": text })), json!({ "a": "x", "b": "y" }), json!({ "a": "x" })),
        (object(json!({ "a": text })), json!({ "a": 5 }), json!({})),
        (object(json!({ "a": text })), json!({ "a": null }), json!({ "a": null })),
        (object(json!({ "a": object(json!({})) })), json!({ "a": { "b": 1 } }), json!({ "a": {} })),
        (json!({ "type": "object", "additionalProperties": text }), json!({ "a": "x", "b": 1 }), json!({ "a": "x" })),
        (json!({ "type": "object", "additionalProperties": true }), json!({ "b": 1 }), json!({ "b": 1 })),
        (free, json!({ "a": 1, "b": { "c": 1 } }), json!({ "b": { "c": 1 } })),
        (resource, json!({ "kind": "K", "metadata": {}, "b": 1 }), json!({ "kind": "K", "metadata": {} })),
        (
            object(json!({ "a": { "type": "array", "items": object(json!({ "a": text })) } })),
            json!({ "a": [{ "a": "x", "b": 1 }, "z"] }),
            json!({ "a": [{ "a": "x" }] }),
        ),
        (object(json!({ "a": { "x-kubernetes-int-or-string": true } })), json!({ "a": 5 }), json!({ "a": 5 })),
        (object(json!({ "a": { "type": "integer" } })), json!({ "a": 5 }), json!({ "a": 5 })),
    ] {
        let engine = entity::engine();
        engine.set_schemas([("v1".to_owned(), object(json!({ "spec": schema })))]);
        // Without the names that the type requires.
        let mut part = entity::entity("v2", part);
        for metadata in [part["metadata"].clone(), json!({}), Value::Null] {
            part["metadata"] = metadata;
            let v1 = convert(&engine, &part, "v1");
            assert_eq!(v1["spec"], there, "{part}");
            let back = convert(&engine, &v1, "v2");
            let lists_are_matched = !there["a"].is_array();
            assert!(!lists_are_matched || back["spec"] == part["spec"], "{back}");
        }
    }
}

#[test]
fn a_value_of_the_wrong_type_is_seen_in_every_version_and_one_that_only_the_other_takes_is_not() {
    let schemas = |v1: &str, v2: &str| {
        [("v1", v1), ("v2", v2)].map(|(version, sort)| {
            let spec = json!({ "type": "object", "properties": { "hosts": { "type": sort } } });
            (version.to_owned(), json!({ "type": "object", "properties": { "spec": spec } }))
        })
    };
    for (v1, v2, there) in [("array", "string", json!({})), ("array", "array", json!({ "hosts": "a,b" }))] {
        let engine = entity::engine();
        engine.set_schemas(schemas(v1, v2));
        let part = entity::entity("v2", json!({ "hosts": "a,b" }));
        assert_eq!(convert(&engine, &part, "v1")["spec"], there, "{v1} {v2}");
    }
}
