//! The controllers of a session: a candidate in the same election as the installed operator's replicas.

use anyhow::{Context as _, bail};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, ListParams, Preconditions};
use kube::{Api, Client, ResourceExt as _};
use portcullis_lease::{Earlier, Record, Scopes};
use tokio::time::{Duration, sleep};
use tokio_util::sync::CancellationToken;

use super::cluster::{call, is_code};
use super::text::say;
use crate::metrics::Metrics;
use crate::names::{LEADER, leaders, release_of};
use crate::operator::Installation;
use crate::operator::health::Health;
use crate::operator::leases::{Election, LeaseFlags, LeaseTiming, Leases};
use crate::operator::tasks::Tasks;
use crate::scopes::Scope;

/// How often it is looked at who leads.
const LOOK: Duration = Duration::from_millis(200);
/// How the identities of sessions begin. No Pod has such a name.
const SESSION: &str = "dev/";

/// What a session has to do with leases.
pub(super) struct Candidate {
    leases: Leases,
    seat: Option<Seat>,
    /// What people are told of it at first.
    pub(super) told: String,
}

/// The Lease by which one process at a time runs the controllers.
struct Seat {
    api: Api<Lease>,
    namespace: String,
    name: String,
    /// What ends the installed replicas.
    room: String,
    /// Nobody but sessions has ever held it.
    ours: bool,
}

impl Candidate {
    /// Takes the leases of this installation, as `run` does. Where the namespace that it lives in is not there, no
    /// replica is either, and no Lease could be made in it: an installation that leads somewhere else is an error then.
    pub(super) async fn new(
        client: &Client,
        installation: &Installation,
        other_names: &[&'static str],
        owner: &str,
        timing: Option<LeaseTiming>,
    ) -> anyhow::Result<Self> {
        let home = &installation.namespace;
        let (namespace, name) = match &installation.restricted_to {
            Some(namespace) => (namespace, installation.scope_lease()),
            None => (home, installation.leader_lease()),
        };
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let elects = call(&format!("read Namespace {namespace}"), namespaces.get_opt(namespace)).await?.is_some();
        let flags = LeaseFlags::of_session(format!("{SESSION}{owner}"), timing);
        let leases = Leases::new(client, installation, other_names, elects, &flags)?;
        if !elects {
            alone(client, installation).await?;
            let told = format!("run here too, with your rights; beside no others: there is no namespace {namespace}");
            return Ok(Self { leases, seat: None, told });
        }
        let api: Api<Lease> = Api::namespaced(client.clone(), namespace);
        let found = call(&format!("read Lease {namespace}/{name}"), api.get_opt(&name)).await?;
        if let Some(left) = found.as_ref().filter(|lease| held_by_sessions_alone(lease)) {
            makes_room(client, installation, left).await?;
        }
        let seat = Seat {
            ours: found.is_none_or(|lease| held_by_sessions_alone(&lease)),
            room: format!("kubectl -n {home} scale deployment {} --replicas=0", installation.release),
            namespace: namespace.clone(),
            api,
            name,
        };
        let told = format!("run here while this session holds the Lease {namespace}/{}, with your rights", seat.name);
        Ok(Self { leases, seat: Some(seat), told })
    }

    /// What of the cluster is this session's.
    pub(super) fn scope(&self) -> Scope {
        self.leases.scope.clone()
    }

    /// By which it leads; none where nobody else can.
    pub(super) fn election(&self) -> Option<Election> {
        self.leases.election.clone()
    }

    /// Takes part until `stop`, gives the Lease back when `give_back` says that the controllers have ended, and takes it
    /// away if nobody else has had it.
    pub(super) fn work(
        self,
        tasks: &mut Tasks,
        metrics: Metrics,
        give_back: CancellationToken,
        stop: &CancellationToken,
    ) {
        let Self { leases, seat, .. } = self;
        let election = leases.election.clone();
        let work = leases.work(Health::new("the leases", metrics), give_back, stop.clone());
        let ended = stop.clone();
        tasks.spawn("the leases", stop, async move {
            let told = async {
                if let (Some(election), Some(seat)) = (&election, &seat) {
                    ended.run_until_cancelled(seat.tell(election)).await;
                }
            };
            let (result, ()) = tokio::join!(work, told);
            if let Some(seat) = seat.filter(|seat| seat.ours) {
                seat.clear().await.unwrap_or_else(|error| say(&format!("left Lease {}: {error:#}", seat.name)));
            }
            result
        });
    }
}

/// That no controllers of another installation run beside those of a session that takes part in no election.
async fn alone(client: &Client, installation: &Installation) -> anyhow::Result<()> {
    if installation.restricted_to.is_some() {
        return Ok(());
    }
    let Some(lease) = leading(client, installation).await?.into_iter().next() else { return Ok(()) };
    let whose = if is_session(&Record::from(&lease)) { "another session of" } else { "the installed operator" };
    let (namespace, lease) = (lease.namespace().unwrap_or_default(), lease.name_any());
    let release = release_of(&lease);
    bail!(
        "controllers would run beside those of {whose} {namespace}/{release}; to take turns with them, say \
         --namespace {namespace} --release {release}"
    )
}

/// That no installed operator would stand back for the Lease of a session that was killed, or is at work, because it is
/// the older one.
async fn makes_room(client: &Client, installation: &Installation, left: &Lease) -> anyhow::Result<()> {
    if installation.restricted_to.is_some() {
        return Ok(());
    }
    let created = |lease: &Lease| lease.creation_timestamp();
    let later = |lease: &Lease| lease.uid() != left.uid() && created(lease) >= created(left);
    let installed = |lease: &Lease| !is_session(&Record::from(lease));
    let found = leading(client, installation).await?;
    let Some(lease) = found.iter().find(|lease| later(lease) && installed(lease)) else { return Ok(()) };
    let (name, there) = (lease.name_any(), lease.namespace().unwrap_or_default());
    let release = release_of(&name);
    let (home, left) = (left.namespace().unwrap_or_default(), left.name_any());
    bail!(
        "the installed operator {there}/{release} would stand back for this session, whose Lease {home}/{left} is older: \
         a session before it left that. Take turns with the operator: --namespace {there} --release {release}; or, when no \
         other session runs, remove the Lease: kubectl -n {home} delete lease {left}"
    )
}

/// The Leases of the leaders of the operator's installations that somebody holds.
async fn leading(client: &Client, installation: &Installation) -> anyhow::Result<Vec<Lease>> {
    let labelled = ListParams::default().labels(&leaders(installation.operator));
    let leases = Api::<Lease>::all(client.clone());
    let mut found = call("list the Leases of other installations", leases.list(&labelled)).await?.items;
    found.retain(|lease| lease.name_any().ends_with(LEADER) && Record::from(lease).holder.is_some());
    Ok(found)
}

/// Whether a session holds it.
fn is_session(record: &Record) -> bool {
    record.holder.as_ref().is_some_and(|holder| holder.starts_with(SESSION))
}

/// Whether sessions that were killed left it, and nobody else had it before.
fn held_by_sessions_alone(lease: &Lease) -> bool {
    let record = Record::from(lease);
    is_session(&record) && record.transitions <= 1
}

impl Seat {
    /// Says who leads, and again whenever that changes.
    async fn tell(&self, election: &Election) {
        let mut last = None;
        loop {
            let now = self.state(election);
            if let Some(line) = now.filter(|line| last.as_ref() != Some(line)) {
                say(&line);
                last = Some(line);
            }
            sleep(LOOK).await;
        }
    }

