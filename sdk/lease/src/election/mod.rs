//! Holding one lease: what to configure, and the driver that does it.

mod api;
mod handle;
mod voucher;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::{Either, select};
use kube::Client;

use crate::limits::{REQUEST, until};
use crate::{Clock, Elector, End, LeaseError, Step, SystemClock, Timing, Vouchers, Write};

use api::{Annotations, Answer, LeaseApi};
use handle::Shared;
pub use handle::{LeaseHandle, LeaseHealth};
use voucher::{Stands, Voucher};

/// Takes part in the election for one Lease: acquires it when it is free, renews it, and releases it.
///
/// Every election appends a UUID to the given identity, `<identity>_<uuid>`: two pods of one name, or one pod before
/// and after a restart, are not the same holder.
#[derive(Clone, Debug)]
pub struct LeaseElection {
    namespace: String,
    name: String,
    identity: String,
    timing: Timing,
    end: End,
    labels: BTreeMap<String, String>,
    annotations: Annotations,
    vouchers: Option<Vouchers>,
    clock: Arc<dyn Clock>,
}

impl LeaseElection {
    /// Leader election among the replicas of one operator: [`Timing::LEADER`], [`End::Release`].
    ///
    /// # Errors
    /// [`LeaseError::Unnamed`].
    pub fn leader_election(namespace: &str, name: &str, identity: &str) -> Result<Self, LeaseError> {
        Self::new(namespace, name, identity, Timing::LEADER, End::Release)
    }

    /// The scope of a namespace-restricted operator: the Lease is in the namespace that it owns. [`Timing::SCOPE`],
    /// [`End::HandOver`]. It is leader election at the same time: of several replicas, one holds.
    ///
    /// # Errors
    /// [`LeaseError::Unnamed`].
    pub fn scope(namespace: &str, name: &str, identity: &str) -> Result<Self, LeaseError> {
        Self::new(namespace, name, identity, Timing::SCOPE, End::HandOver)
    }

    fn new(namespace: &str, name: &str, identity: &str, timing: Timing, end: End) -> Result<Self, LeaseError> {
        for (field, value) in [("namespace", namespace), ("name", name), ("identity", identity)] {
            if value.is_empty() {
                return Err(LeaseError::Unnamed { field });
            }
        }
        Ok(Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity: format!("{identity}_{}", uuid::Uuid::new_v4()),
            timing,
            end,
            labels: BTreeMap::new(),
            annotations: Annotations::new(),
            vouchers: None,
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
    #[must_use]
    pub fn end(mut self, end: End) -> Self {
        self.end = end;
        self
    }

    /// Adds a label to the Lease, by which others find it ([`ScopesDriver::among`](crate::ScopesDriver::among)). It is
    /// written with every renewal, so it comes back if somebody removes it.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Adds an annotation when the Lease is created; an existing Lease does not get it. With
    /// [`without_annotation`](Self::without_annotation) it shows whether anybody else has ever held the Lease.
    #[must_use]
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.to_owned(), Some(value.to_owned()));
        self
    }

    /// Removes this annotation with the first write, such as the [`annotation`](Self::annotation) of whoever
    /// created the Lease.
    #[must_use]
    pub fn without_annotation(mut self, key: &str) -> Self {
        self.annotations.insert(key.to_owned(), None);
        self
    }

    /// Holds the Lease only while the policy of these [`Vouchers`] and its binding exist for the namespace. Both are
    /// read by name before each write of the Lease; without them a hold ends at once. A cluster-wide operator gives up
    /// no namespace without a voucher, so a holder without one would write beside it.
    #[must_use]
    pub fn vouched_by(mut self, vouchers: Vouchers) -> Self {
        self.vouchers = Some(vouchers);
        self
    }

