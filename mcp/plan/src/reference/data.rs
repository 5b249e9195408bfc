//! The Secrets and ConfigMaps that a workload and its configurations refer to.

use std::{collections::BTreeSet, fmt};

use super::{CONFIG_MAP, Content, Entries, Entry, SECRET};
use crate::digest::digest;

/// The referenced Secrets and ConfigMaps that exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Data {
    /// The Secrets.
    pub secrets: Entries,
    /// The ConfigMaps.
    pub config_maps: Entries,
}

/// An object with entries that a pod can use.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The Secret of this name.
    Secret(String),
    /// The ConfigMap of this name.
    ConfigMap(String),
}

// === impl Source ===

impl Source {
    /// Its kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Secret(_) => SECRET,
            Self::ConfigMap(_) => CONFIG_MAP,
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        let (Self::Secret(name) | Self::ConfigMap(name)) = self;
        name
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), self.name())
    }
}

// === impl Data ===

impl Data {
    /// The entry under this key, if it exists.
    pub fn entry(&self, source: &Source, key: &str) -> Option<&Entry> {
        let found = match source {
            Source::Secret(name) => self.secrets.get(name),
            Source::ConfigMap(name) => self.config_maps.get(name),
        };
        found?.get(key)
    }

    /// `SOURCE/KEY` of every pair that does not exist, sorted, each once.
    pub fn missing(&self, wanted: impl Iterator<Item = (Source, String)>) -> Vec<String> {
        let missing: BTreeSet<_> = wanted
            .filter(|(source, key)| self.entry(source, key).is_none())
            .map(|(source, key)| format!("{source}/{key}"))
            .collect();
        missing.into_iter().collect()
    }

    /// The reason why an entry cannot be used as `content`, if it exists and there is one.
    pub fn problem(&self, source: &Source, key: &str, content: &Content) -> Option<String> {
        let of_secret = |secret: &str, key: &str| self.secrets.get(secret).and_then(|entries| entries.get(key));
        let problem = self.entry(source, key)?.problem(content, of_secret)?;
        Some(format!("{source}/{key} {problem}"))
    }

    /// A keyed digest of these values of Secrets, by name and key: what reaches a process as environment reaches it
    /// only in a new pod, so a changed value has to roll the pods. None where there are none.
    pub fn checksum<'a>(&self, wanted: impl Iterator<Item = (&'a str, &'a str)>) -> Option<String> {
        let mut lines: Vec<String> = wanted
            .map(|(secret, key)| {
                let entry = self.secrets.get(secret).and_then(|entries| entries.get(key));
                format!("{secret}/{key}={}\n", entry.map_or("", |entry| entry.digest.as_str()))
            })
            .collect();
        lines.sort();
        if lines.is_empty() { None } else { Some(digest(lines.concat().as_bytes())) }
    }
}
