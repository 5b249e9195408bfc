//! The leases of an installation: which replica leads, and who owns which namespace.

use std::str::FromStr;
use std::time::Duration;

use jiff::SignedDuration;
use kube::Client;
use portcullis_lease::{
    LeaseElection, LeaseElectionDriver, LeaseError, LeaseHandle, Scope, ScopeMetrics, ScopeTiming, Scopes,
    ScopesDriver, Timing,
};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::health::Health;
use super::installation::switch;
use super::{Installation, Switch};
use portcullis_manifest::names::OPERATOR;
use portcullis_metrics::Metrics;

/// Time between two looks at which installation holds the Lease.
const TELL: Duration = Duration::from_secs(1);
/// The pause between two checks whether the leases are known, for readiness.
const LOOK: Duration = Duration::from_millis(200);

#[derive(clap::Args, Clone, Debug)]
pub(super) struct LeaseFlags {
    /// Whether replicas elect a leader, which alone runs the controllers; those of a restricted operator always do
    #[arg(long, default_value_t, value_parser = switch("One replica runs the controllers", "Every replica does"))]
    pub(super) leader_elect: Switch,
    /// Name of this replica in its Leases [default: the release's]
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pub(super) identity: Option<String>,
    /// For tests that cannot wait: duration, deadline, renewal, settling, grace and freshness, separated by commas
    #[arg(long, hide = true, value_name = "DURATIONS")]
    pub(super) lease_timing: Option<LeaseTiming>,
}

/// The durations of all leases of one process. All operators of a cluster keep to the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeaseTiming {
    leader: Timing,
    scope: Timing,
    watch: ScopeTiming,
}

impl Default for LeaseTiming {
    fn default() -> Self {
        Self { leader: Timing::LEADER, scope: Timing::SCOPE, watch: ScopeTiming::DEFAULT }
    }
}

impl FromStr for LeaseTiming {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let durations = text.split(',').map(duration).collect::<Result<Vec<_>, _>>()?;
        let [lasts, deadline, renew, settle, grace, freshness] = durations[..] else {
            return Err(format!("{} durations, 6 are needed", durations.len()));
        };
        let leader = Timing::new(lasts, deadline, renew).map_err(|error| error.to_string())?;
        let watch = ScopeTiming::new(lasts, grace, freshness).map_err(|error| error.to_string())?;
        Ok(Self { leader, scope: leader.settle(settle), watch })
    }
}

/// A span of time on the command line. A plain number is one of seconds.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map(Duration::from_secs).ok();
    let written = || text.parse::<SignedDuration>().ok().and_then(|parsed| Duration::try_from(parsed).ok());
    seconds.or_else(written).ok_or_else(|| format!("'{text}' is no span of time: write it as in 500ms, 5s or 2m"))
}

/// One that is neither shorter nor longer than these, in seconds.
pub(super) fn duration_within(
    least: u32,
    most: u32,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync + 'static {
    let (least, most) = (SignedDuration::from_secs(least.into()), SignedDuration::from_secs(most.into()));
    move |text| {
        let duration = duration(text)?;
        let within = SignedDuration::try_from(duration).is_ok_and(|duration| (least..=most).contains(&duration));
        if within { Ok(duration) } else { Err(format!("give at least {least:#} and at most {most:#}")) }
    }
}

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
    pub(super) fn new(
        client: &Client,
        installation: &Installation,
        has_controllers: bool,
        flags: &LeaseFlags,
    ) -> Result<Self, LeaseError> {
        let LeaseFlags { leader_elect, identity, lease_timing } = flags;
        let identity = identity.as_deref().unwrap_or(&installation.release);
        let timing = lease_timing.unwrap_or_default();
        let stand = |namespace: &str, name: &str, candidacy: LeaseElection, timing: Timing| {
            let candidacy = candidacy.installation(&installation.name()).timing(timing);
            let (lease, driver) = candidacy.with(client.clone());
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

    /// Shows their health there.
    pub(super) fn register_metrics(&self, metrics: &Metrics) {
        if let Some(Election { lease, name, .. }) = &self.election {
            metrics.families::<ScopeMetrics>().lease(name, lease.clone());
        }
        if let Some(scopes) = &self.scopes {
            metrics.families::<ScopeMetrics>().others(scopes.clone());
        }
    }

    /// The work behind it: what has to run, and what readiness waits for. `give_back` ends when the controllers have
    /// ended, `stop` when the webhooks are not served any more.
    pub(super) fn work(
        self,
        health: Health,
        give_back: CancellationToken,
        stop: CancellationToken,
    ) -> impl Future<Output = anyhow::Result<()>> + Send + 'static {
        let Self { scope: _, election, candidacy, scopes, watch } = self;
        async move {
            let hold = async {
                let Some(candidacy) = candidacy else { return };
                if let Err(error) = candidacy.run(give_back.cancelled()).await {
                    let error = format!("{:#}", anyhow::Error::from(error));
                    warn!(error, "cannot release the Lease: it expires by itself");
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
                info!("the leases are known");
                health.ready();
            };
            let others = stop.run_until_cancelled(tell(election.as_ref()));
            tokio::join!(hold, watch, known, others);
            stop.cancelled().await;
            Ok(())
        }
    }
}

/// Logs whenever another installation begins or ends to hold the Lease.
async fn tell(election: Option<&Election>) {
    let Some(Election { lease, name, .. }) = election else { return };
    let mut told = None;
    loop {
        let other = lease.health().other_installation;
        match &other {
            Some(installation) if told != other => {
                warn!(
                    installation,
                    lease = name,
                    "not leading: another installation of this operator holds the Lease, named by namespace and release. \
                     This one only validates, and writes nothing while that one runs. Remove one of them, or restrict \
                     one to a namespace (--restrict-to-namespace)"
                );
            }
            None if told.is_some() => info!(lease = name, "no other installation holds the Lease: this one may lead"),
            _ => {}
        }
        told = other;
        sleep(TELL).await;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        assert_eq!(duration("1200ms"), Ok(Duration::from_millis(1200)));
        assert_eq!(duration("0s"), Ok(Duration::ZERO));
        assert_eq!((duration("7200"), duration("2h")), (Ok(Duration::from_hours(2)), Ok(Duration::from_hours(2))));
        let within = duration_within(1, 600);
        assert_eq!((within("1"), within("10m")), (Ok(Duration::from_secs(1)), Ok(Duration::from_mins(10))));
        for wrong in ["0", "601s", "99999999999999999999s", "18446744073709551615"] {
            assert!(within(wrong).is_err(), "{wrong}");
        }
        assert_eq!(within("999ms").unwrap_err(), "give at least 1s and at most 10m");
        for wrong in ["", "-5", "-5s", "soon"] {
            assert!(duration(wrong).unwrap_err().contains("write it as in"), "{wrong}");
        }
        let timing: LeaseTiming = "3s,2s,400ms,1200ms,1s,1s".parse().unwrap();
        let durations = |timing: Timing| (timing.duration(), timing.deadline());
        assert_eq!(durations(timing.leader), (Duration::from_secs(3), Duration::from_secs(2)));
        assert_eq!(durations(timing.scope), durations(timing.leader));
        assert_eq!(
            "2s,3s,1s,1s,1s,1s".parse::<LeaseTiming>().unwrap_err(),
            "deadline (3s) must be less than duration (2s)"
        );
        assert!("3s,2s".parse::<LeaseTiming>().unwrap_err().starts_with("2 durations"));
    }
}
