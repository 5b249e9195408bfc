//! Reviews and their answers.

use portcullis_testing::Stopwatch;
use serde_json::{Value, json};

use crate::client::{ask, connect, post, send, serve_webhooks};
use crate::fixture::{entity, patch_of, review};

const UID: &str = "e911857d-c318-11e8-bbad-025000000001";

/// K1
#[tokio::test]
async fn a_verdict_reaches_the_wire() {
    let serving = serve_webhooks().await;
    let none = Value::Null;
    // (path, operation, username before and after, what is answered beside the uid)
    let cases = [
        ("CREATE", None, Some("fine"), json!({"allowed": true})),
        (
            "CREATE",
            None,
            Some("forbidden"),
            json!({"allowed": false, "status":
            {"status": "Failure", "message": "name may not be 'forbidden'.", "reason": "Invalid", "code": 422}}),
        ),
        (
            "UPDATE",
            Some("fine"),
            Some("forbidden"),
            json!({"allowed": false, "status":
            {"status": "Failure", "message": "name may not become 'forbidden'.", "reason": "BadRequest", "code": 400,
            "details": {"name": "one", "group": "demo.example", "kind": "Entity", "causes": [{"field": "spec.username",
                "message": "may not become 'forbidden'", "reason": "FieldValueInvalid"}]}}}),
        ),
        ("UPDATE", Some("forbidden"), Some("forbidden"), json!({"allowed": true})),
        ("DELETE", Some("fine"), None, json!({"allowed": true})),
        (
            "CREATE",
            None,
            Some("old"),
            json!({"allowed": true, "auditAnnotations": {"checked": "yes"},
            "warnings": ["spec.username 'old' is deprecated use another"]}),
        ),
    ];
    for (operation, old, new, mut expected) in cases {
        let object = |name: Option<&str>| name.map_or(none.clone(), |name| entity(json!({"username": name})));
        let response =
            ask(&serving, "/validate/username", &review(operation, object(new), object(old))).await.response();
        expected["uid"] = json!(UID);
        assert_eq!(response, expected, "{operation} {old:?} {new:?}");
    }
}

#[tokio::test]
async fn the_uid_comes_back_when_the_object_does_not_decode_and_the_field_is_named() {
    let serving = serve_webhooks().await;
    let good = entity(json!({"username": "a"}));
    // (what does not decode, path, operation, object, old object, field)
    let cases = [
        ("a wrong type", "/validate/username", "CREATE", entity(json!({"username": 7})), Value::Null, "spec.username"),
        (
            "a wrong element",
            "/mutate/defaults",
            "CREATE",
            entity(json!({"username": "a", "parts": [{"name": "x"}, {"name": true}]})),
            Value::Null,
            "spec.parts[1].name",
        ),
        ("a missing member", "/validate/username", "CREATE", entity(json!({})), Value::Null, "spec"),
        ("no object at all", "/validate/username", "CREATE", json!([1, 2]), Value::Null, ""),
        (
            "the stored one",
            "/validate/username",
            "UPDATE",
            good.clone(),
            entity(json!({"username": []})),
            "spec.username",
        ),
        (
            "the one that goes",
            "/validate/username",
            "DELETE",
            Value::Null,
            entity(json!({"username": {}})),
            "spec.username",
        ),
    ];
    for (what, path, operation, object, old, field) in cases {
        let response = ask(&serving, path, &review(operation, object, old)).await.response();
        assert_eq!(response["uid"], UID, "{what}");
        assert_eq!(
            (&response["allowed"], &response["status"]["code"]),
            (&json!(false), &json!(400)),
            "{what}: {response}"
        );
        let message = response["status"]["message"].as_str().unwrap();
        assert!(message.contains("does not decode as Entity") && message.contains(field), "{what}: {message}");
        if !field.is_empty() {
            assert_eq!(response["status"]["details"]["causes"][0]["field"], field, "{what}");
        }
    }
}

