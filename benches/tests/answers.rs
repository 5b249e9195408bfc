//! Servers that answer rightly are measured, and those that answer wrongly are not.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt as _, Full};
use portcullis_benches::webhook::answers::Shape;
use portcullis_benches::webhook::bodies::uid;
use portcullis_benches::webhook::serve::webhooks;
use portcullis_benches::webhook::workload::Workload;

async fn answer(workload: &Workload, uid: &str) -> Bytes {
    let request = Request::post(workload.path).header(header::CONTENT_TYPE, "application/json");
    let request = request.body(Full::from(workload.body.body(uid))).unwrap();
    let response = webhooks().routes().unwrap().respond(request).await;
    assert!(response.status().is_success(), "{}: {}", workload.name, response.status());
    response.into_body().collect().await.unwrap().to_bytes()
}

#[tokio::test]
async fn our_answers_are_right_and_differ_in_their_uid_only() {
    // The longest list is as the shorter one, and takes a while without optimization.
    for name in Workload::NAMES.into_iter().filter(|name| *name != "convert-1500") {
        let workload = Workload::named(name).unwrap();
        let (one, two) = (uid(1), uid(2));
        let first = answer(&workload, &one).await;
        let shape = Shape::of(&first, &one, &workload, false).unwrap();
        assert!(shape.fits(&answer(&workload, &two).await, &two), "{name}");
        assert!(!shape.fits(&first, &two), "{name}: another call's answer passes");
    }
}

#[tokio::test]
async fn an_answer_to_another_workload_is_wrong() {
    let uid = uid(1);
    for (name, other) in [
        ("validate-4k", "deny-4k"),
        ("deny-4k", "validate-4k"),
        ("mutate-none-10k", "mutate-patch-10k"),
        ("mutate-patch-10k", "mutate-none-10k"),
        ("convert-1", "convert-1-to-v1"),
        ("convert-1", "validate-4k"),
    ] {
        let (workload, other) = (Workload::named(name).unwrap(), Workload::named(other).unwrap());
        assert!(Shape::of(&answer(&other, &uid).await, &uid, &workload, false).is_err(), "{name}, {}", other.name);
    }
}

#[test]
fn objects_are_of_the_size_that_their_name_says() {
    for (name, least, most) in
        [("validate-4k", 4_500, 5_500), ("validate-10k", 10_500, 11_500), ("convert-1", 9_500, 10_500)]
    {
        let length = Workload::named(name).unwrap().body.body(&uid(1)).len();
        assert!((least..most).contains(&length), "{name}: {length} bytes");
    }
}
