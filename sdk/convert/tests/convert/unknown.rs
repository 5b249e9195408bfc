//! Members that the types do not know. No other SDK keeps them.

use serde_json::{Value, json};

use crate::convert;
use crate::kinds::{entity, nasty};

fn v2(spec: Value) -> Value {
    let mut v2 = json!({
        "apiVersion": "demo.example/v2", "kind": "Nasty", "metadata": { "name": "n" },
        "spec": { "host": "h", "replicas": 1, "mode": "Auto" },
    });
    for (key, value) in spec.as_object().unwrap() {
        v2["spec"][key] = value.clone();
    }
    v2
}

#[test]
fn unknown_members_are_seen_in_the_other_version_and_come_back() {
    let value = json!({ "deep": [1.5, { "er": null }], "big": u64::MAX, "tiny": 5e-324 });
    let v1 = json!({
        "apiVersion": "demo.example/v1", "kind": "Entity", "metadata": { "name": "n" },
        "spec": { "name": "A B", "new": value, "a/b~c": [] }, "data": { "top": "level" },
    });
    for version in ["v2", "v3"] {
        let there = convert(&entity::engine(), &v1, version);
        assert_eq!(
            (&there["spec"]["new"], &there["spec"]["a/b~c"], &there["data"]),
            (&value, &json!([]), &json!({ "top": "level" }))
        );
        assert_eq!(convert(&entity::engine(), &there, "v1"), v1);
    }
}

#[test]
fn unknown_members_of_elements_stay_with_their_element() {
    let engine = nasty::engine();
    let object =
        v2(json!({ "ports": [{ "name": "a", "port": 1, "new": "A" }, { "name": "b", "port": 2, "new": "B" }] }));
    let mut v1 = convert(&engine, &object, "v1");
    assert_eq!(v1["spec"]["ports"][1], json!({ "name": "b", "port": 2, "new": "B" }));
    v1["spec"]["ports"].as_array_mut().unwrap().reverse();
    let back = convert(&engine, &v1, "v2");
    assert_eq!(back["spec"]["ports"][0], json!({ "name": "b", "port": 2, "new": "B" }));

    // Where the elements become something else, they are kept until the way back.
    let object = v2(json!({ "steps": [{ "run": "a", "new": { "x": [1] } }, { "run": "b" }] }));
    let v1 = convert(&engine, &object, "v1");
    assert_eq!(v1["spec"]["steps"], json!(["a", "b"]));
    assert_eq!(convert(&engine, &v1, "v2"), object);
    // The list of v3 lacks the elements that run nothing, so no index can be trusted.
    let object = v2(json!({ "steps": [{ "run": "" }, { "run": "b", "new": 1 }] }));
    let v3 = convert(&engine, &object, "v3");
    assert_eq!(v3["spec"]["steps"], json!([{ "run": "b" }]));
    assert_eq!(convert(&engine, &v3, "v2"), object);
}

#[test]
fn an_unknown_member_does_not_turn_into_a_known_one() {
    let engine = entity::engine();
    for name in [json!("not a first name"), json!(5), Value::Null] {
        let v1 = entity::entity("v1", json!({ "name": "A B", "firstname": name }));
        let v3 = convert(&engine, &v1, "v3");
        assert_eq!(v3["spec"], json!({ "firstname": "A", "lastname": "B" }));
        assert_eq!(convert(&engine, &v3, "v1"), v1);
    }
    // Optional there, and of another type: putting it in would make an object that does not read.
    for zone in [json!("z"), json!({ "x": 1 })] {
        let object = v2(json!({ "zone": zone, "legacy": "l" }));
        let v1 = convert(&nasty::engine(), &object, "v1");
        assert_eq!((v1["spec"].get("zone"), v1["spec"].get("legacy")), (None, None));
        assert_eq!(convert(&nasty::engine(), &v1, "v2"), object);
    }
}

#[test]
fn null_and_empty_are_not_taken_for_missing() {
    for spec in [
        json!({ "ports": [] }),
        json!({ "ports": null, "labels": null, "note": null }),
        json!({ "labels": {}, "steps": [], "placement": {} }),
        json!({ "placement": { "zone": null, "weight": null } }),
        json!({ "source": { "Image": { "name": "", "digest": null, "new": [] } } }),
        json!({ "steps": [{ "run": "a", "env": {} }] }),
    ] {
        // A null that the type cannot read is another matter.
        let object = v2(spec);
        let reads = serde_json::from_value::<nasty::v2::Nasty>(object.clone()).is_ok();
        for version in ["v1", "v3"] {
            let raw = object.to_string();
            let there = crate::convert_text(&nasty::engine(), &raw, version);
            assert_eq!(there.problem.is_none(), reads, "{raw}");
            let back = crate::convert_text(&nasty::engine(), &there.object, "v2");
            assert_eq!(serde_json::from_str::<Value>(&back.object).unwrap(), object, "{}", there.object);
        }
    }
}

#[test]
fn a_deleted_unknown_member_does_not_come_back() {
    let engine = entity::engine();
    let v1 = entity::entity("v1", json!({ "name": "Cher", "new": 1, "newer": 2 }));
    let mut v3 = convert(&engine, &v1, "v3");
    v3["spec"].as_object_mut().unwrap().remove("new");
    v3["spec"]["newer"] = json!(3);
    assert_eq!(convert(&engine, &v3, "v1"), entity::entity("v1", json!({ "name": "Cher", "newer": 3 })));
}
