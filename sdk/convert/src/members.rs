//! Writing a typed object without what the engine writes itself: `apiVersion`, `kind` and `metadata`.

use serde::Serialize;

pub(crate) fn write<T: Serialize>(object: &T, out: &mut Vec<u8>) -> serde_json::Result<()> {
    let serde_json::Value::Object(members) = serde_json::to_value(object)? else { return Ok(()) };
    let mut first = true;
    for (key, value) in members.iter().filter(|(key, _)| !matches!(&***key, "apiVersion" | "kind" | "metadata")) {
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        serde_json::to_writer(&mut *out, key)?;
        out.push(b':');
        serde_json::to_writer(&mut *out, value)?;
    }
    Ok(())
}
