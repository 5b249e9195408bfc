//! Objects that are described by their text.

use portcullis_review::{changes_only_metadata_and_status, is_being_deleted};
use serde_json::value::RawValue;

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

#[test]
fn an_edit_of_anything_but_metadata_and_status_is_seen() {
    let deep = |leaf: &str| format!("{}{leaf}{}", "[".repeat(200), "]".repeat(200));
    let same = [
        (r#"{"metadata":{"a":1},"spec":{"a":[1]}}"#, r#"{"metadata":{"a":2},"spec":{"a":[1]}}"#),
        (r#"{"spec":{"a":1}}"#, r#"{"metadata":{},"spec":{"a":1},"status":{}}"#),
        (r#"{"spec":{"a":1,"b":"x"},"data":{}}"#, r#"{ "data": {}, "spec": { "b": "\u0078", "a": 1 } }"#),
        (r#"{"metadata":{},"spec":{"status":1}}"#, r#"{"met\u0061data":{"a":1},"spec":{"status":1}}"#),
        ("{}", r#"{"status":1}"#),
        (&format!("{{\"spec\":{}}}", deep("1")), &format!("{{\"spec\":{},\"status\":1}}", deep("1"))),
    ];
    for (old, new) in same {
        assert!(changes_only_metadata_and_status(&raw(old), &raw(new)), "{old} {new}");
        assert!(changes_only_metadata_and_status(&raw(new), &raw(old)), "{new} {old}");
    }
    let edits = [
        (r#"{"spec":{"a":1}}"#, r#"{"spec":{"a":2}}"#),
        (r#"{"spec":{"a":1}}"#, r#"{"spec":{}}"#),
        (r#"{"spec":{"a":[1,2]}}"#, r#"{"spec":{"a":[2,1]}}"#),
        (r#"{"spec":{"metadata":1}}"#, r#"{"spec":{"metadata":2}}"#),
        (r#"{"spec":1}"#, r#"{"spec":"1"}"#),
        (r#"{"spec":1}"#, r#"{"spec":null}"#),
        (r#"{"data":{},"spec":{}}"#, r#"{"spec":{}}"#),
        (r#"{"data":{}}"#, r#"{"spec":{}}"#),
        // Readers take the last of two.
        (r#"{"spec":1}"#, r#"{"spec":1,"spec":2}"#),
        (&format!("{{\"spec\":{}}}", deep("1")), &format!("{{\"spec\":{}}}", deep("2"))),
    ];
    for (old, new) in edits {
        assert!(!changes_only_metadata_and_status(&raw(old), &raw(new)), "{old} {new}");
        assert!(!changes_only_metadata_and_status(&raw(new), &raw(old)), "{new} {old}");
    }
}