/// K2
#[tokio::test]
async fn a_patch_names_what_changed_and_spares_what_the_type_does_not_know() {
    let serving = serve_webhooks().await;
    let mut object = entity(json!({"username": "sidecar", "new": {"x": null},
        "parts": [{"name": "app", "new": 1}, {"name": "db", "image": "d"}]}));
    object["metadata"]["creationTimestamp"] = Value::Null;
    let response = ask(&serving, "/mutate/defaults", &review("CREATE", object, Value::Null)).await.response();
    assert_eq!(response["warnings"], json!(["the spec was completed"]));
    let mut patch = patch_of(&response).unwrap();
    // Members of one object come in the order in which serde_json keeps them, which is the build's.
    patch.as_array_mut().unwrap().sort_by_key(|edit| edit["path"].to_string());
    assert_eq!(
        patch,
        json!([
            {"op": "add", "path": "/metadata/labels", "value": {"demo.example/made": "edited"}},
            {"op": "add", "path": "/spec/parts/0/image", "value": "p"},
            {"op": "replace", "path": "/spec/parts/0/name", "value": "proxy"},
            {"op": "remove", "path": "/spec/parts/0/new"},
            {"op": "add", "path": "/spec/parts/1", "value": {"name": "app", "image": "default", "new": 1}},
        ]),
        "the default of replicas, the null and what is new in spec and parts are left as they are"
    );
}

#[tokio::test]
async fn what_was_not_changed_is_not_patched() {
    let serving = serve_webhooks().await;
    for username in ["anything", "same", "refused"] {
        let object = entity(json!({"username": username, "new": 1}));
        let response = ask(&serving, "/mutate/defaults", &review("CREATE", object, Value::Null)).await.response();
        assert!(response.get("patch").is_none() && response.get("patchType").is_none(), "{username}: {response}");
        assert_eq!(response["allowed"], username != "refused");
    }
}

/// A webhook that edited the last object writes the next one before its handler takes it away.
#[tokio::test]
async fn a_patch_does_not_depend_on_the_objects_before_it() {
    let serving = serve_webhooks().await;
    for username in ["overwrite", "overwrite", "anything", "overwrite", "same", "anything", "refused", "overwrite"] {
        let object = entity(json!({"username": username, "new": 1}));
        let response = ask(&serving, "/mutate/defaults", &review("CREATE", object, Value::Null)).await.response();
        let patch = json!([{"op": "replace", "path": "/spec/username", "value": "random overwritten"}]);
        assert_eq!(patch_of(&response), (username == "overwrite").then_some(patch), "{username}");
    }
}

/// K2: the API server refuses such a patch outside of every failure policy.
#[tokio::test]
async fn a_deletion_is_never_patched() {
    let serving = serve_webhooks().await;
    let old = entity(json!({"username": "overwrite"}));
    let response = ask(&serving, "/mutate/defaults", &review("DELETE", Value::Null, old)).await.response();
    assert_eq!(response, json!({"uid": UID, "allowed": true, "warnings": ["seen going"]}));
}

/// D9
#[tokio::test]
async fn an_update_of_the_metadata_or_status_of_an_object_being_deleted_reaches_no_handler_and_of_the_rest_it_does() {
    let serving = serve_webhooks().await;
    let going = |spec: Value| {
        let mut object = entity(spec);
        object["metadata"]["deletionTimestamp"] = json!("2026-11-21T00:00:00Z");
        object
    };
    let (fine, broken) = (going(json!({"username": "fine"})), going(json!({"username": 7})));
    let mut touched = broken.clone();
    touched["metadata"]["labels"] = json!({"a": "b"});
    touched["status"] = json!({"phase": "x"});
    // Nor does it matter what the client leaves out.
    let unclaimed = entity(json!({"username": 7}));
    for (path, operation, object, old) in [
        ("/validate/username", "UPDATE", touched, broken.clone()),
        ("/validate/username", "UPDATE", unclaimed, broken.clone()),
        ("/validate/username", "DELETE", Value::Null, going(json!({}))),
        ("/mutate/defaults", "DELETE", Value::Null, fine.clone()),
    ] {
        let response = ask(&serving, path, &review(operation, object, old)).await.response();
        assert_eq!(response, json!({"uid": UID, "allowed": true}), "{path} {operation}");
    }
    for (edit, old) in [
        (going(json!({"username": "forbidden"})), fine.clone()),
        (entity(json!({"username": "forbidden"})), fine.clone()),
        (broken, fine),
    ] {
        let response = ask(&serving, "/validate/username", &review("UPDATE", edit.clone(), old)).await.response();
        assert_eq!(response["allowed"], false, "{edit}");
    }

    // Only what is stored says so.
    let stays = entity(json!({"username": "fine"}));
    for (operation, old) in [("CREATE", Value::Null), ("UPDATE", stays)] {
        let claimed = going(json!({"username": "forbidden"}));
        let response = ask(&serving, "/validate/username", &review(operation, claimed, old)).await.response();
        assert_eq!(response["allowed"], false, "{operation}");
    }
}

