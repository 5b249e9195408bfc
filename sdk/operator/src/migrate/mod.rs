//! `migrate-storage`: every stored object in the storage version.
//!
//! An object stays in etcd in the version in which it was written last. So a version cannot be taken out of a CRD
//! before every object has been written since, and `status.storedVersions` says which versions there may still be. This
//! writes every object again, without a change, and then takes the other versions out of that list. Nothing is
//! remembered between runs: what is in the storage version already is not written again, so a run that was ended in the
//! middle is finished by the next.

mod objects;
mod plan;
mod report;
mod tries;

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use tokio::time::{Instant, sleep};

use super::cli::Output;
use super::connect::answering;
use super::run::Signals;
use objects::{Objects, Tally};
use plan::Plan;
use report::{Kind, Outcome, Report};
use tries::tried;

/// How long the API server is given to store in the version that its CRD says.
const TAKEN_UP: Duration = Duration::from_secs(30);
/// How often it is asked.
const ASK_AGAIN: Duration = Duration::from_millis(200);

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

/// [Migrates](migrate), until it is asked to end.
pub(super) async fn perform(
    operator: &str,
    crds: &[CustomResourceDefinition],
    flags: &MigrateFlags,
) -> anyhow::Result<()> {
    let mut signals = Signals::new()?;
    let migration = async {
        let client = answering(flags.kubeconfig.as_deref()).await?;
        migrate(operator, client, crds, flags).await
    };
    tokio::select! {
        result = migration => result,
        name = signals.next() => bail!("ended by {name}; run it again for what is left"),
    }
}

/// Migrates the kinds that the flags choose among `crds`, and prints what became of it.
async fn migrate(
    operator: &str,
    client: Client,
    crds: &[CustomResourceDefinition],
    flags: &MigrateFlags,
) -> anyhow::Result<()> {
    let chosen = chosen(crds, &flags.kinds)?;
    let mut report = Report { dry_run: flags.dry_run, crds: Vec::new() };
    for Chosen { name, storage } in chosen {
        say(&format!("{name}: looking at its stored versions"));
        let target = flags.storage_version.as_deref().or(storage);
        let migration = Migration { operator, client: &client, name: &name, target, dry_run: flags.dry_run };
        report.crds.push(migration.run().await);
    }
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

/// A CRD that is meant.
struct Chosen<'a> {
    name: String,
    /// The storage version that this operator brings it with.
    storage: Option<&'a str>,
}

/// The CRDs that are meant.
fn chosen<'a>(crds: &'a [CustomResourceDefinition], kinds: &[String]) -> anyhow::Result<Vec<Chosen<'a>>> {
    let names_of = |crd: &CustomResourceDefinition| {
        let (names, group) = (&crd.spec.names, &crd.spec.group);
        [format!("{}.{group}", names.plural), names.kind.clone(), names.plural.clone()]
    };
    if crds.is_empty() {
        bail!("this operator brings no CRDs, so it has nothing to migrate: add them to Operator::crds");
    }
    if let Some(unknown) = kinds.iter().find(|kind| !crds.iter().any(|crd| names_of(crd).contains(kind))) {
        let known: Vec<_> = crds.iter().map(|crd| crd.spec.names.kind.as_str()).collect();
        bail!("--kind {unknown} is none of this operator's; it brings {}", known.join(", "));
    }
    let chosen = crds.iter().filter_map(|crd| {
        let names = names_of(crd);
        let meant = kinds.is_empty() || kinds.iter().any(|kind| names.contains(kind));
        let storage = crd.spec.versions.iter().find(|version| version.storage).map(|version| version.name.as_str());
        let [name, ..] = names;
        meant.then_some(Chosen { name, storage })
    });
    Ok(chosen.collect())
}

/// Progress goes to standard error, line by line; nothing is left to do when that is closed.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// The migration of one kind.
struct Migration<'a> {
    operator: &'a str,
    client: &'a Client,
    name: &'a str,
    /// The version that the CRD in the cluster has to store in; any when there is none.
    target: Option<&'a str>,
    dry_run: bool,
}

