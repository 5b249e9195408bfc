//! Values that a RunConfig only names.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use mcp_http::TokenFile;
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

/// The place of a secret. A line break at its end does not count: files that Secrets are made of end with one more often than not. A secret that is
/// blank is a failure, wherever it stands.
#[derive(Clone, Debug, Default)]
pub enum SecretSource {
    /// There is none.
    #[default]
    None,
    /// The environment or the document has it. An empty one counts as none.
    Given(Secret),
    /// It is the content of a file that the environment names, which is read again each time.
    File(PathBuf),
    /// It is the content of a file that the document names, which is read again each time.
    Named(TokenFile),
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
    /// A sentence about the file, or about a secret that is blank.
    pub fn read(&self) -> Result<Option<Secret>, String> {
        let (place, bytes) = match self {
            Self::None => return Ok(None),
            Self::Given(secret) if secret.reveal().is_empty() => return Ok(None),
            Self::Given(secret) => ("that the proxy was given".to_owned(), secret.reveal().into()),
            Self::File(path) => (format!("in {}", path.display()), read_file(path)?),
            Self::Named(file) => (format!("in {file}"), file.read()?),
        };
        let text = String::from_utf8(bytes).map_err(|_| format!("the secret {place} is no text"))?;
        let secret = unbroken(&text).ok_or_else(|| format!("the secret {place} is blank"))?;
        Ok(Some(Secret::new(secret)))
    }
}

/// A secret without the line breaks at its end; `None` for one that is blank.
fn unbroken(text: &str) -> Option<&str> {
    Some(text.trim_end_matches(['\r', '\n'])).filter(|text| !text.trim().is_empty())
}

impl Secrets {
    /// The value of `identifier` without the line breaks at its end, when there is one that is not blank.
    pub fn get(&self, identifier: &str) -> Option<&str> {
        self.0.get(identifier).and_then(|value| unbroken(value))
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
    fn a_secret_is_the_same_wherever_it_stands_and_never_blank() {
        let folder = tempfile::tempdir().unwrap();
        for (at, (text, expected)) in [
            ("hunter2", Ok("hunter2")),
            ("hunter2\r\n\n", Ok("hunter2")),
            (" hunter2 \n", Ok(" hunter2 ")),
            ("\n", Err("is blank")),
            (" \r\n", Err("is blank")),
            ("\u{a0}\n", Err("is blank")),
        ]
        .into_iter()
        .enumerate()
        {
            let path = folder.path().join(at.to_string());
            std::fs::write(&path, text).unwrap();
            let named = TokenFile::new(path.to_str().unwrap(), None).unwrap();
            let name = path.display().to_string();
            for (source, place) in [
                (SecretSource::Given(Secret::new(text)), "that the proxy was given"),
                (SecretSource::File(path.clone()), &*name),
                (SecretSource::Named(named), &*name),
            ] {
                match (source.read(), expected) {
                    (Ok(Some(secret)), Ok(expected)) => assert_eq!(secret.reveal(), expected, "{source:?}"),
                    (Err(error), Err(expected)) => {
                        assert!(error.contains(place) && error.contains(expected), "{error}");
                    }
                    (other, _) => panic!("{source:?} {text:?}: {other:?}"),
                }
            }
            let secrets: Secrets = [("s".to_owned(), text.to_owned())].into_iter().collect();
            assert_eq!(secrets.get("s"), expected.ok(), "{text:?}");
        }
    }

    #[test]
    fn a_file_that_holds_nothing_or_no_text_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        for (content, problem) in [(&b""[..], "is empty"), (&b"\xff"[..], "is no text")] {
            std::fs::write(&path, content).unwrap();
            let error = SecretSource::File(path.clone()).read().unwrap_err();
            assert!(error.contains(&path.display().to_string()) && error.contains(problem), "{error}");
        }
    }
}
