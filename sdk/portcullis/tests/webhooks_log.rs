//! The log of decisions. One test, alone in its process: a subscriber for one thread among others that have none would
//! miss lines now and then (tracing remembers for every thread that nobody wants a line).

#![allow(clippy::unwrap_used, clippy::panic)]

#[allow(dead_code, reason = "other test binaries use the rest")]
#[path = "wire/fixture.rs"]
mod fixture;
#[path = "wire/lines.rs"]
mod lines;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use portcullis::webhooks::Routes;
use serde_json::{Value, json};

use fixture::{entity, review, webhooks};
use lines::Lines;

async fn ask(routes: &Routes, path: &str, review: &Value) {
    let request = Request::post(path)
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(review.to_string())))
        .unwrap();
    routes.respond(request).await;
}

/// D11
#[tokio::test]
async fn each_decision_is_one_line_that_says_who_what_and_why_and_never_the_object() {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt().json().with_writer(lines.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let routes = webhooks().routes().unwrap();

    let object = |spec: Value| {
        let mut object = entity(spec);
        object["spec"]["password"] = json!("hunter2");
        object
    };
    let mut going = object(json!({"username": "fine"}));
    going["metadata"]["deletionTimestamp"] = json!("2026-11-21T00:00:00Z");
    let none = || Value::Null;
    let cases = [
        ("/validate/username", "CREATE", object(json!({"username": "fine"})), none(), "INFO", "allow", ""),
        (
            "/validate/username",
            "CREATE",
            object(json!({"username": "forbidden"})),
            none(),
            "INFO",
            "deny",
            "name may not be",
        ),
        ("/mutate/defaults", "CREATE", object(json!({"username": "overwrite"})), none(), "INFO", "patch", ""),
        ("/validate/username", "UPDATE", going.clone(), going, "INFO", "allow", "the object is being deleted"),
        (
            "/validate/username",
            "CREATE",
            object(json!({"username": ["hunter2"]})),
            none(),
            "INFO",
            "deny",
            "at spec.username",
        ),
        (
            "/validate/username",
            "CREATE",
            object(json!({"username": "x", "replicas": "hunter2"})),
            none(),
            "INFO",
            "deny",
            "at spec.replicas",
        ),
        (
            "/validate/username",
            "CREATE",
            object(json!({"username": "panic"})),
            none(),
            "WARN",
            "error",
            "handler panicked: the handler met panic",
        ),
        (
            "/validate/strict",
            "CREATE",
            object(json!({"username": "panic"})),
            none(),
            "WARN",
            "deny",
            "handler panicked",
        ),
    ];
    for (path, operation, object, old, level, decision, reason) in cases {
        ask(&routes, path, &review(operation, object, old)).await;
        let said = lines.take();
        assert_eq!(said.lines().count(), 1, "{said}");
        let line: Value = serde_json::from_str(&said).unwrap();
        let fields = &line["fields"];
        assert_eq!((&line["level"], &fields["decision"]), (&json!(level), &json!(decision)), "{said}");
        assert_eq!(path.rsplit('/').next(), fields["webhook"].as_str());
        for (field, expected) in [
            ("kind", "Entity"),
            ("namespace", "ns"),
            ("name", "one"),
            ("user", "jane"),
            ("operation", operation),
            ("uid", "e911857d-c318-11e8-bbad-025000000001"),
        ] {
            assert_eq!(fields[field], expected, "{said}");
        }
        let told = fields["reason"].as_str().unwrap();
        assert!(told.contains(reason) && (!reason.is_empty() || told.is_empty()), "{said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
}
