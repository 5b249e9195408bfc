//! Reviews as the API server sends them, and as it never would: answered in the process, through the real routes.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, StatusCode};
use portcullis::conversion::Convert;
use portcullis::webhooks::{Routes, Webhooks};
use portcullis_testing::Stopwatch;
use serde_json::{Value, json};

use super::kinds::reviewed::{self, v1, v3};

const PATH: &str = "/convert/people";

fn routes(convert: Convert<v3::Person>) -> Routes {
    Webhooks::new().convert(convert).routes().unwrap()
}

fn person(name: &str, whole: Value, notes: usize) -> Value {
    json!({
        "apiVersion": "reviewed.example/v1", "kind": "Person", "metadata": { "name": name, "namespace": "team" },
        "spec": { "name": whole, "notes": "n".repeat(notes) },
    })
}

fn review(objects: Vec<Value>) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "request": { "uid": "u-1", "desiredAPIVersion": "reviewed.example/v3", "objects": objects },
    })
}

/// Status and body of the answer.
async fn ask(routes: &Routes, query: &str, body: impl Into<Bytes>) -> (StatusCode, String) {
    let request = Request::post(format!("{PATH}{query}")).header("content-type", "application/json");
    let response = routes.respond(request.body(Full::new(body.into())).unwrap()).await;
    let status = response.status();
    (status, String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap())
}

async fn answered(routes: &Routes, review: Value) -> Value {
    let (status, body) = ask(routes, "?timeout=30s", review.to_string()).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    serde_json::from_str(&body).unwrap()
}

#[tokio::test]
async fn an_answer_keeps_the_order_of_a_list_of_any_size() {
    let routes = routes(reviewed::convert());
    // The last ones are too large for the thread that reads them.
    for (count, notes) in [(0, 0), (1, 10), (40, 100), (300, 10_000), (1, 2_000_000)] {
        let objects: Vec<_> = (0..count).map(|n| person(&format!("p-{n}"), json!(format!("Ada {n}")), notes)).collect();
        let answer = answered(&routes, review(objects)).await;
        assert_eq!(
            (&answer["apiVersion"], &answer["kind"]),
            (&json!("apiextensions.k8s.io/v1"), &json!("ConversionReview"))
        );
        assert_eq!(
            (&answer["response"]["uid"], &answer["response"]["result"]),
            (&json!("u-1"), &json!({ "status": "Success" }))
        );
        let converted = answer["response"]["convertedObjects"].as_array().unwrap();
        assert_eq!(converted.len(), count);
        for (number, object) in converted.iter().enumerate() {
            assert_eq!(object["apiVersion"], "reviewed.example/v3");
            assert_eq!(object["metadata"]["name"], format!("p-{number}"));
            assert_eq!(object["spec"]["last"], number.to_string());
        }
    }
}

#[tokio::test]
async fn an_old_review_is_answered_in_its_own_version() {
    let mut old = review(vec![person("ada", json!("Ada Lovelace"), 0)]);
    old["apiVersion"] = json!("apiextensions.k8s.io/v1beta1");
    let answer = answered(&routes(reviewed::convert()), old).await;
    assert_eq!(answer["apiVersion"], "apiextensions.k8s.io/v1beta1");
    assert_eq!(answer["response"]["convertedObjects"][0]["spec"]["first"], "Ada");
}

