//! The Secrets and ConfigMaps that a workload and its configurations refer to.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::{CONFIG_MAP, Content, Entries, Entry, SECRET};
use crate::{digest::digest, problem::Problem};

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

/// A value of a Secret or ConfigMap that something cannot do without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needed {
    /// The field that names it.
    pub field: Cow<'static, str>,
    /// The object that has it.
    pub source: Source,
    /// Its key there.
    pub key: String,
    /// Its use.
    pub content: Content,
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
        self.entries(source)?.get(key)
    }

    /// The problems of those values that do not exist, and of those that cannot be used. A value has each of them once, at the first field
    /// that names it.
    pub fn faults(&self, needed: impl IntoIterator<Item = Needed>) -> [Vec<Problem>; 2] {
        let (mut faults, mut said) = ([Vec::new(), Vec::new()], BTreeSet::new());
        for Needed { field, source, key, content } in needed {
            let found = self.absence(&source, &key).map(|message| (0, message));
            let found = found.or_else(|| Some((1, self.problem(&source, &key, &content)?)));
            if let Some((at, message)) = found.filter(|(_, message)| said.insert(message.clone())) {
                faults[at].push(Problem::new(field, message));
            }
        }
        faults
    }

    /// The sentence that there is no such entry, with the fix, if there is none.
    pub fn absence(&self, source: &Source, key: &str) -> Option<String> {
        let (kind, name) = (source.kind(), source.name());
        match self.entries(source) {
            None => Some(format!("{kind} {name:?} does not exist; create it with the key {key:?}")),
            Some(entries) if !entries.contains_key(key) => Some(format!("{kind} {name:?} has no key {key:?}; add it")),
            Some(_) => None,
        }
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

    fn entries(&self, source: &Source) -> Option<&BTreeMap<String, Entry>> {
        match source {
            Source::Secret(name) => self.secrets.get(name),
            Source::ConfigMap(name) => self.config_maps.get(name),
        }
    }
}
