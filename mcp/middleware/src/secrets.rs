//! Values that a RunConfig only names.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use mcp_http::file::read_file;

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

/// Where a secret is that the process was given.
#[derive(Clone, Debug, Default)]
pub enum SecretSource {
    /// There is none.
    #[default]
    None,
    /// It came by the environment. An empty one counts as none.
    Given(Secret),
    /// It is the content of a file, which is read again each time. A line break at its end does not count, and an empty
    /// file is a failure.
    File(PathBuf),
}

impl SecretSource {
    /// The same, with the file of an absolute path below `root`.
    #[must_use]
    pub fn below(self, root: Option<&Path>) -> Self {
        match (self, root) {
            (Self::File(path), Some(root)) => Self::File(root.join(path.strip_prefix("/").unwrap_or(&path))),
            (source, _) => source,
        }
    }

    /// The secret as it is now.
    ///
    /// # Errors
    /// A sentence about the file.
    pub fn read(&self) -> Result<Option<Secret>, String> {
        match self {
            Self::None => Ok(None),
            Self::Given(secret) => Ok(Some(secret.clone()).filter(|secret| !secret.reveal().is_empty())),
            Self::File(path) => {
                let text = String::from_utf8(read_file(path)?)
                    .map_err(|_| format!("the secret in {} is no text", path.display()))?;
                match text.trim_end_matches(['\r', '\n']) {
                    "" => Err(format!("the secret in {} is empty; write it there", path.display())),
                    text => Ok(Some(Secret::new(text))),
                }
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_variable_holds_no_secret_and_none_is_shown() {
        assert_eq!(SecretSource::Given(Secret::new("")).read(), Ok(None));
        let given = SecretSource::Given(Secret::new("hunter2"));
        assert_eq!(given.read().unwrap().unwrap().reveal(), "hunter2");
        assert!(!format!("{given:?}").contains("hunter2"));
    }

    #[test]
    fn an_empty_file_of_a_secret_is_a_failure() {
        let file = std::env::temp_dir().join(format!("empty-secret-{}", std::process::id()));
        std::fs::write(&file, "\n").unwrap();
        let read = SecretSource::File(file.clone()).read();
        std::fs::remove_file(file).unwrap();
        assert!(read.unwrap_err().contains("is empty"));
    }
}
