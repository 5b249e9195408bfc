//! Edits between two conversions: what was kept must not overwrite them, nor come back where its parent is gone.
//! Issue 16 of docs/src/reference/issues.md (cluster-api #9375, #3923, #4655; cluster-api-provider-openstack #1508).

use serde_json::{Value, json};

use crate::kinds::nasty;
use crate::{convert, stash};

fn hub() -> Value {
    json!({
        "apiVersion": "demo.example/v2", "kind": "Nasty",
        "metadata": { "name": "n", "namespace": "demo", "labels": { "a": "b" } },
        "spec": {
            "host": "h", "port": 80, "replicas": 3, "mode": "Manual", "note": null,
            "labels": { "a/b": "1", "~": "2" },
            "ports": [
                { "name": "a", "port": 1, "protocol": "Sctp", "targetPort": "web" },
                { "name": "b", "port": 2, "protocol": "Tcp", "targetPort": 8080 },
            ],
            "steps": [
                { "run": "one", "weight": 0.1, "env": { "A": "1" } },
                { "run": "two", "weight": 0.2 },
            ],
            "placement": { "zone": "z", "weight": 7 },
            "source": { "Image": { "name": "i", "digest": "d" } },
            "signed": i64::MIN, "unsigned": u64::MAX,
        },
        "status": { "phase": "Failed", "conditions": [{ "type": "Ready", "status": "False" }] },
    })
}

fn at<'v>(value: &'v Value, pointer: &str) -> &'v Value {
    value.pointer(pointer).unwrap_or(&Value::Null)
}

fn remove(object: &mut Value, pointer: &str) {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    match object.pointer_mut(parent) {
        Some(Value::Object(members)) => drop(members.remove(&key.replace("~1", "/").replace("~0", "~"))),
        Some(Value::Array(elements)) => elements.truncate(key.parse().unwrap()),
        _ => {}
    }
}

/// A case's name, its edit of the spoke, and the values of the hub at some paths afterwards.
type Case = (&'static str, fn(&mut Value), Vec<(&'static str, Value)>);

fn check(version: &str, cases: &[Case]) {
    for (what, edit, expected) in cases {
        let mut spoke = convert(&nasty::engine(), &hub(), version);
        edit(&mut spoke);
        let after = convert(&nasty::engine(), &spoke, "v2");
        let mut untouched = hub();
        for (pointer, value) in expected {
            assert_eq!(at(&after, pointer), value, "{what}: {pointer} of {after}");
        }
        // Everything else is as it was.
        let mut rest = after.clone();
        for object in [&mut untouched, &mut rest] {
            object["metadata"].as_object_mut().unwrap().remove("annotations");
            for (pointer, _) in expected {
                remove(object, pointer);
            }
        }
        assert_eq!(rest, untouched, "{what}");
    }
}

#[test]
fn a_newer_edit_on_a_spoke_is_not_overwritten_by_what_was_kept() {
    check(
        "v1",
        &[
            ("a renamed member", |v1| v1["spec"]["enabled"] = json!(false), vec![("/spec/mode", json!("Off"))]),
            (
                "a merged member",
                |v1| v1["spec"]["address"] = json!("g:81"),
                vec![("/spec/host", json!("g")), ("/spec/port", json!(81))],
            ),
            ("half of a merged member", |v1| v1["spec"]["address"] = json!("g:80"), vec![("/spec/host", json!("g"))]),
            ("a moved member", |v1| v1["spec"]["zone"] = json!("y"), vec![("/spec/placement/zone", json!("y"))]),
            ("a status", |v1| v1["status"]["ready"] = json!(true), vec![("/status/phase", json!("Ready"))]),
            ("null becomes a value", |v1| v1["spec"]["note"] = json!("n"), vec![("/spec/note", json!("n"))]),
            (
                "an element with a name",
                |v1| v1["spec"]["ports"][1]["port"] = json!(3),
                vec![("/spec/ports/1/port", json!(3))],
            ),
            (
                "one more element",
                |v1| {
                    v1["spec"]["steps"].as_array_mut().unwrap().push(json!("three"));
                },
                vec![("/spec/steps/2", json!({ "run": "three" }))],
            ),
            (
                "a key with a slash",
                |v1| v1["spec"]["tags"][0]["value"] = json!("9"),
                vec![("/spec/labels/a~1b", json!("9"))],
            ),
        ],
    );
    check(
        "v3",
        &[
            ("a moved member", |v3| v3["spec"]["endpoint"]["port"] = json!(81), vec![("/spec/port", json!(81))]),
            ("a map's key", |v3| v3["spec"]["labels"]["~"] = json!("9"), vec![("/spec/labels/~0", json!("9"))]),
            ("an enum", |v3| v3["spec"]["source"] = json!("Scratch"), vec![("/spec/source", json!("Scratch"))]),
        ],
    );
}

