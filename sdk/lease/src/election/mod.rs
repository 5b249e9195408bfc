//! The configuration of an election for one Lease, and its driver.

mod api;
mod handle;
mod proof;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::{Either, select};
use kube::{Api, Client};

use crate::decide::Reason;
use crate::elector::{Elector, End, Step, Write};
use crate::limits::{REQUEST, until};
use crate::time::{Clock, SystemClock};
use crate::{LeaseError, Timing};

use api::{Answer, LeaseApi};
use handle::Shared;
pub use handle::{LeaseHandle, LeaseHealth};
use proof::{Proof, Seen};

/// Takes part in the election for one Lease: acquires it when it is free, renews it, and releases it.
///
/// Every election appends a UUID to the given identity, `<identity>_<uuid>`: two pods of one name, or one pod before
/// and after a restart, are not the same holder.
#[derive(Debug)]
pub struct LeaseElection {
    namespace: String,
    name: String,
    identity: String,
    timing: Timing,
    end: End,
    installation: Option<String>,
    labels: BTreeMap<String, String>,
    /// Whether the namespace has to be handed over.
    restricted: bool,
    clock: Arc<dyn Clock>,
}

impl LeaseElection {
    /// Leader election among the replicas of one operator: [`Timing::LEADER`], and free for every candidate one second
    /// after a graceful stop.
    ///
    /// # Errors
    /// [`LeaseError::Invalid`].
    pub fn leader_election(namespace: &str, name: &str, identity: &str) -> Result<Self, LeaseError> {
        Self::new(namespace, name, identity, Timing::LEADER, End::Release)
    }

    /// The scope of a namespace-restricted operator: the Lease is in the namespace that it owns. [`Timing::SCOPE`]. It
    /// is leader election at the same time: of several replicas, one holds. After a graceful stop it is free for
    /// candidates at once, and the cluster-wide operator waits for duration and grace.
    ///
    /// It is held only while the namespace is [handed over](crate::handed_over): policy and binding are read by name
    /// before each write of the Lease, and without them a hold ends at once, for a cluster-wide operator would write
    /// beside it.
    ///
    /// # Errors
    /// [`LeaseError::Invalid`].
    pub fn scope(namespace: &str, name: &str, identity: &str) -> Result<Self, LeaseError> {
        Self::new(namespace, name, identity, Timing::SCOPE, End::HandOver)
    }

    fn new(namespace: &str, name: &str, identity: &str, timing: Timing, end: End) -> Result<Self, LeaseError> {
        LeaseError::check_names(&[("namespace", namespace), ("name", name), ("identity", identity)])?;
        Ok(Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity: format!("{identity}_{}", uuid::Uuid::new_v4()),
            timing,
            end,
            installation: None,
            labels: BTreeMap::new(),
            restricted: end == End::HandOver,
            clock: Arc::new(SystemClock::new()),
        })
    }

    /// Sets other durations. If they have no [settling time](Timing::settle), the previous one stays: a
    /// [`scope`](Self::scope) without it would let two operators write whenever it begins.
    #[must_use]
    pub fn timing(mut self, timing: Timing) -> Self {
        let settle = if timing.settling().is_zero() { self.timing.settling() } else { timing.settling() };
        self.timing = timing.settle(settle);
        self
    }

    /// Sets how the hold ends on a graceful stop.
    #[cfg(test)]
    pub(crate) fn end(mut self, end: End) -> Self {
        self.end = end;
        self
    }

    /// Names the installation of this candidate, for people and for other installations that share the Lease: an
    /// annotation that is written with every renewal. [`LeaseHealth::other_installation`] names another one.
    #[must_use]
    pub fn installation(mut self, name: &str) -> Self {
        self.installation = Some(name.to_owned());
        self
    }

    /// Adds a label to the Lease, which is written with every renewal.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Sets another clock.
    #[cfg(test)]
    pub(crate) fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Returns the handle, and the driver that has to run for it.
    ///
    /// The driver gives each request up after a quarter of the timing's deadline, and tries again. So a client that
    /// retries by itself (`kube::Config::default_retry`) does no harm: its pauses end with the request. It must not go
    /// on with a request whose future was dropped, since a Lease that is written late may belong to another candidate.
    pub fn build(self, client: Client) -> (LeaseHandle, LeaseElectionDriver) {
        // Half of a random UUID is good enough as a seed.
        let seed = uuid::Uuid::new_v4().as_u64_pair().0;
        let Self { namespace, timing, end, labels, .. } = self;
        let elector = Elector::new(self.identity, timing, seed);
        let shared = Arc::new(Shared::new(self.clock, namespace.clone(), self.installation.clone(), elector));
        let proof = self.restricted.then(|| Proof::new(client.clone(), &self.name, &namespace));
        let api = Api::namespaced(client, &namespace);
        let (name, installation) = (self.name, self.installation);
        let api = LeaseApi { api, namespace, name, installation, labels };
        let handle = LeaseHandle::new(Arc::clone(&shared));
        (handle, LeaseElectionDriver { shared, api, proof, seen: Mutex::default(), end })
    }
}

