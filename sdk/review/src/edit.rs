//! Carries a handler's edits on a type over to the raw object, and makes the patch for them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::MAX_DEPTH;
use crate::merge::three_way_merge;
use crate::patch::{Patch, PatchError, diff};
use crate::scan::{Member, members};

/// The edits of a handler applied to a raw object, and the patch for them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Edited<'a> {
    /// Patch that turns the raw object into [`object`](Self::object).
    pub patch: Patch,
    /// Whether the edited parts of the raw object were exactly as the type writes them. Then what the type writes now
    /// is what will be stored there. Otherwise (aliases, defaults that were not sent), decode the edited object to
    /// learn whether the type can read it.
    pub as_written: bool,
    raw: &'a str,
    from: Value,
    to: Value,
}

impl Edited<'_> {
    /// Returns the raw object with the edits, as JSON.
    ///
    /// # Errors
    /// When the raw object is not JSON.
    pub fn object(&self) -> Result<String, PatchError> {
        let mut object = Vec::with_capacity(self.raw.len() + self.patch.as_json().len());
        splice(self.raw, &self.from, &self.to, &mut object)?;
        String::from_utf8(object).map_err(|_| PatchError::Mismatch)
    }
}

/// Applies the changes from `before` to `after`, both written by a type, to the `raw` object that the type was decoded
/// from. Returns `None` when nothing changed.
///
/// Fields unknown to the type are kept as in `raw`. Defaults that the type writes and `raw` lacks are not added as long
/// as `before` and `after` agree on them.
///
/// All three are JSON text. Members whose text is the same before and after are not parsed, so the time depends on the
/// size of the edits rather than of the object. Text that is not JSON gives an error or a wrong patch.
pub fn edit<'a>(raw: &'a str, before: &str, after: &str) -> Result<Option<Edited<'a>>, PatchError> {
    if before == after {
        return Ok(None);
    }
    let Some(Differing { raw: from, before, after }) = narrow(raw, before, after, 0)? else { return Ok(None) };
    let to = three_way_merge(&from, &before, &after);
    let patch = diff(&from, &to);
    if patch.0.is_empty() {
        return Ok(None);
    }
    let mut tried = from.clone();
    json_patch::patch(&mut tried, &patch)?;
    if tried != to {
        return Err(PatchError::Mismatch);
    }
    Ok(Some(Edited { patch: Patch::new(patch)?, as_written: from == before, raw, from, to }))
}

/// The three documents, without the members of objects that are the same before and after.
struct Differing {
    raw: Value,
    before: Value,
    after: Value,
}

fn narrow(raw: &str, before: &str, after: &str, depth: usize) -> Result<Option<Differing>, PatchError> {
    let is_object = |text: &str| text.trim_start().starts_with('{');
    if depth >= MAX_DEPTH || ![raw, before, after].into_iter().all(is_object) {
        let read = |text| serde_json::from_str(text).map_err(PatchError::Object);
        return Ok(Some(Differing { raw: read(raw)?, before: read(before)?, after: read(after)? }));
    }
    let changed = changed(before, after);
    let under: BTreeMap<_, _> = members(raw).filter(|member| changed.contains_key(&member.key)).map(pair).collect();
    let [mut raw, mut before, mut after] = std::array::from_fn(|_| Map::new());
    for (key, (was, is)) in changed {
        match (under.get(&key).copied(), was, is) {
            (Some(under), Some(was), Some(is)) => {
                if let Some(differing) = narrow(under, was, is, depth + 1)? {
                    raw.insert(key.to_string(), differing.raw);
                    before.insert(key.to_string(), differing.before);
                    after.insert(key.to_string(), differing.after);
                }
            }
            (under, was, is) => {
                for (text, map) in [(under, &mut raw), (was, &mut before), (is, &mut after)] {
                    if let Some(text) = text {
                        map.insert(key.to_string(), serde_json::from_str(text).map_err(PatchError::Object)?);
                    }
                }
            }
        }
    }
    if before.is_empty() && after.is_empty() {
        return Ok(None);
    }
    let [raw, before, after] = [raw, before, after].map(Value::Object);
    Ok(Some(Differing { raw, before, after }))
}

/// The members of two objects whose text is not the same, as they are in each.
type Changed<'t> = BTreeMap<Cow<'t, str>, (Option<&'t str>, Option<&'t str>)>;

fn changed<'t>(before: &'t str, after: &'t str) -> Changed<'t> {
    in_step(before, after).unwrap_or_else(|| {
        let mut all: Changed<'t> = members(before).map(|member| (member.key, (Some(member.value), None))).collect();
        for member in members(after) {
            all.entry(member.key).or_default().1 = Some(member.value);
        }
        all.retain(|_, (was, is)| was != is);
        all
    })
}

