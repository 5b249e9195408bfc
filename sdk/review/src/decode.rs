//! Decodes a raw object as a type, or returns the path of the field that does not decode.

use serde::Deserializer;
use serde::de::DeserializeOwned;

use crate::managed_fields::without_managed_fields;

/// An object that does not decode as its type.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct DecodeError {
    /// Path of the field, such as `spec.ports[0].name`; `.` for the object itself.
    pub path: String,
    /// The problem. It may repeat the value: show it to the user who sent the object, but do not log it.
    pub problem: String,
}

/// Decodes an object from JSON. The error has the path of the field that does not decode.
pub fn decode<T: DeserializeOwned>(object: &str) -> Result<T, DecodeError> {
    serde_json::from_str(object).or_else(|_| explain(&mut serde_json::Deserializer::from_str(object)))
}

/// Decodes an object without its `metadata.managedFields` (which field manager owns which field). They are often half
/// of an object and of no use to a handler, and to decode them costs more than to decode all the rest.
pub fn decode_without_managed_fields<T: DeserializeOwned>(object: &str) -> Result<T, DecodeError> {
    let mut from = serde_json::Deserializer::from_str(object);
    T::deserialize(without_managed_fields(&mut from))
        .and_then(|decoded| from.end().map(|()| decoded))
        .or_else(|_| explain(without_managed_fields(&mut serde_json::Deserializer::from_str(object))))
}

/// Decodes a failed object a second time: tracking the path would slow down every object that decodes.
fn explain<'de, T: DeserializeOwned>(
    from: impl Deserializer<'de, Error = serde_json::Error>,
) -> Result<T, DecodeError> {
    serde_path_to_error::deserialize(from)
        .map_err(|error| DecodeError { path: error.path().to_string(), problem: without_position(error.inner()) })
}

/// Line and column count within a slice of a body that the reader never saw.
fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}
