//! The result of a migration, for people and for programs.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::MigrateError;
use crate::objects::Tally;

/// The result of a migration: whether it was a dry run, and what became of each CRD.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Whether it was a dry run: the API server checked each write, and stored nothing.
    pub dry_run: bool,
    /// The chosen CRDs, in the order in which they were migrated.
    pub crds: Vec<Kind>,
}

/// The migration of one CRD: its versions, counts of its objects, and the outcome.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Kind {
    /// Name of the CRD.
    pub name: String,
    /// The version that the API server stores objects in.
    pub storage_version: String,
    /// `status.storedVersions` of the CRD after the migration.
    pub stored_versions: Vec<String>,
    /// Counts of its objects, by what became of each.
    #[serde(flatten)]
    pub tally: Tally,
    /// Whether all objects are in the storage version, and if not, why.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// The result of migrating one CRD.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", content = "problem", rename_all = "camelCase")]
pub enum Outcome {
    /// Nothing had to be written: no object was stored in another version.
    NothingToDo,
    /// All objects are in the storage version, and `status.storedVersions` lists no other.
    Migrated,
    /// The dry run succeeded: the API server would write all objects.
    DryRun,
    /// The API server did not write some objects ([`Tally::refused`]), so `status.storedVersions` is unchanged.
    Refused,
    /// The migration stopped before all objects were written.
    Stopped(#[serde(serialize_with = "as_text")] MigrateError),
}

fn as_text<S: Serializer>(error: &MigrateError, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(error)
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
    /// The names of the CRDs that are not migrated, with commas between them; `None` when all are.
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
