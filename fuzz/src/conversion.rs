//! The conversion engine: review, objects into every version and back, answer.

use std::sync::LazyLock;

use portcullis_convert::{Converted, Engine, Hub, INCOMPLETE, PROBLEM, Review, STASH};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::versions::{GROUP, V1, V2, V3, v1_to_v2, v2_to_v1, v2_to_v3, v3_to_v2};

static ENGINE: LazyLock<Engine> = LazyLock::new(|| {
    let hub = Hub::<V2>::new().spoke::<V1>(v1_to_v2, v2_to_v1).spoke::<V3>(v3_to_v2, v2_to_v3);
    hub.build().expect("three versions of one kind")
});

/// Objects stay as they came: they may be nested deeper than a reader of values follows.
#[derive(Deserialize)]
struct Answer<'a> {
    kind: String,
    #[serde(borrow)]
    response: Response<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: String,
    #[serde(borrow)]
    converted_objects: Vec<&'a RawValue>,
    result: Value,
}

/// Reads a body as the conversion server does, converts each object to every version and back, and answers.
///
/// # Panics
/// When an object comes out as something else than it went in, or an answer is not one that the API server takes.
pub fn conversion(body: &[u8]) {
    let Ok(review) = Review::parse(body) else { return };
    let mut converted = Vec::new();
    for object in &review.objects {
        converted.extend(ENGINE.convert(object, &review.desired_api_version));
        for version in ["v1", "v2", "v3"] {
            to(object, version);
        }
    }
    let success = review.success(&converted);
    let answer: Answer<'_> = serde_json::from_slice(&success).expect("an answer is JSON");
    assert_eq!(answer.kind, "ConversionReview");
    assert_eq!(answer.response.uid, review.uid, "the uid is echoed");
    assert_eq!(answer.response.result, json!({ "status": "Success" }));
    assert_eq!(answer.response.converted_objects.len(), converted.len());
    let failure: Value = serde_json::from_slice(&review.failure(&review.uid)).expect("an answer is JSON");
    assert_eq!(failure["response"]["uid"], &*review.uid);
    assert_ne!(failure["response"]["result"]["status"], "Success");
}

/// Converts an object, looks at what came out, and goes back.
fn to(raw: &RawValue, version: &str) {
    let desired = format!("{GROUP}/{version}");
    let Ok(there) = ENGINE.convert(raw, &desired) else { return };
    let again = ENGINE.convert(raw, &desired).expect("the same as before");
    assert_eq!(there.object, again.object, "the same object gives the same bytes");
    // The engine reads what serde_json does not: numbers that no float holds.
    let Ok(before) = serde_json::from_str::<Value>(raw.get()) else { return };
    let after = sound(&there, &before, &desired);
    if there.from == there.to {
        assert_eq!(after, before, "the same version is the same object");
        return;
    }
    if carries(&before) || there.problem.is_some() {
        return;
    }
    let there = RawValue::from_string(there.object).expect("an object is JSON");
    let back = ENGINE.convert(&there, &format!("{GROUP}/{}", again.from)).expect("the way back is open");
    sound(&back, &before, &format!("{GROUP}/{}", again.from));
    if back.problem.is_none() {
        let returned: Value = serde_json::from_str(&back.object).expect("an object is JSON");
        let version = &*again.from;
        assert_eq!(typed(version, &returned), typed(version, &before), "there and back by {} loses nothing", again.to);
    }
}

/// Asserts what the API server checks of an object, and what the engine promises besides.
fn sound(converted: &Converted, before: &Value, desired: &str) -> Value {
    // The conversion nests nothing deeper, so the result can still be parsed.
    let after: Value = serde_json::from_str(&converted.object).expect("an object is JSON");
    assert_eq!(after["apiVersion"], desired);
    assert_eq!(after["kind"], before["kind"]);
    assert_eq!(metadata(&after), metadata(before), "metadata is not touched");
    // Metadata is not touched, not even to flag an object whose annotations are none. No API server stores such a one.
    let annotations = &before["metadata"]["annotations"];
    if converted.from != converted.to && (annotations.is_object() || annotations.is_null()) {
        let flag = after["metadata"]["annotations"].get(PROBLEM).is_some();
        assert_eq!(flag, converted.problem.is_some(), "a problem is flagged, and nothing else is");
    }
    after
}

/// Without the engine's own annotations and label; none at all is as good as an empty map, and so is no metadata.
fn metadata(object: &Value) -> Value {
    let mut metadata = Some(object["metadata"].clone()).filter(|it| !it.is_null()).unwrap_or_else(|| json!({}));
    for map in ["annotations", "labels"] {
        if let Some(map) = metadata.get_mut(map).and_then(Value::as_object_mut) {
            map.retain(|key, _| ![STASH, PROBLEM, INCOMPLETE].contains(&key.as_str()));
        }
        let none = metadata.get(map).is_some_and(|map| map.is_null() || map == &json!({}));
        if let (true, Some(members)) = (none, metadata.as_object_mut()) {
            members.remove(map);
        }
    }
    metadata
}

/// Whether something comes with it from conversions before: then there and back may well be another object.
fn carries(object: &Value) -> bool {
    let annotations = &object["metadata"]["annotations"];
    let label = object["metadata"]["labels"].get(INCOMPLETE);
    annotations.get(STASH).or(annotations.get(PROBLEM)).or(label).is_some()
}

/// The object as its type writes it, without metadata.
fn typed(version: &str, object: &Value) -> Option<Value> {
    fn write<V: serde::de::DeserializeOwned + serde::Serialize>(object: &Value) -> Option<Value> {
        serde_json::to_value(serde_json::from_value::<V>(object.clone()).ok()?).ok()
    }
    let mut object = object.clone();
    object["metadata"] = json!({});
    match version {
        "v1" => write::<V1>(&object),
        "v2" => write::<V2>(&object),
        _ => write::<V3>(&object),
    }
}
