//! Validators in the place of admission, while webhooks are off.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use serde_json::Value;

use super::Key;

/// Type of the condition that says whether the validators accept an object.
pub const VALID: &str = "Valid";

/// What validators say of a stored object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Validation {
    /// What is wrong with it, in one sentence; `None` if it is valid.
    pub problem: Option<String>,
    /// What its author should know beside that.
    pub warnings: Vec<String>,
}

/// Validators that a controller evaluates on stored objects while webhooks are off. With the feature `webhook`,
/// `Webhooks` of `portcullis-webhook` implements it with the registered validators.
pub trait Validity: Send + Sync + 'static {
    /// Evaluates the object.
    ///
    /// # Errors
    /// When a validator could not decide: the object is evaluated again later, and its condition stays as it is.
    fn validate<'a>(&'a self, object: &'a Value) -> BoxFuture<'a, Result<Validation, String>>;
}

/// The rules of an operator whose webhooks are off.
pub(super) struct Validators {
    pub(super) validity: Arc<dyn Validity>,
    /// What was said of objects that are there, with their uid: of those whose status keeps no such condition, it is
    /// said once all the same.
    told: Mutex<HashMap<Key, (String, String)>>,
}

impl Validators {
    pub(super) fn new(validity: Arc<dyn Validity>) -> Self {
        Self { validity, told: Mutex::default() }
    }

    /// Whether this is news. What the condition says already is not, whoever wrote it.
    pub(super) fn is_news(&self, key: &Key, uid: &str, message: Option<&str>) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(message) = message else { return told.remove(key).is_some() };
        let now = (uid.to_owned(), message.to_owned());
        let before = told.insert(key.clone(), now.clone());
        before != Some(now)
    }

    /// An object is gone, or going.
    pub(super) fn forget(&self, key: &Key) {
        self.is_news(key, "", None);
    }
}
