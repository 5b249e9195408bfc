//! What became of a migration, for people and for programs.

use std::fmt;

use serde::Serialize;

use crate::objects::Tally;

/// All kinds.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Nothing was written: the API server checked each write.
    pub dry_run: bool,
    /// By CRD.
    pub crds: Vec<Kind>,
}

/// One kind.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Kind {
    /// Name of the CRD.
    pub name: String,
    /// The version that objects are stored in.
    pub storage_version: String,
    /// `status.storedVersions` at the end.
    pub stored_versions: Vec<String>,
    /// Counts of its objects.
    #[serde(flatten)]
    pub tally: Tally,
    /// How it ended.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// How it ended.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", content = "problem", rename_all = "camelCase")]
pub enum Outcome {
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
    pub(crate) fn new(name: &str) -> Self {
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
    pub fn unfinished(&self) -> Option<String> {
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
