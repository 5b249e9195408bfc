//! The leases of an installation: which replica leads, and who owns which namespace.

use std::convert::Infallible;
use std::time::Duration;

use kube::Client;
use portcullis_lease::{
    LeaseElection, LeaseElectionDriver, LeaseError, LeaseHandle, Scope, ScopeMetrics, Scopes, ScopesDriver, Timing,
};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::Installation;
use super::health::Health;
use super::options::EmbedOptions;
use portcullis_client::error_chain;
use portcullis_manifest::names::OPERATOR;
use portcullis_metrics::Metrics;

/// The time between two checks which installation holds the Lease.
const HOLDER_CHECK: Duration = Duration::from_secs(1);
/// The pause between two checks whether the leases are known, for readiness.
const LOOK: Duration = Duration::from_millis(200);

/// The leases of a process.
pub(super) struct Leases {
    /// The namespaces that it owns.
    pub(super) scope: Scope,
    /// The Lease by which it leads; none where every replica does.
    pub(super) election: Option<Election>,
    candidacy: Option<LeaseElectionDriver>,
    scopes: Option<Scopes>,
    watch: Option<ScopesDriver>,
}

/// A Lease that this process is a candidate for.
#[derive(Clone, Debug)]
pub(super) struct Election {
    pub(super) lease: LeaseHandle,
    /// `namespace/name`.
    pub(super) name: String,
    /// The time after the end of its hold in which no other holder starts: work in progress has this long to end.
    pub(super) margin: Duration,
}

impl Leases {
    /// The leases of this installation. A cluster-wide operator without controllers has nothing to lead.
    pub(super) fn new(client: &Client, has_controllers: bool, options: &EmbedOptions) -> Result<Self, LeaseError> {
        let EmbedOptions { installation, leader_elect, identity, lease_timing, .. } = options;
        let identity = identity.as_deref().unwrap_or(&installation.release);
        let timing = lease_timing.unwrap_or_default();
        let stand = |namespace: &str, name: &str, candidacy: LeaseElection, timing: Timing| {
            let candidacy = candidacy.installation(&installation.name()).timing(timing);
            let (lease, driver) = candidacy.build(client.clone());
            let margin = timing.duration().saturating_sub(timing.deadline());
            (Election { lease, name: format!("{namespace}/{name}"), margin }, driver)
        };
        if let Some(namespace) = &installation.restricted_to {
            let name = &installation.scope_lease;
            let candidacy = LeaseElection::scope(namespace, name, identity)?;
            let (election, driver) = stand(namespace, name, candidacy, timing.scope);
            let scope = Scope::restricted(namespace, election.lease.clone());
            return Ok(Self { scope, election: Some(election), candidacy: Some(driver), scopes: None, watch: None });
        }
        let Installation { operator, scope_lease, .. } = installation;
        let (scopes, watch) = Scopes::new(client.clone(), operator, scope_lease, timing.watch)?;
        let (mut election, mut candidacy) = (None, None);
        let scope = Scope::cluster_wide(scopes.clone());
        if has_controllers && leader_elect.is_on() {
            let (namespace, name) = (&installation.leader_election_namespace, installation.leader_lease());
            let stands =
                LeaseElection::leader_election(namespace, &name, identity)?.label(OPERATOR, installation.operator);
            let (stood, driver) = stand(namespace, &name, stands, timing.leader);
            (election, candidacy) = (Some(stood), Some(driver));
        }
        Ok(Self { scope, election, candidacy, scopes: Some(scopes), watch: Some(watch) })
    }

    /// Registers their metrics.
    pub(super) fn register_metrics(&self, metrics: &Metrics) {
        if let Some(Election { lease, name, .. }) = &self.election {
            metrics.families::<ScopeMetrics>().lease(name, lease.clone());
        }
        if let Some(scopes) = &self.scopes {
            metrics.families::<ScopeMetrics>().others(scopes.clone());
        }
    }

    /// Returns the tasks of the leases, which readiness waits for. `give_back` ends when the controllers have
    /// ended, `stop` when the webhooks are not served any more.
    pub(super) fn work(
        self,
        health: Health,
        give_back: CancellationToken,
        stop: CancellationToken,
    ) -> impl Future<Output = Result<(), Infallible>> + Send + 'static {
        let Self { scope: _, election, candidacy, scopes, watch } = self;
        async move {
            let hold = async {
                let Some(candidacy) = candidacy else { return };
                if let Err(error) = candidacy.run(give_back.cancelled()).await {
                    warn!(
                        error = error_chain(&error),
                        "cannot release the Lease: another replica can take it only when it expires"
                    );
                }
            };
            let watch = async {
                if let Some(watch) = watch {
                    Box::pin(watch.run(stop.cancelled())).await;
                }
            };
            let known = async {
                while let Some(missing) = missing(election.as_ref(), scopes.as_ref()) {
                    health.waiting_for(missing);
                    if stop.run_until_cancelled(sleep(LOOK)).await.is_none() {
                        return;
                    }
                }
                info!("every Lease that this replica depends on was read");
                health.ready();
            };
            let others = stop.run_until_cancelled(log_other_installations(election.as_ref()));
            tokio::join!(hold, watch, known, others);
            stop.cancelled().await;
            Ok(())
        }
    }
}

/// Logs whenever another installation begins or ends to hold the Lease.
async fn log_other_installations(election: Option<&Election>) {
    let Some(Election { lease, name, .. }) = election else { return };
    let mut logged = None;
    loop {
        let other = lease.health().other_installation;
        match &other {
            Some(installation) if logged != other => {
                warn!(
                    installation,
                    lease = name,
                    "not leading: another installation of this operator holds the Lease, named by namespace and release. \
                     This one only validates, and writes nothing while that one runs. Remove one of them, or restrict \
                     one to a namespace (--restrict-to-namespace)"
                );
            }
            None if logged.is_some() => info!(lease = name, "no other installation holds the Lease: this one may lead"),
            _ => {}
        }
        logged = other;
        sleep(HOLDER_CHECK).await;
    }
}

/// The lease or scope that is not known yet, and why.
fn missing(election: Option<&Election>, scopes: Option<&Scopes>) -> Option<String> {
    let why = |error: Option<String>| error.map(|error| format!(": {error}")).unwrap_or_default();
    if let Some(Election { lease, name, .. }) = election {
        let health = lease.health();
        if !health.answered {
            return Some(format!("the Lease {name} to be read{}", why(health.last_error)));
        }
    }
    scopes?.unknown().map(|reason| format!("the owners of all namespaces to be known: {reason}"))
}
