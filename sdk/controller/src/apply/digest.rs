//! The digest of a JSON document, independent of the order of its keys.

use std::fmt::Write as _;
use std::io;

use aws_lc_rs::digest::{Context, Digest, SHA256};
use serde::Serialize;
use serde_json::Value;

/// SHA-256 of `document` with its keys sorted, in lower-case hex.
pub(super) fn of(document: &Value) -> String {
    let mut context = Context::new(&SHA256);
    feed(&mut context, document);
    hex(&context.finish())
}

fn hex(digest: &Digest) -> String {
    digest.as_ref().iter().fold(String::with_capacity(64), |mut hex, byte| {
        // Writing to a `String` cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

fn feed(context: &mut Context, value: &Value) {
    match value {
        Value::Object(members) => {
            let mut keys: Vec<&String> = members.keys().collect();
            keys.sort_unstable();
            context.update(b"{");
            for key in keys {
                write(context, key);
                context.update(b":");
                feed(context, &members[key]);
                context.update(b",");
            }
            context.update(b"}");
        }
        Value::Array(elements) => {
            context.update(b"[");
            for element in elements {
                feed(context, element);
                context.update(b",");
            }
            context.update(b"]");
        }
        scalar => write(context, scalar),
    }
}

/// Hashes a key or a scalar as JSON.
fn write(context: &mut Context, scalar: &impl Serialize) {
    // Serialising a scalar or a digest cannot fail.
    let _ = serde_json::to_writer(Sink(context), scalar);
}

struct Sink<'a>(&'a mut Context);

impl io::Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_order_of_keys_does_not_matter_and_every_value_does() {
        let a: Value = serde_json::from_str(r#"{"a":1,"b":{"c":["x","y"],"d":null}}"#).unwrap();
        let b: Value = serde_json::from_str(r#"{"b":{"d":null,"c":["x","y"]},"a":1}"#).unwrap();
        assert_eq!(of(&a), of(&b));
        for other in [
            json!({"a":2,"b":{"c":["x","y"],"d":null}}),
            json!({"a":1,"b":{"c":["y","x"],"d":null}}),
            json!({"a":1,"b":{"c":["x","y"]}}),
            json!({"a":1,"b":{"c":["xy"],"d":null}}),
            json!({"a":"1","b":{"c":["x","y"],"d":null}}),
        ] {
            assert_ne!(of(&a), of(&other), "{other}");
        }
    }
}
