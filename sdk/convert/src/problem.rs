//! The reason why an object does not convert, without any of its values.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use portcullis_review::DecodeError;

/// The reason why an object was converted only in part. Its text ([`Display`](fmt::Display)) has no values of the
/// object.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// Path of the field, such as `spec.ports[0].name`; `.` for the object itself.
    pub path: String,
    /// The problem at that place.
    pub message: String,
    /// Message of the error that a converter returned, with its sources. It may contain values of the object, so it
    /// belongs in the log only, and neither in the object nor in the response.
    pub error: Option<String>,
}

impl Problem {
    /// Something about the object as a whole.
    pub(crate) fn whole(message: String) -> Self {
        Self { path: ".".to_owned(), message, error: None }
    }

    /// A converter failed with this error.
    pub(crate) fn of_converter(message: String, error: String) -> Self {
        Self { error: Some(error), ..Self::whole(message) }
    }

    /// The object does not decode as its version.
    pub(crate) fn reading(version: &str, error: &DecodeError) -> Self {
        Self {
            path: shortened(&error.path),
            message: format!("{} (read as {version})", without_values(&error.problem)),
            error: None,
        }
    }

    /// Whether the type requires a field that the object lacks, or that is null where everything in it was removed.
    pub(crate) fn is_missing_field(&self) -> bool {
        ["missing field `", "invalid type: null"].iter().any(|begin| self.message.starts_with(begin))
    }
}

/// Keys of maps are the user's, and the path goes into an annotation: its end says the most.
fn shortened(path: &str) -> String {
    const MOST: usize = 512;
    let (mut from, mut text) = (path.len().saturating_sub(MOST), String::new());
    if from > 0 {
        while !path.is_char_boundary(from) {
            from += 1;
        }
        text.push('…');
    }
    text + &path[from..]
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// Runs code of the user's types and converters; None where it panics. The message of a panic may hold values of the
/// object, so only the panic hook writes it.
pub(crate) fn unless_it_panics<T>(run: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(run))
        .map_err(|panic| {
            // A panic payload can be anything, even a value that panics when it is dropped.
            if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
                Box::leak(again);
            }
        })
        .ok()
}

/// serde's messages with the value that was found left out. Other messages may contain any value, so they are not
/// repeated.
fn without_values(message: &str) -> String {
    // The type says what is expected, and that comes last.
    let expected = message.rfind(", expected ").map_or("", |at| &message[at..]);
    if let Some(found) = message.strip_prefix("invalid type: ") {
        return format!("invalid type: {}{expected}", sort(found));
    }
    for begin in ["invalid value", "invalid length", "unknown variant", "unknown field"] {
        if message.starts_with(begin) {
            return format!("{begin}{expected}");
        }
    }
    for begin in ["missing field `", "duplicate field `", "recursion limit exceeded", "number out of range"] {
        if message.starts_with(begin) {
            return message.to_owned();
        }
    }
    "the type refuses the value".to_owned()
}

/// The type of the value that was found, as serde names it.
fn sort(found: &str) -> &'static str {
    const SORTS: [&str; 12] = [
        "boolean",
        "integer",
        "floating point",
        "character",
        "string",
        "byte array",
        "null",
        "sequence",
        "map",
        "enum",
        "Option value",
        "unit value",
    ];
    SORTS.into_iter().find(|sort| found.starts_with(sort)).unwrap_or("another type")
}
