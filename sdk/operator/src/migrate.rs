//! `migrate-storage`: every stored object in the storage version.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use portcullis_migrate::{Options, migrate};

use super::connect::answering;
use super::flags::Output;
use super::shutdown::Signals;

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
        migrate(operator, client, crds, &options, say).await
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
    match report.unfinished() {
        None => Ok(()),
        Some(names) => bail!("not migrated: {names}"),
    }
}

/// Progress goes to standard error, line by line; nothing is left to do when that is closed.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
