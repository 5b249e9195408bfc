//! Holding one lease: what to configure, and the driver that does it.

mod api;
mod followers;
mod handle;
mod voucher;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::try_join_all;
use futures::future::{Either, select};
use kube::Client;

use crate::limits::{REQUEST, until};
use crate::{Clock, Elector, End, LeaseError, Reason, Record, Step, SystemClock, Timing, Vouchers, Write};

use api::{Annotations, Answer, LeaseApi};
use followers::Follower;
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
    followers: BTreeSet<String>,
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
            followers: BTreeSet::new(),
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

    /// Writes Leases of these names too, each with what the first one says: for operators that look at another name. The
    /// first one alone decides who holds. The others are written before each write of it, and released after it. While
    /// another holder renews one of them, nothing is claimed and a hold ends. The name of the first Lease, and one that is
    /// there already, changes nothing.
    #[must_use]
    pub fn followers(mut self, names: &[&str]) -> Self {
        let others = names.iter().filter(|&&name| name != self.name);
        self.followers = others.map(|&name| name.to_owned()).collect();
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
        let Self { namespace, timing, end, labels, annotations, .. } = self;
        let elector = Elector::new(self.identity, timing, seed);
        let shared = Arc::new(Shared::new(self.clock, namespace.clone(), elector));
        let voucher = self.vouchers.map(|vouchers| Voucher::new(client.clone(), vouchers, &self.name, &namespace));
        let api = |name: &str| LeaseApi::new(client.clone(), &namespace, name, labels.clone(), annotations.clone());
        let followers = self.followers.iter().map(|name| Follower::new(api(name))).collect();
        let (api, handle) = (api(&self.name), LeaseHandle::new(Arc::clone(&shared)));
        (handle, LeaseElectionDriver { shared, api, followers, voucher, seen: Mutex::default(), timing, end })
    }
}

/// Runs the election behind a [`LeaseHandle`].
#[derive(Debug)]
pub struct LeaseElectionDriver {
    shared: Arc<Shared>,
    api: LeaseApi,
    followers: Vec<Follower>,
    voucher: Option<Voucher>,
    /// What vouched at our last write.
    seen: Mutex<Option<Stands>>,
    timing: Timing,
    end: End,
}

/// What became of a write.
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
                Some(Ok(Answer::Stored(_))) => return self.release_followers(&write).await,
                Some(Ok(Answer::Conflict)) => self.look().await?,
                Some(Err(error)) => return Err(self.api.error("release", error)),
                None => return Err(self.api.late("release", REQUEST)),
            }
        }
        Ok(())
    }

    /// Those that somebody else has written meanwhile are theirs.
    async fn release_followers(&self, write: &Write) -> Result<(), LeaseError> {
        let clock = &*self.shared.clock;
        let identity = self.identity();
        let ours = self.followers.iter().filter(|follower| follower.is_of(&identity));
        let released = try_join_all(ours.map(|follower| follower.write(write, clock)));
        match until(clock, clock.now() + REQUEST, released).await {
            Some(result) => result.map(drop),
            None => Err(self.api.late("release", REQUEST)),
        }
    }

    /// Reads the Leases to give them back.
    async fn look(&self) -> Result<(), LeaseError> {
        let clock = &*self.shared.clock;
        match until(clock, clock.now() + REQUEST, self.read(clock)).await {
            Some(found) => {
                let found = found?;
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
                // Settled or late: somebody has to tell those who wait for it.
                let turn = self.shared.with(|elector| elector.turns_at(clock.now()));
                clock.sleep_until(turn.map_or(at, |turn| turn.min(at))).await;
            }
            Step::Read => {
                let limit = self.shared.with(|elector| elector.limit(clock.now()));
                let answer = until(clock, clock.now() + limit, self.read(clock)).await;
                let now = clock.now();
                match answer {
                    Some(Ok(found)) => {
                        self.shared.answered();
                        self.shared.with(|elector| elector.read(found, now));
                    }
                    Some(Err(error)) => self.failed(error),
                    None => self.failed(self.api.late("read", limit)),
                }
            }
            Step::Write(write) => self.write(&write, clock).await,
        }
    }

    /// Reads all of the Leases, and returns the first.
    async fn read(&self, clock: &dyn Clock) -> Result<Option<Record>, LeaseError> {
        let first = async { self.api.read().await.map_err(|error| self.api.error("read", error)) };
        let others = try_join_all(self.followers.iter().map(|follower| follower.read(clock)));
        Ok(futures::try_join!(first, others)?.0)
    }

    async fn write(&self, write: &Write, clock: &dyn Clock) {
        let limit = self.shared.with(|elector| elector.limit(clock.now()));
        // The hold counts from before the voucher was seen and the followers were written, and all end within one limit.
        let answer = until(clock, clock.now() + limit, self.attempt(write, clock)).await;
        let now = clock.now();
        match answer {
            Some(Ok(Attempt::Withheld(reason, error))) => {
                if let Some(error) = self.shared.note(&error) {
                    tracing::warn!(error, "cannot acquire the Lease; retrying");
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

    async fn attempt(&self, write: &Write, clock: &dyn Clock) -> Result<Attempt, LeaseError> {
        if let Some(voucher) = &self.voucher {
            let stands = voucher.stands().await.map_err(|error| voucher.error(error))?;
            let holds = self.shared.with(|elector| elector.hold().is_some());
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            // A hold ends with the voucher that it began under.
            if stands.is_none() || (holds && *seen != stands) {
                return Ok(Attempt::Withheld(Reason::Unvouched, voucher.missing()));
            }
            *seen = stands;
        }
        let identity = self.identity();
        let mut others = self.followers.iter();
        if let Some(taken) = others.find_map(|other| other.taken(&identity, self.timing, clock.now())) {
            return Ok(Attempt::Withheld(Reason::Taken, taken));
        }
        for follower in &self.followers {
            if matches!(follower.write(write, clock).await?, Answer::Conflict) {
                return Ok(Attempt::Answered(Answer::Conflict));
            }
        }
        let answer = self.api.write(write).await.map_err(|error| self.api.error("write", error))?;
        Ok(Attempt::Answered(answer))
    }

    fn identity(&self) -> String {
        self.shared.with(|elector| elector.identity().to_owned())
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
