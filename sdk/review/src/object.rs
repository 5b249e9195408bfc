//! What can be told of an object without decoding it.

use serde_json::value::RawValue;

use crate::scan::member;

/// Whether `metadata.deletionTimestamp` is set: the object waits for its finalizers only. Ask it of what is stored; in
/// what a client sends it is a claim.
pub fn is_being_deleted(object: &RawValue) -> bool {
    let text = object.get();
    // Nearly no object is, and most of those that are not do not have the word anywhere, escaped or not.
    if !text.contains("deletionTimestamp") && !text.contains("\\u") {
        return false;
    }
    member(text, "metadata")
        .and_then(|metadata| member(metadata.value, "deletionTimestamp"))
        .is_some_and(|time| time.value != "null")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn an_object_is_being_deleted_when_it_has_a_time_of_deletion() {
        let cases = [
            (r#"{"metadata":{"deletionTimestamp":"2026-11-21T00:00:00Z"}}"#, true),
            (r#"{"metadata":{"deletion\u0054imestamp":"2026-11-21T00:00:00Z"}}"#, true),
            (r#"{"metadata":{"deletionTimestamp": null}}"#, false),
            (r#"{"metadata":{"name":"deletionTimestamp"}}"#, false),
            (r#"{"spec":{"deletionTimestamp":"2026-11-21T00:00:00Z"}}"#, false),
            (r#"{"metadata":{"annotations":{"deletionTimestamp":"x"}}}"#, false),
            ("[]", false),
        ];
        for (object, expected) in cases {
            assert_eq!(is_being_deleted(&raw(object)), expected, "{object}");
        }
    }
}
