//! The conversion engine on two kinds: the guide's, and one whose versions lose in every way there is.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
#![allow(missing_docs, unreachable_pub, reason = "tests")]

mod bad_objects;
mod bounds;
mod buffered;
mod edits;
mod graph;
mod kinds;
mod laws;
mod metadata;
mod panics;
mod partial;
mod pruning;
mod reviews;
mod room;
mod tampered;
mod unknown;

use portcullis_convert::{Converted, Engine, PROBLEM, STASH};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Converts the text of an object to a version such as `v2`.
fn convert_text(engine: &Engine, object: &str, version: &str) -> Converted {
    let raw: &RawValue = serde_json::from_str(object).unwrap();
    engine.convert(raw, &format!("demo.example/{version}")).unwrap()
}

/// Converts an object that must not be flagged.
fn convert(engine: &Engine, object: &Value, version: &str) -> Value {
    let converted = convert_text(engine, &object.to_string(), version);
    assert_eq!(converted.problem, None, "{object} to {version}");
    read(&converted)
}

fn read(converted: &Converted) -> Value {
    let object: Value = serde_json::from_str(&converted.object).unwrap();
    if converted.from != converted.to {
        let flagged = object["metadata"]["annotations"].get(PROBLEM).is_some();
        assert_eq!(flagged, converted.problem.is_some(), "{object}");
    }
    object
}

/// Returns the stash of an object.
fn stash(object: &Value) -> Value {
    object["metadata"]["annotations"]
        .get(STASH)
        .map_or(json!({}), |text| serde_json::from_str(text.as_str().unwrap()).unwrap())
}

/// The object without the engine's annotations.
fn bare(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut()
        && let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut)
    {
        annotations.remove(STASH);
        annotations.remove(PROBLEM);
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    object
}
