//! Migrates stored objects: writes every object of a CRD again, in its storage version.
//!
//! An object stays in etcd in the version in which it was written last. So a version cannot be taken out of a CRD
//! before every object has been written since, and `status.storedVersions` says which versions there may still be. This
//! writes every object again, without a change, and then takes the other versions out of that list. Nothing is
//! remembered between runs: what is in the storage version already is not written again, so a run that was ended in the
//! middle is finished by the next.

mod error;
mod objects;
mod plan;
mod report;
mod tries;

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use tokio::time::{Instant, sleep};

pub use error::MigrateError;
pub use objects::{Refusal, Refused, Tally};
pub use report::{Kind, Outcome, Report};

use objects::Objects;
use plan::Plan;
use tries::tried;

/// The time that the API server gets to pick up the CRD's storage version.
const TAKEN_UP: Duration = Duration::from_secs(30);
/// The pause between two looks at it.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// Options of [`migrate`]: which kinds, into which version, and whether anything is written.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Kinds, plurals or names of CRDs; all CRDs when empty.
    pub kinds: Vec<String>,
    /// Version that the CRDs in the cluster have to store objects in; by default the storage version of each given CRD.
    pub storage_version: Option<String>,
    /// Lets the API server check every write without storing anything.
    pub dry_run: bool,
}

/// Migrates the chosen kinds of `crds`, one after the other, as the field manager `<operator>-migrate-storage`. Calls
/// `progress` with a line of text before each kind and after each page of objects. A kind that cannot be migrated does
/// not stop the others: the report has its error.
///
/// # Errors
/// [`MigrateError::NoCrds`] and [`MigrateError::UnknownKind`], before any request.
pub async fn migrate(
    operator: &str,
    client: Client,
    crds: &[CustomResourceDefinition],
    options: &Options,
    progress: impl Fn(&str),
) -> Result<Report, MigrateError> {
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
fn chosen<'a>(crds: &'a [CustomResourceDefinition], kinds: &[String]) -> Result<Vec<Chosen<'a>>, MigrateError> {
    let names_of = |crd: &CustomResourceDefinition| {
        let (names, group) = (&crd.spec.names, &crd.spec.group);
        [format!("{}.{group}", names.plural), names.kind.clone(), names.plural.clone()]
    };
    if crds.is_empty() {
        return Err(MigrateError::NoCrds);
    }
    if let Some(unknown) = kinds.iter().find(|kind| !crds.iter().any(|crd| names_of(crd).contains(kind))) {
        let known = crds.iter().map(|crd| crd.spec.names.kind.clone()).collect();
        return Err(MigrateError::UnknownKind { kind: unknown.clone(), known });
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
            Err(error) => Outcome::Stopped(error),
        };
        kind
    }

    async fn migrate(&self, kind: &mut Kind) -> Result<Outcome, MigrateError> {
        let api: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let crd = tried(|| api.get(self.name)).await.map_err(MigrateError::api(format!("read CRD {}", self.name)))?;
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
    fn stores_in_the_target(&self, plan: &Plan) -> Result<(), MigrateError> {
        match self.target {
            Some(target) if target != plan.storage => Err(MigrateError::OtherStorageVersion {
                crd: self.name.to_owned(),
                storage: plan.storage.clone(),
                expected: target.to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// Waits until the API server says that it stores in the storage version: a moment after the CRD was changed it may
    /// not yet, and what it wrote then would be taken for migrated.
    async fn taken_up(&self, plan: &Plan) -> Result<(), MigrateError> {
        let deadline = Instant::now() + TAKEN_UP;
        loop {
            let list = || self.client.list_api_group_resources(&plan.group_version);
            let taken_up = match tried(list).await {
                Ok(resources) => plan.stored_as(&resources),
                // One that is not served is not described; that it is gone says that this CRD is in force.
                Err(error) if error.code() == Some(404) => !plan.served,
                Err(error) => return Err(MigrateError::api(format!("discover {}", plan.group_version))(error)),
            };
            if taken_up {
                return Ok(());
            }
            if deadline < Instant::now() {
                return Err(MigrateError::NotTakenUp { version: plan.storage.clone() });
            }
            sleep(ASK_AGAIN).await;
        }
    }

    /// Takes the other versions out of the list, if the CRD is still the one for which the objects were written.
    async fn prune(&self, api: &Api<CustomResourceDefinition>, plan: &Plan) -> Result<(), MigrateError> {
        let action = "write status.storedVersions of the CRD";
        let patch = serde_json::from_value(plan.prune())
            .map_err(|error| MigrateError::Api { action: action.to_owned(), reason: error.to_string() })?;
        let patch: Patch<()> = Patch::Json(patch);
        let params = PatchParams::default();
        match tried(|| api.patch_status(self.name, &params, &patch)).await {
            Ok(_) => Ok(()),
            // The test of the patch: what it met, the API server does not say.
            Err(error) if error.code() == Some(422) => Err(MigrateError::Changed),
            Err(error) => Err(MigrateError::api(action)(error)),
        }
    }
}
