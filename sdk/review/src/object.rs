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
    // Almost no object is being deleted, and most of the others do not contain the word at all.
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