    /// One line; nothing while it is not known, or about to change.
    fn state(&self, Election { lease, among, .. }: &Election) -> Option<String> {
        let Self { namespace, name, room, .. } = self;
        if let Some(hold) = lease.held() {
            if let Some(Earlier { namespace, lease, .. }) = among.as_ref().and_then(Scopes::ahead) {
                let release = release_of(&lease);
                return Some(format!(
                    "Controllers wait: the cluster-wide operator {namespace}/{release} was there first; to make room: \
                     kubectl -n {namespace} scale deployment {release} --replicas=0"
                ));
            }
            // They begin when nobody else can be at work any more.
            let begun = among.as_ref().is_none_or(|among| among.leads(hold.epoch));
            return begun.then(|| format!("Controllers run here: this session holds the Lease {namespace}/{name}."));
        }
        let health = lease.health();
        let Some(holder) = health.holder else {
            let error = health.last_error.filter(|_| !health.answered)?;
            return Some(format!("Controllers wait for the Lease {namespace}/{name}: {error}"));
        };
        if holder == lease.identity() {
            return None;
        }
        let who = holder.rsplit_once('_').map_or(holder.as_str(), |(who, _)| who);
        let room = match who.strip_prefix(SESSION) {
            Some(owner) => format!("it is the session of {owner}, which has to end first"),
            None => format!("to make room: {room}"),
        };
        Some(format!("Controllers wait: {who} leads, by the Lease {namespace}/{name}; {room}"))
    }

    /// Takes the Lease away that was given back, unless somebody else has taken it.
    async fn clear(&self) -> anyhow::Result<()> {
        let Self { api, namespace, name, .. } = self;
        let Some(lease) = call(&format!("read Lease {namespace}/{name}"), api.get_opt(name)).await? else {
            return Ok(());
        };
        if Record::from(&lease).holder.is_some() {
            return Ok(());
        }
        let (uid, resource_version) = (lease.uid(), lease.resource_version());
        let this = DeleteParams::default().preconditions(Preconditions { uid, resource_version });
        match call(&format!("delete Lease {namespace}/{name}"), api.delete(name, &this)).await {
            Ok(_) => say(&format!("removed Lease {namespace}/{name}")),
            Err(error) if is_code(&error, &[404, 409]) => {}
            Err(error) => return Err(error).context("it is free, and may stay"),
        }
        Ok(())
    }
}