#[tokio::test]
async fn a_failure_names_the_first_bad_object() {
    let routes = routes(reviewed::convert().fail_on_bad_objects());
    for notes in [0, 10_000] {
        let bad = |n: usize| if n == 63 || n == 98 { json!(["secret"]) } else { json!("Ada") };
        let objects = (0..100).map(|n| person(&format!("p-{n}"), bad(n), notes)).collect();
        let answer = answered(&routes, review(objects)).await;
        assert_eq!(
            (&answer["response"]["uid"], &answer["response"]["result"]["status"]),
            (&json!("u-1"), &json!("Failure"))
        );
        assert_eq!(answer["response"]["convertedObjects"], json!([]));
        let message = answer["response"]["result"]["message"].as_str().unwrap();
        assert!(
            message.starts_with("object 63 of 100: team/p-63 cannot be converted from v1: spec.name: "),
            "{message}"
        );
        assert!(!message.contains("secret"), "{message}");
    }
    // Where there is no answer at all: an object of a version that is none.
    let mut odd = person("odd", json!("Ada"), 0);
    odd["apiVersion"] = json!("reviewed.example/v9");
    let answer = answered(&routes, review(vec![person("ada", json!("Ada"), 0), odd])).await;
    let message = answer["response"]["result"]["message"].as_str().unwrap();
    assert!(
        message.starts_with("object 1 of 2: ") && message.contains("team/odd") && message.contains("v9"),
        "{message}"
    );
}

#[tokio::test]
async fn what_is_no_conversion_review_is_an_http_error_that_says_so() {
    let routes = routes(reviewed::convert().body_limit(10_000));
    let admission =
        json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": { "uid": "u" } });
    let too_large = review(vec![person("ada", json!("Ada"), 10_000)]);
    for (body, status, words) in [
        ("{".to_owned(), 400, "conversion review"),
        (admission.to_string(), 400, "AdmissionReview"),
        (too_large.to_string(), 413, "10000 bytes"),
    ] {
        let (found, said) = ask(&routes, "?timeout=30s", body).await;
        assert_eq!(found, status, "{said}");
        assert!(said.contains(words), "{said}");
    }
}

/// Each object takes 20 ms.
fn slow() -> Convert<v3::Person> {
    let slowly = |old: v1::Person| {
        let until = Instant::now() + Duration::from_millis(20);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        reviewed::v1_to_v3(old)
    };
    Convert::<v3::Person>::hub().spoke(slowly, reviewed::v3_to_v1).spoke(reviewed::v2_to_v3, reviewed::v3_to_v2)
}

#[tokio::test]
async fn a_slow_conversion_ends_when_the_api_server_gives_up() {
    let routes = routes(slow());
    for notes in [0, 10_000] {
        let objects = (0..500).map(|n| person(&format!("p-{n}"), json!("Ada"), notes)).collect();
        let began = Stopwatch::start();
        let (status, said) = ask(&routes, "?timeout=1s", review(objects).to_string()).await;
        assert_eq!((status, &*said), (StatusCode::INTERNAL_SERVER_ERROR, "conversion did not finish within 900 ms\n"));
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }
}

// On one thread: a conversion on it delays all other answers.
#[tokio::test(flavor = "current_thread")]
async fn a_slow_list_does_not_keep_others_waiting() {
    let routes = routes(slow());
    let objects = (0..60).map(|n| person(&format!("p-{n}"), json!("Ada"), 10_000)).collect();
    let mut list = std::pin::pin!(answered(&routes, review(objects)));
    let mut others = 0;
    loop {
        tokio::select! {
            biased;
            answer = &mut list => {
                assert_eq!(answer["response"]["convertedObjects"].as_array().unwrap().len(), 60);
                break;
            }
            (status, _) = ask(&routes, "", "{") => {
                assert_eq!(status, 400);
                others += 1;
                tokio::task::yield_now().await;
            }
        }
    }
    assert!(others > 10, "{others} others were answered meanwhile");
}

#[test]
fn a_path_is_served_once_and_can_be_called() {
    let registered = |webhooks: Webhooks| webhooks.routes().map(drop).map_err(|error| error.to_string());
    let two = |other: Convert<v3::Person>| Webhooks::new().convert(reviewed::convert()).convert(other);
    assert_eq!(
        registered(two(reviewed::convert())).unwrap_err(),
        "two webhooks are served at /convert/people: give one of them another name or path"
    );
    assert_eq!(registered(two(reviewed::convert().name("again"))), Ok(()));
    assert_eq!(
        registered(Webhooks::new().convert(reviewed::convert().path("people?"))).unwrap_err(),
        "path \"people?\" of webhook people must begin with '/' and have segments of lower-case letters, digits, '-' and '.'"
    );
}