/// Compares objects that have the same members in the same order, as two from one type usually do; otherwise `None`.
/// Text that both share is read once where it comes before all changes, and not at all behind the last one.
fn in_step<'t>(before: &'t str, after: &'t str) -> Option<Changed<'t>> {
    let shared = shared(before.as_bytes(), after.as_bytes());
    let (mut before, mut after, mut changed) = (members(before), members(after), Changed::new());
    loop {
        let Some(was) = before.next() else { return after.next().is_none().then_some(changed) };
        // The byte behind it is shared, too, so it ends there in both.
        if was.to() < shared {
            after.go_on_from(was.to());
            continue;
        }
        let is = after.next()?;
        // The last of a repeated member counts.
        if was.key != is.key || changed.contains_key(&is.key) {
            return None;
        }
        if was.value != is.value {
            let is_last = before.rest() == after.rest()
                && matches!(is.key, Cow::Borrowed(key) if !after.rest().contains(&format!("\"{key}\"")));
            changed.insert(is.key, (Some(was.value), Some(is.value)));
            if is_last {
                return Some(changed);
            }
        }
    }
}

/// The length of the common prefix, in bytes.
fn shared(one: &[u8], other: &[u8]) -> usize {
    let blocks = one.chunks(64).zip(other.chunks(64)).take_while(|(one, other)| one == other);
    let same: usize = blocks.map(|(block, _)| block.len()).sum();
    let rest = one.iter().zip(other).skip(same).take_while(|(one, other)| one == other);
    same + rest.count()
}

fn pair(member: Member<'_>) -> (Cow<'_, str>, &str) {
    (member.key, member.value)
}

/// Writes the `raw` document with the edits in it: `from` are the members of it that were looked at, and `to` is what
/// became of them.
fn splice(raw: &str, from: &Value, to: &Value, out: &mut Vec<u8>) -> Result<(), PatchError> {
    let write = |value: &Value, out: &mut Vec<u8>| serde_json::to_writer(out, value).map_err(PatchError::Write);
    let (Value::Object(from), Value::Object(to)) = (from, to) else { return write(to, out) };
    out.push(b'{');
    let start = out.len();
    let comma = |out: &mut Vec<u8>| {
        if out.len() > start {
            out.push(b',');
        }
    };
    for member in members(raw) {
        match (from.get(&*member.key), to.get(&*member.key)) {
            (None, _) => {
                comma(out);
                out.extend_from_slice(raw.get(member.from..member.to()).unwrap_or_default().as_bytes());
            }
            (Some(from), Some(to)) => {
                comma(out);
                out.extend_from_slice(
                    raw.get(member.from..member.to() - member.value.len()).unwrap_or_default().as_bytes(),
                );
                splice(member.value, from, to, out)?;
            }
            (Some(_), None) => {}
        }
    }
    for (key, value) in to.iter().filter(|(key, _)| !from.contains_key(*key)) {
        comma(out);
        serde_json::to_writer(&mut *out, key).map_err(PatchError::Write)?;
        out.push(b':');
        write(value, out)?;
    }
    out.push(b'}');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_members_are_found_wherever_they_are() {
        let cases = [
            (r#"{"a":1,"b":2,"c":3}"#, r#"{"a":1,"b":2,"c":3}"#, vec![]),
            (r#"{"a":1,"b":2,"c":3}"#, r#"{"a":9,"b":2,"c":3}"#, vec!["a"]),
            (r#"{"a":1,"b":2,"c":3}"#, r#"{"a":1,"b":9,"c":3}"#, vec!["b"]),
            (r#"{"a":1,"b":2,"c":3}"#, r#"{"a":1,"b":2,"c":31}"#, vec!["c"]),
            (r#"{"a":1,"b":2,"c":3}"#, r#"{"a":12,"b":2,"c":4}"#, vec!["a", "c"]),
            (r#"{"a":1,"b":2}"#, r#"{"a":1,"b":2,"c":3}"#, vec!["c"]),
            (r#"{"a":1,"b":2,"c":3}"#, r#"{"a":1,"b":2}"#, vec!["c"]),
            (r#"{"b":2}"#, r#"{"a":1,"b":2}"#, vec!["a"]),
            (r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#, vec![]),
            ("{}", r#"{"a":1}"#, vec!["a"]),
            ("{}", "{}", vec![]),
            // The last of a repeated member counts.
            (r#"{"a":1,"a":2}"#, r#"{"a":3,"a":2}"#, vec![]),
            (r#"{"a":1,"a":2}"#, r#"{"a":1,"a":3}"#, vec!["a"]),
            (r#"{"a\"":1,"a\"":2}"#, r#"{"a\"":3,"a\"":2}"#, vec![]),
        ];
        for (before, after, expected) in cases {
            let changed = changed(before, after);
            assert_eq!(changed.keys().collect::<Vec<_>>(), expected, "{before} {after}");
        }
    }
}
