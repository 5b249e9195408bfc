//! Validators in place of admission, while webhooks are off.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use serde_json::Value;

use super::Key;

/// Type of the condition that says whether the validators accept an object.
pub const VALID: &str = "Valid";

/// The validators' verdict on a stored object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Validation {
    /// The problem, in one sentence; `None` if the object is valid.
    pub problem: Option<String>,
    /// Warnings for the object's author.
    pub warnings: Vec<String>,
}

/// Validators that a controller evaluates on stored objects while webhooks are off. With the feature `webhook`,
/// `Webhooks` of `portcullis-webhook` implements it with the registered validators.
pub trait Validators: Send + Sync + 'static {
    /// Evaluates the object.
    ///
    /// # Errors
    /// When a validator could not decide: the object is evaluated again later, and its condition stays as it is.
    fn validate<'a>(&'a self, object: &'a Value) -> BoxFuture<'a, Result<Validation, String>>;
}

/// The validators of an operator whose webhooks are off, and what they reported.
pub(super) struct OfflineValidation {
    pub(super) validators: Arc<dyn Validators>,
    /// The last message about each object, with its uid. It keeps a message from being repeated where the object's
    /// status has no condition `Valid`.
    reported: Mutex<HashMap<Key, (String, String)>>,
}

impl OfflineValidation {
    pub(super) fn new(validators: Arc<dyn Validators>) -> Self {
        Self { validators, reported: Mutex::default() }
    }

    /// Whether this message is new. One that the condition has already is not, whichever replica wrote it.
    pub(super) fn is_news(&self, key: &Key, uid: &str, message: Option<&str>) -> bool {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(message) = message else { return reported.remove(key).is_some() };
        let now = (uid.to_owned(), message.to_owned());
        let before = reported.insert(key.clone(), now.clone());
        before != Some(now)
    }

    /// Removes the message of an object that is deleted or being deleted.
    pub(super) fn forget(&self, key: &Key) {
        self.is_news(key, "", None);
    }
}
