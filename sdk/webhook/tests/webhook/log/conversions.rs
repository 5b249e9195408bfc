//! The log of bad objects has enough to find them, and nothing of their content.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use portcullis::conversion::Convert;
use portcullis::webhooks::{Routes, Webhooks};
use serde_json::{Value, json};

use super::lines::{Lines, heard_by};
use crate::conversion::kinds::logged;

fn objects(bad: usize, good: usize) -> Vec<Value> {
    let person = |name: String, spec: Value| json!({ "apiVersion": "logged.example/v1", "kind": "Person", "metadata": { "name": name, "namespace": "team" }, "spec": spec });
    let bad = (0..bad).map(|number| person(format!("bad-{number}"), json!({ "name": { "password": "hunter2" } })));
    bad.chain((0..good).map(|number| person(format!("good-{number}"), json!({ "name": "Ada" })))).collect()
}

async fn ask(routes: &Routes, objects: Vec<Value>) -> Value {
    let review = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "request": { "uid": "u-1", "desiredAPIVersion": "logged.example/v3", "objects": objects },
    });
    let body = Full::new(Bytes::from(review.to_string()));
    let request = Request::post("/convert/people?timeout=30s")
        .header("content-type", "application/json")
        .header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        .body(body);
    let response = routes.respond(request.unwrap()).await;
    assert_eq!(response.status(), 200);
    serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap()
}

#[test]
fn a_bad_object_is_logged_by_name_and_path_without_its_values() {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt().json().with_max_level(tracing::Level::TRACE).with_writer(lines.clone());
    heard_by(subscriber.finish(), bad_objects(lines));
}

async fn bad_objects(lines: Lines) {
    let routes = Webhooks::new().convert(logged::convert()).routes().unwrap();
    let answer = ask(&routes, objects(1, 2)).await;
    assert_eq!(answer["response"]["uid"], "u-1");
    assert_eq!(answer["response"]["result"], json!({ "status": "Success" }));
    assert_eq!(answer["response"]["convertedObjects"].as_array().unwrap().len(), 3);
    let text = lines.take();
    assert!(!text.contains("hunter2") && !text.contains("password"), "{text}");
    let logged: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let line = logged.iter().find(|line| line["level"] == "WARN").unwrap()["fields"].clone();
    let said =
        ["namespace", "name", "kind", "from", "to", "path"].map(|field| line[field].as_str().unwrap().to_owned());
    assert_eq!(said, ["team", "bad-0", "Person", "v1", "v3", "spec.name"]);
    let warned = logged.iter().find(|line| line["level"] == "WARN").unwrap();
    let (webhook, uid, trace) = (&warned["span"]["webhook"], &warned["span"]["uid"], &warned["span"]["trace"]);
    assert_eq!([webhook, uid, trace], ["people", "u-1", "0af7651916cd43dd8448eb211c80319c"]);

    // A converter's error is for the log alone.
    let fails = |_: logged::v1::Person| Err::<logged::v3::Person, _>("no such person in the register");
    let convert = || Convert::<logged::v3::Person>::hub().spoke(fails, logged::v3_to_v1);
    for (convert, level) in [(convert(), "WARN"), (convert().fail_on_bad_objects(), "ERROR")] {
        let failing = Webhooks::new().convert(convert).routes().unwrap();
        let answer = ask(&failing, objects(0, 1)).await.to_string();
        assert!(answer.contains("the converter from v1 to v3 failed") && !answer.contains("register"), "{answer}");
        let text = lines.take();
        let mut logged = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let line = logged.find(|line| line["level"] == level).unwrap();
        assert_eq!(line["fields"]["error"], "no such person in the register", "{line}");
    }

    // A kind whose objects are all bad fills no disk: the first hundred are named, the rest is counted.
    ask(&routes, objects(150, 0)).await;
    let text = lines.take();
    assert_eq!(text.lines().filter(|line| line.contains("object converted only in part")).count(), 100);
    assert!(text.contains(r#""more":50"#), "{text}");
    let metrics = routes.metrics().encode();
    let flagged = r#"portcullis_conversion_objects_total{kind="Person",from="v1",to="v3",outcome="flagged"} 151"#;
    assert!(metrics.contains(flagged), "{metrics}");
    assert!(metrics.contains(r#"outcome="converted"} 2"#), "{metrics}");
}
