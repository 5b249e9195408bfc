//! Helpers for documents and strings as JSON.

use serde_json::Value;

/// An object without `apiVersion`, `kind` and `metadata`. Always a [`Value::Object`].
pub(crate) type Document = Value;

/// Appends a JSON string.
pub(crate) fn write_string(out: &mut Vec<u8>, text: &str) {
    // Serialising a string to memory cannot fail.
    let _ = serde_json::to_writer(out, text);
}

/// Appends the members of a document, each with a comma before it.
pub(crate) fn write_members(out: &mut Vec<u8>, document: &Document) {
    for (key, value) in document.as_object().into_iter().flatten() {
        out.push(b',');
        write_string(out, key);
        out.push(b':');
        // Serialising a document to memory cannot fail.
        let _ = serde_json::to_writer(&mut *out, value);
    }
}
