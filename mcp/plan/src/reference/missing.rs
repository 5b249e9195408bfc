//! References to objects that do not exist yet.

use std::collections::BTreeSet;

use super::Reference;

/// The references to objects of which `exists` says, by kind and name, that they do not exist: one for each object. `None` of it
/// is no answer.
pub fn missing(references: &[Reference], exists: impl Fn(&str, &str) -> Option<bool>) -> Vec<&Reference> {
    let mut said = BTreeSet::new();
    let absent = references.iter().filter(|reference| exists(&reference.kind, &reference.name) == Some(false));
    absent.filter(|reference| said.insert((&reference.kind, &reference.name))).collect()
}

impl Reference {
    /// The warning that its object does not exist yet.
    pub fn warning(&self) -> String {
        let Self { kind, name, field, while_missing, .. } = self;
        format!("{field}: {kind} {name:?} does not exist yet; {while_missing}")
    }
}