    /// Sets another clock, for tests.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Returns the handle, and the driver that has to run for it. Use a client that does not retry by itself
    /// (`kube::Config::default_retry`): the driver does, and a renewal that the client delays for 82 s comes too late.
    pub fn with(self, client: Client) -> (LeaseHandle, LeaseElectionDriver) {
        // Half of a fresh uuid: as good a seed as another.
        let seed = uuid::Uuid::new_v4().as_u64_pair().0;
        let elector = Elector::new(self.identity, self.timing, seed);
        let shared = Arc::new(Shared::new(self.clock, self.namespace.clone(), elector));
        let voucher = self.vouchers.map(|vouchers| Voucher::new(client.clone(), vouchers, &self.name, &self.namespace));
        let api = LeaseApi::new(client, &self.namespace, &self.name, self.labels, self.annotations);
        (
            LeaseHandle::new(Arc::clone(&shared)),
            LeaseElectionDriver { shared, api, voucher, seen: Mutex::default(), end: self.end },
        )
    }
}

/// Runs the election behind a [`LeaseHandle`].
#[derive(Debug)]
pub struct LeaseElectionDriver {
    shared: Arc<Shared>,
    api: LeaseApi,
    voucher: Option<Voucher>,
    /// What vouched at our last write.
    seen: Mutex<Option<Stands>>,
    end: End,
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
        // However this ends, nothing is held when nobody renews.
        let stopped = Stopped(Arc::clone(&self.shared));
        loop {
            let work = std::pin::pin!(self.once());
            if let Either::Left(((), work)) = select(shutdown.as_mut(), work).await {
                drop(stopped);
                // A write that is under way may come in whether its answer is waited for or not: what is to be given
                // back is known when it is there.
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
        // Somebody else may write in between: then the second try knows of it.
        for _ in 0..2 {
            let write = self.shared.with(|elector| elector.release(self.end, clock.now(), clock.wall()));
            let Some(write) = write else { break };
            match until(clock, clock.now() + REQUEST, self.api.write(&write)).await {
                Some(Ok(Answer::Stored(_))) => break,
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
            Some(Ok(found)) => {
                self.shared.with(|elector| elector.read(found, clock.now()));
                Ok(())
            }
            Some(Err(error)) => Err(self.api.error("release", error)),
            None => Err(self.api.late("release", REQUEST)),
        }
    }

    async fn once(&self) {
        let clock = &*self.shared.clock;
        match self.shared.with(|elector| elector.step(clock.now(), clock.wall())) {
            Step::Sleep(at) => {
                // Settled or late: somebody has to tell those who wait for it.
                let turn = self.shared.with(|elector| elector.turns_at(clock.now()));
                clock.sleep_until(turn.map_or(at, |turn| turn.min(at))).await;
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
        // The hold counts from before the voucher was seen, and both end within one limit.
        let attempt = async {
            if let Some(voucher) = &self.voucher {
                let stands = voucher.stands().await.map_err(|error| voucher.error(error))?;
                let holds = self.shared.with(|elector| elector.hold().is_some());
                let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
                // A hold ends with the voucher that it began under.
                if stands.is_none() || (holds && *seen != stands) {
                    return Ok(None);
                }
                *seen = stands;
            }
            self.api.write(write).await.map(Some).map_err(|error| self.api.error("write", error))
        };
        let answer = until(clock, clock.now() + limit, attempt).await;
        let now = clock.now();
        match answer {
            Some(Ok(None)) => {
                if let Some(error) = self.voucher.as_ref().and_then(|voucher| self.shared.note(&voucher.missing())) {
                    tracing::warn!(error, "cannot acquire the Lease; retrying");
                }
                self.shared.with(|elector| elector.unvouched(now));
            }
            Some(Ok(Some(Answer::Stored(stored)))) => {
                self.shared.answered();
                self.shared.with(|elector| elector.written(write, stored, now));
            }
            Some(Ok(Some(Answer::Conflict))) => self.shared.with(|elector| elector.conflicted(now)),
            Some(Err(error)) => self.failed(error),
            None => self.failed(self.api.late("write", limit)),
        }
    }

    fn failed(&self, error: LeaseError) {
        let now = self.shared.clock.now();
        if let Some(error) = self.shared.note(&error) {
            tracing::warn!(error, "a Lease request failed; retrying");
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
            assert_eq!(election.timing, said.settle(settles));
        }
        let leader = LeaseElection::leader_election("ops", "leader", "me").unwrap().timing(timing);
        assert_eq!(leader.timing.settling(), Duration::ZERO);
    }
}
