//! Conversion reviews.

#![allow(clippy::panic, reason = "in a test this is the failure")]

use serde::Serialize;
use serde_json::{Value, json};

use super::Reviews;
use super::request::{group_version_kind, written};

/// Seconds that the API server waits for a conversion.
const TIMEOUT: u8 = 30;

impl Reviews {
    /// Converts the object to another version of its kind, such as `v2`, by the registered conversion, through a review
    /// as the API server sends it. To test converters with generated objects, see
    /// [`assert_laws`](crate::conversion::assert_laws).
    ///
    /// # Panics
    /// When the kind has no conversion, or the answer is anything but that one object.
    pub async fn convert(&self, object: &impl Serialize, version: &str) -> Value {
        let mut object = written(object);
        if object["metadata"].is_null() {
            object["metadata"] = json!({});
        }
        let (group, _, kind) = group_version_kind(&object);
        let known = self.conversions.iter().find(|conversion| conversion.group == group && conversion.kind == kind);
        let Some(conversion) = known else { panic!("no conversion of {kind} in group {group:?} is registered") };
        let (uid, desired) = (uuid::Uuid::new_v4().to_string(), format!("{group}/{version}"));
        let review = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
            "request": {"uid": uid, "desiredAPIVersion": desired, "objects": [object]}});
        let answer = match self.post(&conversion.path, TIMEOUT, &review).await {
            Ok(body) => serde_json::from_slice::<Value>(&body).unwrap_or_else(|error| panic!("no JSON: {error}")),
            Err((code, text)) => {
                panic!("the conversion of {object} to {desired} is answered with HTTP error {code}: {text}")
            }
        };
        let response = &answer["response"];
        let head = (&answer["apiVersion"], &answer["kind"], &response["uid"], &response["result"]["status"]);
        assert!(
            head == (&review["apiVersion"], &review["kind"], &json!(uid), &json!("Success")),
            "the conversion of {object} to {desired} failed: {answer}"
        );
        match response["convertedObjects"].as_array().map(Vec::as_slice) {
            Some([converted]) if converted["apiVersion"] == desired.as_str() && converted["kind"] == kind.as_str() => {
                converted.clone()
            }
            _ => panic!("the conversion of {object} to {desired} is not that one object: {answer}"),
        }
    }
}
