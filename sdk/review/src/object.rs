//! Questions about an object that need no decoding.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::scan::{member, members};

/// Returns whether `metadata.deletionTimestamp` is set: the object only waits for its finalizers. Call it with the
/// stored object, since a client can send any value.
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

/// Returns whether `new` differs from `old` only in `metadata` and `status`: no other member is added, removed or
/// changed. The order of members and white space do not matter.
pub fn changes_only_metadata_and_status(old: &RawValue, new: &RawValue) -> bool {
    let (old, new) = (other_members(old), other_members(new));
    old.len() == new.len() && old.iter().all(|(key, value)| new.get(key).is_some_and(|other| equal(value, other)))
}

/// The members of an object beside `metadata` and `status`, as they are written.
fn other_members(object: &RawValue) -> BTreeMap<Cow<'_, str>, &str> {
    let others = members(object.get()).filter(|member| !matches!(&*member.key, "metadata" | "status"));
    others.map(|member| (member.key, member.value)).collect()
}

/// Whether two values are equal. One that is nested too deep to be read equals only what is written like it.
fn equal(one: &str, other: &str) -> bool {
    // The API server writes both objects in the same way, so this is the usual end.
    if one == other {
        return true;
    }
    let read = |text| serde_json::from_str::<Value>(text).ok();
    read(one).is_some_and(|one| read(other).is_some_and(|other| one == other))
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
}
