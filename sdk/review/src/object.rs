//! What can be told of an object, and left out of it, without decoding it.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::scan::{member, members};

/// The text of an object without its `metadata.managedFields`: who wrote which field. They are often half of an object
/// and of no use to a handler, and to decode them costs more than to decode all the rest.
pub fn without_managed_fields(object: &RawValue) -> Cow<'_, str> {
    let text = object.get();
    let Some(metadata) = member(text, "metadata") else { return Cow::Borrowed(text) };
    // Where the value of the member begins.
    let start = metadata.to - metadata.value.len();
    let (mut kept, mut copied) = (String::new(), 0);
    let mut before = 0;
    for member in members(metadata.value) {
        if member.key != "managedFields" {
            before = member.to;
            continue;
        }
        // With the comma before it, or the one behind it where it is the first.
        let behind = metadata.value.get(member.to..).unwrap_or_default();
        let comma = behind.len() - behind.trim_start_matches([' ', '\n', '\r', '\t']).trim_start_matches(',').len();
        let (from, to) = if before > 0 { (before, member.to) } else { (member.from, member.to + comma) };
        kept.reserve(text.len());
        kept.push_str(text.get(copied..start + from).unwrap_or_default());
        copied = start + to;
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    kept.push_str(text.get(copied..).unwrap_or_default());
    Cow::Owned(kept)
}

/// Whether `metadata.deletionTimestamp` is set: the object waits for its finalizers only. Ask it of what is stored; in
/// what a client sends it is a claim.
pub fn is_being_deleted(object: &RawValue) -> bool {
    member(object.get(), "metadata")
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
    fn managed_fields_go_and_all_else_stays_as_it_is_written() {
        let cases = [
            (r#"{"metadata":{"managedFields":[{"f:a":{}}]}}"#, r#"{"metadata":{}}"#),
            (r#"{"metadata":{"managedFields":[],"name":"a"},"spec":1}"#, r#"{"metadata":{"name":"a"},"spec":1}"#),
            (r#"{"metadata":{ "managedFields" : [] , "name":"a"}}"#, r#"{"metadata":{  "name":"a"}}"#),
            (r#"{"a":1,"metadata":{"name":"a" , "managedFields":["]"]} }"#, r#"{"a":1,"metadata":{"name":"a"} }"#),
            (
                r#"{"metadata":{"a":1,"managedFields":null,"b":{"managedFields":1}},"managedFields":2}"#,
                r#"{"metadata":{"a":1,"b":{"managedFields":1}},"managedFields":2}"#,
            ),
            (r#"{"metadata":{"managed\u0046ields":1}}"#, r#"{"metadata":{}}"#),
            (r#"{"metadata":{"managedFields":1,"managedFields":2}}"#, r#"{"metadata":{}}"#),
            (r#"{"metadata":{"managedFields":1,"managedFields":2,"a":3}}"#, r#"{"metadata":{"a":3}}"#),
            (r#"{"metadata":{"a":1,"managedFields":1,"managedFields":2}}"#, r#"{"metadata":{"a":1}}"#),
            (r#"{"metadata":{"name":"ä"}}"#, r#"{"metadata":{"name":"ä"}}"#),
            (r#"{"metadata":[{"managedFields":1}]}"#, r#"{"metadata":[{"managedFields":1}]}"#),
            ("7", "7"),
        ];
        for (object, expected) in cases {
            assert_eq!(without_managed_fields(&raw(object)), expected);
        }
    }

    #[test]
    fn an_object_is_being_deleted_when_it_has_a_time_of_deletion() {
        let cases = [
            (r#"{"metadata":{"deletionTimestamp":"2026-11-21T00:00:00Z"}}"#, true),
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