/// Runs the election behind a [`LeaseHandle`].
#[derive(Debug)]
pub struct LeaseElectionDriver {
    shared: Arc<Shared>,
    api: LeaseApi,
    proof: Option<Proof>,
    /// The proof at the last write.
    seen: Mutex<Option<Seen>>,
    end: End,
}

/// The outcome of a write.
enum Attempt {
    Answered(Answer),
    /// It was not sent.
    Withheld(Reason, LeaseError),
}

impl LeaseElectionDriver {
    /// Takes part in the election until `shutdown` completes, then releases the Lease. Let `shutdown` complete after
    /// your work has ended: from then on another holder may act. Failed requests are retried and show in
    /// [`LeaseHandle::health`].
    ///
    /// Dropping the future is like a crash: the handle holds nothing at once, and the Lease stays until it expires.
    ///
    /// # Errors
    /// When the Lease could not be released: it expires instead.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), LeaseError> {
        let mut shutdown = std::pin::pin!(shutdown);
        // However this ends, nothing is held without renewals.
        let stopped = Stopped(Arc::clone(&self.shared));
        loop {
            let work = std::pin::pin!(self.once());
            if let Either::Left(((), work)) = select(shutdown.as_mut(), work).await {
                drop(stopped);
                // A write in flight may succeed whether we wait or not: wait for it, so that the release knows the
                // current record.
                if self.shared.with(|elector| elector.in_doubt()) {
                    work.await;
                }
                break;
            }
        }
        self.release().await
    }

    async fn release(&self) -> Result<(), LeaseError> {
        let clock = &*self.shared.clock;
        if self.shared.with(|elector| elector.in_doubt()) {
            self.look().await?;
        }
        // Another client may write in between; the second attempt then uses its version.
        for _ in 0..2 {
            let write = self.shared.with(|elector| elector.release(self.end, clock.now(), clock.wall()));
            let Some(write) = write else { break };
            match until(clock, clock.now() + REQUEST, self.api.write(&write)).await {
                Some(Ok(Answer::Stored(_))) => return Ok(()),
                Some(Ok(Answer::Conflict)) => self.look().await?,
                Some(Err(error)) => return Err(self.api.error("release", error)),
                None => return Err(self.api.late("release", REQUEST)),
            }
        }
        Ok(())
    }

    /// Reads the Lease to give it back.
    async fn look(&self) -> Result<(), LeaseError> {
        let clock = &*self.shared.clock;
        match until(clock, clock.now() + REQUEST, self.api.read()).await {
            Some(found) => {
                let found = found.map_err(|error| self.api.error("read", error))?;
                self.shared.with(|elector| elector.read(found, clock.now()));
                Ok(())
            }
            None => Err(self.api.late("release", REQUEST)),
        }
    }

    async fn once(&self) {
        let clock = &*self.shared.clock;
        match self.shared.with(|elector| elector.step(clock.now(), clock.wall())) {
            Step::Sleep(at) => {
                // A hold that settles or ends late changes by time alone: wait for that, too, so that listeners are
                // notified.
                let deadline = self.shared.with(|elector| elector.next_deadline(clock.now()));
                clock.sleep_until(deadline.map_or(at, |deadline| deadline.min(at))).await;
            }
            Step::Read => {
                let limit = self.shared.with(|elector| elector.limit(clock.now()));
                let answer = until(clock, clock.now() + limit, self.api.read()).await;
                let now = clock.now();
                match answer {
                    Some(Ok(found)) => {
                        self.shared.answered();
                        self.shared.with(|elector| elector.read(found, now));
                    }
                    Some(Err(error)) => self.failed(self.api.error("read", error)),
                    None => self.failed(self.api.late("read", limit)),
                }
            }
            Step::Write(write) => self.write(&write, clock).await,
        }
    }

    async fn write(&self, write: &Write, clock: &dyn Clock) {
        let limit = self.shared.with(|elector| elector.limit(clock.now()));
        // The hold counts from before the proof was read, and both requests end within one limit.
        let answer = until(clock, clock.now() + limit, self.attempt(write)).await;
        let now = clock.now();
        match answer {
            Some(Ok(Attempt::Withheld(reason, error))) => {
                if let Some(error) = self.shared.note(&error) {
                    tracing::warn!(error, "not allowed to hold the Lease: this replica does not lead; retrying");
                }
                self.shared.with(|elector| elector.withheld(reason, now));
            }
            Some(Ok(Attempt::Answered(Answer::Stored(stored)))) => {
                self.shared.answered();
                self.shared.with(|elector| elector.written(write, stored, now));
            }
            Some(Ok(Attempt::Answered(Answer::Conflict))) => self.shared.with(|elector| elector.conflicted(now)),
            Some(Err(error)) => self.failed(error),
            None => self.failed(self.api.late("write", limit)),
        }
    }

    async fn attempt(&self, write: &Write) -> Result<Attempt, LeaseError> {
        if let Some(proof) = &self.proof {
            let found = proof.read().await.map_err(|error| proof.error(error))?;
            let holds = self.shared.with(|elector| elector.hold().is_some());
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            // A hold ends with the proof that it began under.
            if found.is_none() || (holds && *seen != found) {
                return Ok(Attempt::Withheld(Reason::NotHandedOver, proof.missing()));
            }
            *seen = found;
        }
        let answer = self.api.write(write).await.map_err(|error| self.api.error("write", error))?;
        Ok(Attempt::Answered(answer))
    }

    fn failed(&self, error: LeaseError) {
        let now = self.shared.clock.now();
        if let Some(error) = self.shared.note(&error) {
            tracing::warn!(error, "cannot read or write the Lease, which is lost if this goes on; retrying");
        }
        self.shared.with(|elector| elector.failed(now));
    }
}

struct Stopped(Arc<Shared>);

impl Drop for Stopped {
    fn drop(&mut self) {
        self.0.stop();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_scope_settles_whatever_its_other_durations_are() {
        let s = Duration::from_secs;
        let timing = Timing::new(s(25), s(20), s(8)).unwrap();
        for (said, settles) in [(timing, s(15)), (timing.settle(s(7)), s(7)), (Timing::LEADER, s(15))] {
            let election = LeaseElection::scope("team", "scope", "me").unwrap().timing(said);
            let timing = election.timing;
            assert_eq!((timing.settling(), timing.duration()), (settles, said.duration()));
        }
        let leader = LeaseElection::leader_election("ops", "leader", "me").unwrap().timing(timing);
        assert_eq!(leader.timing.settling(), Duration::ZERO);
    }
}
