//! The old object of an update, which is decoded only for handlers that read it.

use std::fmt;
use std::sync::Arc;

use portcullis_review::{BoxError, DecodeError, Request};
use serde::de::DeserializeOwned;

use super::admit::{decoded, undecoded};
use super::decision::Failure;
use super::settings::Settings;

/// The stored object that an update changes. It is decoded when a [`Validator`](super::Validator) or a
/// [`Mutator`](super::Mutator) asks for it, so that a rule for the new object alone costs no second decoding, and lets
/// an update repair an object that does not decode any more.
///
/// ```
/// use std::sync::Arc;
/// use portcullis_webhook::OldObject;
/// # use k8s_openapi::api::core::v1::ConfigMap;
///
/// let old = OldObject::from(Arc::new(ConfigMap::default()));
/// assert_eq!(old.decode()?.data, None);
/// # Ok::<(), portcullis_webhook::OldObjectError>(())
/// ```
pub struct OldObject<'a, T>(Stored<'a, T>);

enum Stored<'a, T> {
    Text { text: &'a str, managed_fields: bool },
    Decoded(Arc<T>),
}

/// An old object that does not decode as the type of the webhook. Return it from a handler, with `?`: the request is
/// then denied with the path of the field.
#[derive(Debug, thiserror::Error)]
#[error("the stored object does not decode at {}", .0.path)]
pub struct OldObjectError(DecodeError);

impl<'a, T> OldObject<'a, T> {
    pub(super) fn new(text: &'a str, settings: &Settings) -> Self {
        Self(Stored::Text { text, managed_fields: settings.managed_fields })
    }
}

impl<T: DeserializeOwned> OldObject<'_, T> {
    /// Decodes the object.
    ///
    /// # Errors
    /// When the object does not decode as `T`, as one that was stored before the type changed.
    pub fn decode(&self) -> Result<Arc<T>, OldObjectError> {
        match &self.0 {
            Stored::Decoded(object) => Ok(Arc::clone(object)),
            Stored::Text { text, managed_fields } => {
                decoded(text, *managed_fields).map(Arc::new).map_err(OldObjectError)
            }
        }
    }
}

impl OldObjectError {
    pub(super) fn denial(&self, request: &Request<'_>) -> Failure {
        undecoded(request, &self.0, "the stored object")
    }
}

/// Returns the failure of a handler, or the denial where the handler passes on that the old object does not decode.
pub(super) fn failure(error: BoxError, request: &Request<'_>) -> Failure {
    match error.downcast_ref::<OldObjectError>() {
        Some(undecoded) => undecoded.denial(request),
        None => Failure::Handler(error),
    }
}

/// For a controller or a test that calls a method for updates.
impl<T> From<Arc<T>> for OldObject<'_, T> {
    fn from(object: Arc<T>) -> Self {
        Self(Stored::Decoded(object))
    }
}

impl<T> fmt::Debug for OldObject<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OldObject").finish_non_exhaustive()
    }
}
