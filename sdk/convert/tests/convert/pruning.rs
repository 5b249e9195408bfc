//! The API server prunes every object by the schema of its version, also behind a conversion: members that only one of
//! the schemas keeps must come back all the same.

use portcullis_convert::INCOMPLETE;
use serde_json::{Value, json};

use crate::kinds::{entity, nasty};
use crate::{convert, convert_text, read, stash};

fn v1() -> Value {
    entity::entity("v1", json!({ "name": "A B", "new": { "a": [1, 2] }, "newer": 2 }))
}

/// Prunes an entity as the schemas of the types would.
fn prune(mut object: Value) -> Value {
    let keeps = |key: &str| ["name", "firstname", "lastname"].contains(&key);
    object["spec"].as_object_mut().unwrap().retain(|key, _| keeps(key));
    object
}

#[test]
fn a_member_that_only_one_schema_keeps_survives_pruning() {
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
    // An API server that prunes would have removed `new` as well, so a user removed this member.
    v3["spec"].as_object_mut().unwrap().remove("newer");
    let back = convert(&engine, &v3, "v1");
    assert_eq!(back["spec"], json!({ "name": "A B", "new": { "a": [3] } }));
    assert_eq!(stash(&back), json!({}));
}

// Where both schemas keep them, they come back; where one prunes them, they do not, and the engine does not know which
// it is.
#[test]
fn unknown_members_without_room_make_an_object_incomplete() {
    let engine = entity::engine();
    let v1 = entity::entity("v1", json!({ "name": "A B", "new": "x".repeat(70_000) }));
    let v3 = read(&convert_text(&engine, &v1.to_string(), "v3"));
    assert_eq!((stash(&v3), &v3["metadata"]["labels"][INCOMPLETE]), (json!({}), &json!("v1")));
    assert_eq!(read(&convert_text(&engine, &v3.to_string(), "v1"))["spec"], v1["spec"]);
}
