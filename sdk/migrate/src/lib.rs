//! Migrates stored objects: writes every object of a CRD again, in its storage version.
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

use std::time::Duration;

use anyhow::{Context as _, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use tokio::time::{Instant, sleep};

pub use objects::{Refusal, Refused, Tally};
pub use report::{Kind, Outcome, Report};

use objects::Objects;
use plan::Plan;
use tries::tried;

/// How long the API server is given to store in the version that its CRD says.
const TAKEN_UP: Duration = Duration::from_secs(30);
/// How often it is asked.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// What is migrated, and how.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Kinds, plurals or names of CRDs; all CRDs when empty.
    pub kinds: Vec<String>,
    /// Version that the CRDs in the cluster have to store objects in; by default each CRD's own storage version.
    pub storage_version: Option<String>,
    /// The API server checks every write, and writes nothing.
    pub dry_run: bool,
}

/// Migrates the chosen kinds of `crds`, one after the other, as the field manager `<operator>-migrate-storage`. Tells
/// `progress` of each page of objects. What keeps one kind from being migrated is in the report.
///
/// # Errors
/// When no kind is meant, or one that is not among `crds`.
pub async fn migrate(
    operator: &str,
    client: Client,
    crds: &[CustomResourceDefinition],
    options: &Options,
    progress: impl Fn(&str),
) -> anyhow::Result<Report> {
    let chosen = chosen(crds, &options.kinds)?;
    let mut report = Report { dry_run: options.dry_run, crds: Vec::new() };
    for Chosen { name, storage } in chosen {
        progress(&format!("{name}: looking at its stored versions"));
        let target = options.storage_version.as_deref().or(storage);
        let dry_run = options.dry_run;
        let migration = Migration { operator, client: &client, name: &name, target, dry_run, progress: &progress };
        report.crds.push(migration.run().await);
    }
    Ok(report)
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

/// The migration of one kind.
struct Migration<'a> {
    operator: &'a str,
    client: &'a Client,
    name: &'a str,
    /// The version that the CRD in the cluster has to store in; any when there is none.
    target: Option<&'a str>,
    dry_run: bool,
    progress: &'a dyn Fn(&str),
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
            (self.progress)(&format!("{}: {done} of {total} objects", self.name));
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
