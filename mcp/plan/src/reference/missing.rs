//! Warnings about references to what does not exist yet.

use std::collections::BTreeSet;

use super::Reference;

/// What is known of a kind and a name, in the namespace in question.
pub trait Exists {
    /// Whether an object of this kind and name exists; `None` where that is not known.
    fn exists(&self, kind: &str, name: &str) -> Option<bool>;
}

impl<F: Fn(&str, &str) -> Option<bool>> Exists for F {
    fn exists(&self, kind: &str, name: &str) -> Option<bool> {
        self(kind, name)
    }
}

/// A warning for each reference to an object that does not exist yet, one for each object.
pub fn warnings(references: &[Reference], known: &(impl Exists + ?Sized)) -> Vec<String> {
    let mut said = BTreeSet::new();
    let missing = references.iter().filter(|reference| {
        known.exists(&reference.kind, &reference.name) == Some(false) && said.insert((&reference.kind, &reference.name))
    });
    missing
        .map(|Reference { kind, name, field, while_missing }| {
            format!("{field}: {kind} {name:?} does not exist yet; {while_missing}")
        })
        .collect()
}
