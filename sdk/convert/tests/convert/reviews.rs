//! The review on the wire.

use portcullis_convert::{Review, ReviewVersion};
use serde_json::{Value, json};

use crate::kinds::entity::{engine, entity};

fn review(api_version: &str, request: &Value) -> Vec<u8> {
    json!({ "kind": "ConversionReview", "apiVersion": api_version, "request": request, "response": null })
        .to_string()
        .into_bytes()
}

#[test]
fn an_answer_has_the_version_uid_and_status_of_its_request() {
    let objects = [entity("v1", json!({ "name": "A B" })), entity("v2", json!({ "firstname": "C", "lastname": "D" }))];
    for (api_version, version) in
        [("apiextensions.k8s.io/v1", ReviewVersion::V1), ("apiextensions.k8s.io/v1beta1", ReviewVersion::V1beta1)]
    {
        let request = json!({ "uid": "u\"1", "desiredAPIVersion": "demo.example/v3", "objects": objects, "more": 1 });
        let body = review(api_version, &request);
        let review = Review::parse(&body).unwrap();
        assert_eq!((review.version, &*review.uid, &*review.desired_api_version), (version, "u\"1", "demo.example/v3"));
        let converted: Vec<_> = review
            .objects
            .iter()
            .map(|object| engine().convert(object, &review.desired_api_version).unwrap())
            .collect();
        assert_eq!(
            serde_json::from_slice::<Value>(&review.success(&converted)).unwrap(),
            json!({ "apiVersion": api_version, "kind": "ConversionReview", "response": {
                "uid": "u\"1", "result": { "status": "Success" },
                "convertedObjects": [
                    entity("v3", json!({ "firstname": "A", "lastname": "B" })),
                    entity("v3", json!({ "firstname": "C", "lastname": "D" })),
                ],
            } })
        );
        assert_eq!(
            serde_json::from_slice::<Value>(&review.failure("why \"not\"\n")).unwrap(),
            json!({ "apiVersion": api_version, "kind": "ConversionReview", "response": {
                "uid": "u\"1", "convertedObjects": [], "result": { "status": "Failure", "message": "why \"not\"\n" },
            } })
        );
    }
}

#[test]
fn a_review_without_objects_is_answered_without_objects() {
    for objects in [Value::Null, json!([])] {
        let body =
            review("apiextensions.k8s.io/v1", &json!({ "uid": "u", "desiredAPIVersion": "a/v1", "objects": objects }));
        let review = Review::parse(&body).unwrap();
        assert!(review.objects.is_empty());
        assert!(String::from_utf8(review.success(&[])).unwrap().contains(r#""convertedObjects":[],"#));
    }
}

#[test]
fn what_is_no_review_says_what_to_send() {
    let error = |body: &[u8]| Review::parse(body).unwrap_err().to_string();
    let uid = "request.uid is empty; send the uid that the response must repeat";
    assert_eq!(error(&review("apiextensions.k8s.io/v1", &Value::Null)), uid);
    assert_eq!(error(&review("apiextensions.k8s.io/v1", &json!({ "uid": "" }))), uid);
    assert_eq!(
        error(&review("apiextensions.k8s.io/v2", &json!({ "uid": 5 }))),
        "apiVersion and kind are \"apiextensions.k8s.io/v2\" \"ConversionReview\"; send apiextensions.k8s.io/v1 \
         ConversionReview"
    );
    assert!(
        error(&review("apiextensions.k8s.io/v1", &json!({ "uid": 5 })))
            .starts_with("body is not a conversion review: ")
    );
    assert!(error(b"{").starts_with("body is not a conversion review: "));
    assert!(error(b"\xff").starts_with("body is not a conversion review: "));
    assert!(error(b"{}").starts_with("apiVersion and kind are \"\" \"\""));
}
