//! What became of a migration, for people and for programs.

use std::fmt;

use serde::Serialize;

use super::objects::Tally;

/// All kinds.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    pub(super) dry_run: bool,
    pub(super) crds: Vec<Kind>,
}

/// One kind.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Kind {
    pub(super) name: String,
    pub(super) storage_version: String,
    /// `status.storedVersions` at the end.
    pub(super) stored_versions: Vec<String>,
    #[serde(flatten)]
    pub(super) tally: Tally,
    #[serde(flatten)]
    pub(super) outcome: Outcome,
}

/// How it ended.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", content = "problem", rename_all = "camelCase")]
pub(super) enum Outcome {
    /// Nothing was stored in another version.
    NothingToDo,
    /// Everything is in the storage version, and the list says so.
    Migrated,
    /// Everything could be written.
    DryRun,
    /// Some objects could not be written, so the list stays as it is.
    Refused,
    /// It could not be brought to an end.
    Stopped(String),
}

impl Kind {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            storage_version: String::new(),
            stored_versions: Vec::new(),
            tally: Tally::default(),
            outcome: Outcome::NothingToDo,
        }
    }
}

impl Report {
    /// The kinds that are not migrated, if any.
    pub(super) fn unfinished(&self) -> Option<String> {
        let unfinished = |kind: &&Kind| matches!(kind.outcome, Outcome::Refused | Outcome::Stopped(_));
        let names: Vec<_> = self.crds.iter().filter(unfinished).map(|kind| kind.name.as_str()).collect();
        (!names.is_empty()).then(|| names.join(", "))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for kind in &self.crds {
            let Kind { name, storage_version: version, stored_versions, tally, outcome } = kind;
            let Tally { rewritten, unchanged, gone, refused, .. } = tally;
            let counts = format!("{rewritten} rewritten, {unchanged} as they were, {gone} gone meanwhile");
            match outcome {
                Outcome::NothingToDo => writeln!(f, "{name}: all objects are stored in {version}")?,
                Outcome::Migrated => writeln!(f, "{name}: all objects are stored in {version} now: {counts}")?,
                Outcome::DryRun => writeln!(f, "{name}: all {unchanged} objects can be written in {version}")?,
                Outcome::Refused => {
                    let stay = stored_versions.join(", ");
                    writeln!(
                        f,
                        "{name}: {} objects are refused, so stored versions stay {stay}: {counts}",
                        refused.count
                    )?;
                }
                Outcome::Stopped(problem) => writeln!(f, "{name}: {problem}")?,
            }
            for refusal in &refused.objects {
                let place = if refusal.namespace.is_empty() { "" } else { "/" };
                writeln!(f, "  {}{place}{}: {}", refusal.namespace, refusal.name, refusal.reason)?;
            }
        }
        Ok(())
    }
}