#[tokio::test]
async fn a_handler_that_fails_or_panics_leaves_the_decision_to_the_failure_policy_and_says_nothing() {
    let serving = serve_webhooks().await;
    let mut connection = connect(&serving).await;
    for how in ["fail", "panic"] {
        let review = review("CREATE", entity(json!({"username": how})), Value::Null);
        let reply = send(&mut connection, &post("/validate/username", &review.to_string())).await;
        assert_eq!((reply.status, reply.text().as_str()), (500, "handler failed\n"), "{how}");

        let reply = send(&mut connection, &post("/validate/strict", &review.to_string())).await;
        let response = reply.response();
        let (allowed, status) = (&response["allowed"], &response["status"]);
        assert_eq!((allowed, &status["code"]), (&json!(false), &json!(500)), "{how}: it chose to deny");
        assert_eq!((&response["uid"], &status["message"]), (&json!(UID), &json!("handler failed")));
    }
    let review = review("CREATE", entity(json!({"username": "fail"})), Value::Null);
    let reply = send(&mut connection, &post("/mutate/defaults", &review.to_string())).await;
    assert_eq!((reply.status, reply.text().as_str()), (500, "handler failed\n"));
}

/// Without this the API server gives up first, and the user reads "context deadline exceeded".
#[tokio::test]
async fn the_time_that_the_caller_waits_is_kept() {
    let serving = serve_webhooks().await;
    let stuck = review("CREATE", entity(json!({"username": "stuck"})), Value::Null);
    let cases = [
        ("/validate/username?timeout=3s", 3.0, 500),
        ("/validate/username", 4.0, 500), // its own timeout
        ("/validate/strict?timeout=3s", 3.0, 200),
    ];
    let asked = cases.map(|(path, waits, status)| {
        let (serving, request) = (&serving, post(path, &stuck.to_string()));
        async move {
            let mut connection = connect(serving).await;
            let began = Stopwatch::start();
            let reply = send(&mut connection, &request).await;
            let (took, passed) = (began.elapsed().as_secs_f64(), began.started().elapsed().as_secs_f64());
            assert_eq!(reply.status, status, "{path}");
            assert!(passed >= waits * 0.8 && took < waits, "{path} took {took} s of {passed}");
            assert!(reply.text().contains("handler did not finish within"), "{}", reply.text());
        }
    });
    futures::future::join_all(asked).await;
}

#[tokio::test]
async fn what_the_configuration_should_not_have_sent_is_said_and_left_to_the_failure_policy() {
    let serving = serve_webhooks().await;
    let change = |f: fn(&mut Value)| {
        let mut review = review("CREATE", entity(json!({"username": "a"})), Value::Null);
        f(&mut review["request"]);
        review
    };
    for (review, said) in [
        (change(|r| r["kind"]["kind"] = json!("Other")), "handles demo.example/v1 Entity, not demo.example/v1 Other"),
        (change(|r| r["kind"]["version"] = json!("v2")), "not demo.example/v2 Entity"),
        (change(|r| r["subResource"] = json!("scale")), "no handler for CREATE of the subresource scale"),
        (change(|r| r["operation"] = json!("CONNECT")), "no handler for CONNECT"),
        (change(|r| r["object"] = Value::Null), "CREATE came without the object"),
    ] {
        let reply = ask(&serving, "/validate/username", &review).await;
        assert_eq!(reply.status, 500);
        assert!(reply.text().contains(said), "{:?} does not say {said:?}", reply.text());
    }
}
