use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt as _;

use crate::limits::LONGEST;
use crate::time::Moment;

/// Annotation of a Lease: the installation that wrote it last.
pub const INSTALLATION: &str = "portcullis.dev/installation";

/// The number of the hold after this one. The API allows none past `i32::MAX`; there it stays.
pub(crate) fn next_epoch(epoch: u32) -> u32 {
    epoch.saturating_add(1).min(i32::MAX.unsigned_abs())
}

/// The content of a Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    /// `holderIdentity`; `None` when released.
    pub(crate) holder: Option<String>,
    /// `acquireTime`, by the holder's wall clock.
    pub(crate) acquired: Option<Timestamp>,
    /// `renewTime`, by the holder's wall clock. That it *changed* shows that the holder lives; its value is not used.
    pub(crate) renewed: Option<Timestamp>,
    /// `leaseDurationSeconds`, but five minutes at most.
    pub(crate) duration: Option<Duration>,
    /// `leaseTransitions`: the epoch of the hold, greater than that of every hold before. Deleting the Lease starts
    /// again, except for those who have seen the old one.
    pub(crate) transitions: u32,
    /// The installation that wrote it last ([`LeaseElection::installation`](crate::LeaseElection::installation)).
    pub(crate) installation: Option<String>,
    /// `resourceVersion`, the precondition of the next write.
    pub(crate) version: String,
}

impl Record {
    /// Whether both have the same content: a change of labels or annotations is no sign of life.
    fn says_the_same(&self, other: &Self) -> bool {
        let said = |record: &Self| (record.acquired, record.renewed, record.duration, record.transitions);
        self.holder == other.holder && said(self) == said(other)
    }

    /// Whether it was written before `other`. Resource versions of one API server are increasing numbers; a version
    /// that is no number counts as newer.
    pub(crate) fn older_than(&self, version: &str) -> bool {
        matches!((self.version.parse::<u64>(), version.parse::<u64>()), (Ok(ours), Ok(theirs)) if ours < theirs)
    }
}

impl From<&Lease> for Record {
    fn from(lease: &Lease) -> Self {
        let spec = lease.spec.clone().unwrap_or_default();
        let seconds = |n: i32| u64::try_from(n).ok().map(Duration::from_secs);
        Self {
            holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
            acquired: spec.acquire_time.map(|time| time.0),
            renewed: spec.renew_time.map(|time| time.0),
            duration: spec.lease_duration_seconds.and_then(seconds).map(|duration| duration.min(LONGEST)),
            transitions: spec.lease_transitions.and_then(|n| u32::try_from(n).ok()).unwrap_or_default(),
            installation: lease.annotations().get(INSTALLATION).cloned(),
            version: lease.metadata.resource_version.clone().unwrap_or_default(),
        }
    }
}

/// The last observation of one lease, and when it last changed by the local clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Observation {
    record: Option<Record>,
    present: bool,
    changed: Moment,
    /// When the record was taken in.
    learned: Moment,
}

impl Observation {
    /// Takes the result of a quorum read that was begun at `begun` and ended at `now`. It replaces what was known at
    /// `begun`, whatever its version is: after a restore of etcd, versions continue from an earlier one. Returns
    /// whether it changed what is known.
    pub(crate) fn read(&mut self, found: Option<Record>, begun: Moment, now: Moment) -> bool {
        self.outdate(begun);
        self.see(found, now)
    }

    /// Records that a quorum list of this version, begun at `begun`, did not contain the Lease. Returns whether that
    /// changed what is known.
    pub(crate) fn absent(&mut self, list_version: &str, begun: Moment, now: Moment) -> bool {
        self.outdate(begun);
        self.missing(list_version, now)
    }

    /// Clears the version that was known at `begun`, so that the next observation counts as newer.
    fn outdate(&mut self, begun: Moment) {
        if self.learned <= begun
            && let Some(known) = &mut self.record
        {
            known.version.clear();
        }
    }

    /// Takes what a read, a watch or an own write returned at `now`; `None` if there is no Lease. A record older than
    /// the known one is ignored. Returns whether it changed what is known.
    pub(crate) fn see(&mut self, seen: Option<Record>, now: Moment) -> bool {
        let Some(seen) = seen else { return std::mem::replace(&mut self.present, false) };
        if self.record.as_ref().is_some_and(|known| seen.older_than(&known.version)) {
            return false;
        }
        let news = !self.present || self.record.as_ref().is_none_or(|known| !known.says_the_same(&seen));
        if news {
            self.changed = now;
        }
        self.present = true;
        self.learned = now;
        self.record = Some(seen);
        news
    }

    /// Records that a list of this version did not contain the Lease. Returns whether that changed what is known.
    pub(crate) fn missing(&mut self, list_version: &str, now: Moment) -> bool {
        let listed = Record { version: list_version.to_owned(), ..Record::default() };
        let outdated = self.record.as_ref().is_some_and(|known| listed.older_than(&known.version));
        !outdated && self.see(None, now)
    }

    /// The Lease as it is; `None` if there is none.
    pub(crate) fn present(&self) -> Option<&Record> {
        self.record.as_ref().filter(|_| self.present)
    }

    /// The last record that was seen, whether the Lease still exists or not.
    pub(crate) fn last(&self) -> Option<&Record> {
        self.record.as_ref()
    }

    /// The time until which the last record counts, by whichever holder: for the duration that it states, or for
    /// `duration`, from the moment that this process saw it change. Deleting the Lease does not end that, because its
    /// holder acts until it notices. `None` if nothing was seen.
    pub(crate) fn counts_until(&self, duration: Duration) -> Option<Moment> {
        Some(self.changed + self.last()?.duration.unwrap_or(duration))
    }
}