impl Migration<'_> {
    async fn run(&self) -> Kind {
        let mut kind = Kind::new(self.name);
        kind.outcome = match self.migrate(&mut kind).await {
            Ok(outcome) => outcome,
            Err(error) => Outcome::Stopped(format!("{error:#}")),
        };
        kind
    }

    async fn migrate(&self, kind: &mut Kind) -> anyhow::Result<Outcome> {
        let api: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let crd = tried(|| api.get(self.name)).await.with_context(|| format!("cannot read CRD {}", self.name))?;
        let plan = Plan::of(&crd)?;
        kind.storage_version.clone_from(&plan.storage);
        kind.stored_versions.clone_from(&plan.stored);
        self.stores_in_the_target(&plan)?;
        if plan.settled() {
            return Ok(Outcome::NothingToDo);
        }
        self.taken_up(&plan).await?;
        let params = PatchParams {
            dry_run: self.dry_run,
            field_manager: Some(format!("{}-migrate-storage", self.operator)),
            ..PatchParams::default()
        };
        let mut objects = Objects::new(self.client, &plan, params);
        let rewritten = objects.rewrite(|done, left| {
            let total = left.map_or_else(|| "all".to_owned(), |left| (done + left).to_string());
            say(&format!("{}: {done} of {total} objects", self.name));
        });
        let result = rewritten.await;
        kind.tally = objects.tally;
        result?;
        let Tally { refused, .. } = &kind.tally;
        if refused.count > 0 {
            return Ok(Outcome::Refused);
        }
        if self.dry_run {
            return Ok(Outcome::DryRun);
        }
        self.prune(&api, &plan).await?;
        kind.stored_versions = vec![plan.storage];
        Ok(Outcome::Migrated)
    }

    /// Refuses a CRD whose storage version is not the one that is meant. With a CRD from before an upgrade, everything
    /// would be written back into the old version, and the new one pruned, though the operator's next CRD stores in it.
    fn stores_in_the_target(&self, plan: &Plan) -> anyhow::Result<()> {
        let (name, storage) = (self.name, &plan.storage);
        match self.target {
            Some(target) if target != storage => bail!(
                "CRD {name} stores objects in {storage} in this cluster, not in {target}: all of them would be written in \
                 {storage}, and the other versions taken out of status.storedVersions. Apply this operator's CRD, with the \
                 flags of the installation, and run it again: generate crds | kubectl apply --server-side -f -; if \
                 {storage} is meant, say --storage-version {storage}"
            ),
            _ => Ok(()),
        }
    }

    /// Waits until the API server says that it stores in the storage version: a moment after the CRD was changed it may
    /// not yet, and what it wrote then would be taken for migrated.
    async fn taken_up(&self, plan: &Plan) -> anyhow::Result<()> {
        let deadline = Instant::now() + TAKEN_UP;
        loop {
            let list = || self.client.list_api_group_resources(&plan.group_version);
            let taken_up = match tried(list).await {
                Ok(resources) => plan.stored_as(&resources),
                // One that is not served is not described; that it is gone says that this CRD is in force.
                Err(error) if error.code() == Some(404) => !plan.served,
                Err(error) => return Err(error).with_context(|| format!("cannot discover {}", plan.group_version)),
            };
            if taken_up {
                return Ok(());
            }
            if deadline < Instant::now() {
                let version = &plan.storage;
                bail!("the API server does not store in version {version} yet, though the CRD says so; run it again");
            }
            sleep(ASK_AGAIN).await;
        }
    }

    /// Takes the other versions out of the list, if the CRD is still the one for which the objects were written.
    async fn prune(&self, api: &Api<CustomResourceDefinition>, plan: &Plan) -> anyhow::Result<()> {
        let patch: Patch<()> = Patch::Json(serde_json::from_value(plan.prune())?);
        let params = PatchParams::default();
        match tried(|| api.patch_status(self.name, &params, &patch)).await {
            Ok(_) => Ok(()),
            // The test of the patch: what it met, the API server does not say.
            Err(error) if error.code() == Some(422) => {
                bail!("the CRD was changed while its objects were written; run it again")
            }
            Err(error) => Err(error).context("cannot write status.storedVersions of the CRD"),
        }
    }
}
