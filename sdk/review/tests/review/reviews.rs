//! Reading reviews and writing answers, as the API server sees them.

use portcullis_review::{ADMISSION_LIMIT, Field, Operation, Review, Verdict, decode, edit};
use serde::Deserialize;
use serde_json::{Value, json};

fn review(change: impl FnOnce(&mut Value)) -> String {
    let mut review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u-1", "operation": "UPDATE", "name": "one", "namespace": "ns", "dryRun": true,
            "kind": {"group": "demo.example", "version": "v1", "kind": "Entity"},
            "resource": {"group": "demo.example", "version": "v1", "resource": "entities"},
            "userInfo": {"username": "jane", "groups": ["dev"], "extra": {"scopes": ["a", "b"]}},
            "object": {"spec": {"ports": [{"name": "a"}]}}, "oldObject": {"spec": {}},
            "options": {"kind": "UpdateOptions", "fieldManager": "kubectl"}, "unknown": [1]
        }
    });
    change(&mut review);
    review.to_string()
}

fn answer(body: &str, verdict: &Verdict) -> Value {
    serde_json::from_slice(&Review::parse(body.as_bytes()).unwrap().answer(verdict, None)).unwrap()
}

#[test]
fn the_request_is_read_whole() {
    let body = review(|_| {});
    let request = Review::parse(body.as_bytes()).unwrap().request;
    assert_eq!((&*request.uid, &*request.name, &*request.namespace), ("u-1", "one", "ns"));
    assert_eq!((request.operation, request.dry_run), (Operation::Update, Some(true)));
    assert_eq!(request.user_info.extra["scopes"], ["a", "b"]);
    assert_eq!(request.object.unwrap().get(), r#"{"spec":{"ports":[{"name":"a"}]}}"#);
    assert!(request.options.unwrap().get().contains("kubectl"));
}

/// The API server writes a list that its authenticator left empty as null, and refuses the user's request if we do.
#[test]
fn a_user_with_an_extra_without_values_reads() {
    let body = review(|r| r["request"]["userInfo"]["extra"] = json!({"scopes": null, "a": ["b"]}));
    let user = Review::parse(body.as_bytes()).unwrap().request.user_info;
    assert_eq!((user.extra["scopes"].len(), user.extra["a"].len()), (0, 1));
}

#[test]
fn a_body_that_is_no_review_says_why() {
    let cases: [(String, &str); 7] = [
        ("{".into(), "body is not an admission review: EOF"),
        ("7".into(), "body is not an admission review: invalid type"),
        (r#"{"kind": "Pod", "apiVersion": "v1"}"#.into(), "are v1 Pod; send admission.k8s.io/v1 AdmissionReview"),
        (review(|r| r["apiVersion"] = json!("admission.k8s.io/v2")), "are admission.k8s.io/v2 AdmissionReview"),
        (review(|r| r["request"] = Value::Null), "invalid type: null"),
        (review(|r| r["request"]["uid"] = json!("")), "request.uid is empty"),
        (review(|r| r["request"]["operation"] = json!("PATCH")), "unknown variant `PATCH`"),
    ];
    for (body, expected) in cases {
        let error = Review::parse(body.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(expected), "{body}\n  said {error:?}, not {expected:?}");
    }
}

/// The uid must come back whatever the object is.
#[test]
fn the_envelope_reads_though_the_object_does_not() {
    #[derive(Debug, Deserialize)]
    struct Entity {
        #[allow(dead_code)]
        spec: Spec,
    }
    #[derive(Debug, Deserialize)]
    struct Spec {
        #[allow(dead_code)]
        ports: Vec<Port>,
    }
    #[derive(Debug, Deserialize)]
    struct Port {
        #[allow(dead_code)]
        name: u32,
    }
    let body = review(|_| {});
    let review = Review::parse(body.as_bytes()).unwrap();
    let error = decode::<Entity>(review.request.object.unwrap().get()).unwrap_err();
    assert_eq!(error.to_string(), r#"spec.ports[0].name: invalid type: string "a", expected u32"#);
}

#[test]
fn deep_nesting_is_read_in_an_envelope_but_not_in_an_object() {
    for depth in [300, 1_000_000] {
        let deep = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let body = review(|r| r["request"]["object"] = json!("DEEP")).replace(r#""DEEP""#, &deep);
        assert!(body.len() < ADMISSION_LIMIT);
        let review = Review::parse(body.as_bytes()).unwrap();
        let object = review.request.object.unwrap().get();
        assert!(decode::<Value>(object).unwrap_err().problem.contains("recursion limit"));
        assert!(edit(object, "1", "2").is_err());
        assert_eq!(review.request.uid, "u-1");
    }
    let objects = |leaf| format!("{}{leaf}{}", r#"{"a":"#.repeat(300), "}".repeat(300));
    assert!(edit(&objects(1), &objects(1), &objects(2)).is_err());
}

#[test]
fn an_answer_comes_in_the_version_of_its_review() {
    for version in ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"] {
        let answer = answer(&review(|r| r["apiVersion"] = json!(version)), &Verdict::allow());
        assert_eq!((&answer["apiVersion"], &answer["kind"]), (&json!(version), &json!("AdmissionReview")));
    }
}

#[test]
fn an_allowing_answer_carries_nothing_that_was_not_said() {
    let body = review(|_| {});
    assert_eq!(answer(&body, &Verdict::allow())["response"], json!({"uid": "u-1", "allowed": true}));
    assert_eq!(
        answer(&body, &Verdict::allow().warn("old").audit("k", "v"))["response"],
        json!({"uid": "u-1", "allowed": true, "warnings": ["old"], "auditAnnotations": {"k": "v"}})
    );
}

#[test]
fn a_denial_carries_code_reason_message_and_causes() {
    let body = review(|_| {});
    let plain = answer(&body, &Verdict::deny("no"));
    assert_eq!(
        plain["response"],
        json!({"uid": "u-1", "allowed": false, "status":
            {"status": "Failure", "message": "no", "reason": "BadRequest", "code": 400}})
    );
    let told = answer(
        &body,
        &Verdict::from_causes([Field::new("spec.a").invalid("is odd"), Field::new("spec.b").required("is needed")]),
    );
    assert_eq!(
        told["response"]["status"],
        json!({"status": "Failure", "message": "spec.a: is odd; spec.b: is needed", "reason": "Invalid", "code": 422,
            "details": {"name": "one", "group": "demo.example", "kind": "Entity", "causes": [
                {"reason": "FieldValueInvalid", "field": "spec.a", "message": "is odd"},
                {"reason": "FieldValueRequired", "field": "spec.b", "message": "is needed"}]}})
    );
}

#[test]
fn a_denial_has_a_code_of_an_error() {
    for (asked, sent) in [(0, 400), (200, 400), (302, 400), (403, 403), (599, 599), (600, 400)] {
        assert_eq!(Verdict::deny("no").code(asked).denial().unwrap().code(), sent);
    }
}

#[test]
fn a_patch_is_one_base64_string_and_comes_with_its_type() {
    let body = review(|_| {});
    let review = Review::parse(body.as_bytes()).unwrap();
    let edited = edit(review.request.object.unwrap().get(), "{}", r#"{"a": 1}"#).unwrap().unwrap();
    let response = |verdict: &Verdict| -> Value {
        serde_json::from_slice::<Value>(&review.answer(verdict, Some(&edited.patch))).unwrap()["response"].take()
    };
    assert_eq!(
        response(&Verdict::allow()),
        // [{"op":"add","path":"/a","value":1}]
        json!({"uid": "u-1", "allowed": true, "patchType": "JSONPatch",
            "patch": "W3sib3AiOiJhZGQiLCJwYXRoIjoiL2EiLCJ2YWx1ZSI6MX1d"})
    );
    assert!(response(&Verdict::deny("no")).get("patch").is_none(), "a denial patches nothing");
}

#[test]
fn a_deletion_is_never_patched() {
    let body = review(|r| {
        r["request"]["operation"] = json!("DELETE");
        r["request"]["object"] = Value::Null;
    });
    let review = Review::parse(body.as_bytes()).unwrap();
    let edited = edit(review.request.old_object.unwrap().get(), "{}", r#"{"a": 1}"#).unwrap().unwrap();
    let answer = String::from_utf8(review.answer(&Verdict::allow(), Some(&edited.patch))).unwrap();
    assert!(!answer.contains("patch"), "{answer}");
}