#[test]
fn nothing_is_restored_into_a_parent_that_was_deleted_meanwhile() {
    check(
        "v1",
        &[
            (
                "the parent of a weight",
                |v1| {
                    v1["spec"].as_object_mut().unwrap().remove("zone");
                },
                vec![("/spec/placement", Value::Null)],
            ),
            (
                "a status with conditions",
                |v1| {
                    v1.as_object_mut().unwrap().remove("status");
                },
                vec![("/status", Value::Null)],
            ),
            ("all elements", |v1| v1["spec"]["ports"] = json!([]), vec![("/spec/ports", json!([]))]),
        ],
    );
}

#[test]
fn a_deleted_or_replaced_element_leaves_nothing_to_others() {
    check(
        "v1",
        &[
            (
                "the first is deleted",
                |v1| {
                    v1["spec"]["ports"].as_array_mut().unwrap().remove(0);
                },
                vec![("/spec/ports", json!([{ "name": "b", "port": 2, "protocol": "Tcp", "targetPort": 8080 }]))],
            ),
            (
                "they change places",
                |v1| v1["spec"]["ports"].as_array_mut().unwrap().reverse(),
                vec![
                    ("/spec/ports/0/targetPort", json!(8080)),
                    ("/spec/ports/1/targetPort", json!("web")),
                    (
                        "/spec/ports",
                        json!([
                            { "name": "b", "port": 2, "protocol": "Tcp", "targetPort": 8080 },
                            { "name": "a", "port": 1, "protocol": "Sctp", "targetPort": "web" },
                        ]),
                    ),
                ],
            ),
            (
                "another one takes the place",
                |v1| v1["spec"]["ports"][0] = json!({ "name": "c", "port": 9 }),
                vec![("/spec/ports/0", json!({ "name": "c", "port": 9 }))],
            ),
        ],
    );
}

#[test]
fn what_contradicts_the_object_is_not_restored_and_the_rest_is() {
    // v3's title is the hub's note or else its host. With another title the note comes back neither as null nor old.
    let engine = nasty::engine();
    let mut v3 = convert(&engine, &hub(), "v3");
    assert_eq!(v3["spec"]["title"], "h");
    v3["spec"]["title"] = json!("other");
    let after = convert(&engine, &v3, "v2");
    assert_eq!(after["spec"]["note"], "other");
    for kept in ["mode", "ports", "steps", "placement", "signed", "unsigned", "replicas"] {
        assert_eq!(after["spec"][kept], hub()["spec"][kept], "{kept}");
    }
    assert_eq!(after["status"], hub()["status"]);
}

#[test]
fn what_was_kept_goes_along_through_versions_it_is_not_of() {
    let engine = nasty::engine();
    let mut v3 = hub();
    v3["apiVersion"] = json!("demo.example/v3");
    v3["spec"] = json!({ "endpoint": { "host": "h", "tls": true }, "title": "h" });
    v3.as_object_mut().unwrap().remove("status");
    let v2 = convert(&engine, &v3, "v2");
    assert_eq!(
        stash(&v2),
        json!({ "v3": { "o": { "spec": { "endpoint": { "tls": true } } }, "r": { "spec": { "endpoint": {} } } } })
    );
    let v1 = convert(&engine, &v2, "v1");
    assert_eq!(stash(&v1)["v3"], stash(&v2)["v3"]);
    let mut foreign = v1.clone();
    let mut entries = stash(&v1);
    entries["v0"] = json!({ "o": {}, "r": {}, "of": "an operator to come" });
    foreign["metadata"]["annotations"][portcullis_convert::STASH] = json!(entries.to_string());
    let back = convert(&engine, &foreign, "v3");
    assert_eq!(back["spec"], v3["spec"]);
    assert_eq!(stash(&back)["v0"]["of"], "an operator to come");
}
