//! The log of decisions.

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use portcullis::webhooks::{Context, Mutate, Mutation, Routes};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use super::lines::{Lines, heard_by};
use crate::fixture::{Entity, entity, review, webhooks};

async fn ask(routes: &Routes, path: &str, review: &Value) {
    let request = Request::post(path)
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(review.to_string())))
        .unwrap();
    routes.respond(request).await;
}

/// A type that does not read all that it writes.
#[derive(Clone, Serialize, Deserialize)]
struct Turned {
    spec: TurnedSpec,
}

#[derive(Clone, Serialize, Deserialize)]
struct TurnedSpec {
    #[serde(deserialize_with = "plain")]
    password: String,
}

fn plain<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    if text.ends_with('!') { Err(D::Error::custom(format!("{text:?} is not plain"))) } else { Ok(text) }
}

fn turned() -> Mutate<Turned> {
    Mutate::<Turned>::subresource_of::<Entity>("turned", "turned").on_create(|mut new: Turned, _: Context| async move {
        new.spec.password += "!";
        Mutation::modified(new)
    })
}

/// D11
#[test]
fn each_decision_is_one_log_line_without_the_object() {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt().json().with_writer(lines.clone()).finish();
    heard_by(subscriber, decisions(lines));
}

async fn decisions(lines: Lines) {
    let routes = webhooks().mutate(turned()).routes().unwrap();

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
        (
            "/validate/username",
            "UPDATE",
            going.clone(),
            going.clone(),
            "INFO",
            "allow",
            "skipping validation for resource being deleted: only metadata or status change",
        ),
        ("/validate/username", "DELETE", none(), going, "INFO", "allow", "the object is being deleted already"),
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
            "/validate/username",
            "CREATE",
            object(json!({"username": "fail"})),
            none(),
            "WARN",
            "error",
            "handler failed: cannot look up the user: nobody answers",
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
        (
            "/mutate/turned",
            "CREATE",
            object(json!({"username": "x"})),
            none(),
            "WARN",
            "error",
            "the handler's object does not round-trip through its type: it does not decode at spec.password",
        ),
    ];
    for (path, operation, object, old, level, decision, reason) in cases {
        let mut review = review(operation, object, old);
        review["request"]["subResource"] = json!(if path == "/mutate/turned" { "turned" } else { "" });
        ask(&routes, path, &review).await;
        let said = lines.take();
        assert_eq!(said.lines().count(), 1, "{said}");
        let line: Value = serde_json::from_str(&said).unwrap();
        let fields = &line["fields"];
        assert_eq!((&line["level"], &fields["decision"]), (&json!(level), &json!(decision)), "{said}");
        // The guide has people search for this message.
        let verb = if path.starts_with("/mutate") { "mutate" } else { "validate" };
        assert_eq!(fields["message"], format!("{verb} {}", operation.to_lowercase()));
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
