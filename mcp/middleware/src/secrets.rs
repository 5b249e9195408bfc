//! Values that a RunConfig only names.

use std::collections::BTreeMap;
use std::fmt;

/// The secrets that a proxy was given, by their identifiers. Its `Debug` shows those alone.
#[derive(Clone, Default)]
pub struct Secrets(BTreeMap<String, String>);

/// The value of one secret. Its `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps `value`.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value. Show it to nobody but whom it is for.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("REDACTED")
    }
}

impl Secrets {
    /// The value of `identifier`, when there is one that is not empty.
    pub fn get(&self, identifier: &str) -> Option<&str> {
        self.0.get(identifier).map(String::as_str).filter(|value| !value.is_empty())
    }
}

impl FromIterator<(String, String)> for Secrets {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(secrets: I) -> Self {
        Self(secrets.into_iter().collect())
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
