//! `migrate-storage`: every stored object in the storage version.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, anyhow, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use portcullis_migrate::{MigrateError, Options, Outcome, Report, migrate};

use super::connect::answering;
use super::flags::Output;
use super::signals::Signals;

#[derive(clap::Args, Clone, Debug)]
pub(super) struct MigrateFlags {
    /// Kubeconfig file [default: KUBECONFIG, then ~/.kube/config, then the cluster that the process runs in]
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// Only this kind (or plural, or name of a CRD); may be given several times
    #[arg(long = "kind", value_name = "KIND")]
    pub(super) kinds: Vec<String>,
    /// Storage version that the CRD in the cluster must have [default: that of this operator's CRD]
    #[arg(long, value_name = "VERSION")]
    pub(super) storage_version: Option<String>,
    /// Only let the API server check every write
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Format of the report on standard output; progress goes to standard error
    #[arg(long, default_value = "text")]
    pub(super) output: Output,
}

/// Migrates the kinds that the flags choose among `crds` until it is asked to end, and prints what became of it.
pub(super) async fn perform(
    operator: &str,
    crds: &[CustomResourceDefinition],
    flags: &MigrateFlags,
) -> anyhow::Result<()> {
    let mut signals = Signals::new()?;
    let MigrateFlags { kinds, storage_version, dry_run, .. } = flags;
    let options = Options { kinds: kinds.clone(), storage_version: storage_version.clone(), dry_run: *dry_run };
    let migration = async {
        let client = answering(flags.kubeconfig.as_deref()).await?;
        migrate(operator, client, crds, &options, say).await.map_err(in_terms_of_flags)
    };
    let report = tokio::select! {
        result = migration => result?,
        name = signals.next() => bail!("ended by {name}; run it again for what is left"),
    };
    let text = match flags.output {
        Output::Text => report.to_string(),
        Output::Json => serde_json::to_string_pretty(&report)? + "\n",
    };
    std::io::stdout().lock().write_all(text.as_bytes()).context("cannot write to standard output")?;
    advise(&report);
    match report.unfinished() {
        None => Ok(()),
        Some(names) => bail!("not migrated: {names}"),
    }
}

/// Rewords an error for a user who gave flags to a binary instead of options to a function.
fn in_terms_of_flags(error: MigrateError) -> anyhow::Error {
    match error {
        MigrateError::NoCrds => {
            anyhow!("this operator brings no CRDs, so it has nothing to migrate: add them to Operator::crds")
        }
        MigrateError::UnknownKind { kind, known } => {
            anyhow!("--kind {kind} is none of this operator's; it brings {}", known.join(", "))
        }
        error => error.into(),
    }
}

/// Says which commands lead on where a CRD in the cluster has another storage version than this operator's.
fn advise(report: &Report) {
    for kind in &report.crds {
        if let Outcome::Stopped(MigrateError::OtherStorageVersion { storage, .. }) = &kind.outcome {
            say(&format!(
                "{}: apply this operator's CRD, with the flags of the installation, and run it again: generate crds | \
                 kubectl apply --server-side -f -; if {storage} is meant, say --storage-version {storage}",
                kind.name
            ));
        }
    }
}

/// Progress goes to standard error, line by line; nothing is left to do when that is closed.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
