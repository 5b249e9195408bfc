use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt as _;

use crate::limits::LONGEST;
use crate::time::Moment;

/// Annotation of a Lease: the installation that wrote it last.
pub(crate) const INSTALLATION: &str = "portcullis.dev/installation";

/// A fencing epoch: the number of a hold, among all holds there ever were on one lease.
///
/// It grows with every new hold. Stamp it on what you write, so that an earlier holder can see that a later one was
/// there. It is kept in `spec.leaseTransitions`; deleting the Lease starts again, except for those who have seen the
/// old one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch {
    /// The number of the hold, from `spec.leaseTransitions`, starting at 1. Zero: no lease, or a holder that does not
    /// count.
    pub(crate) transitions: u32,
    /// Whether this is the cluster-wide operator, acting again *after* that hold.
    pub(crate) resumed: bool,
}

impl Epoch {
    /// Hold number `transitions`.
    pub(crate) const fn hold(transitions: u32) -> Self {
        Self { transitions, resumed: false }
    }

    /// The epoch of the cluster-wide operator after this hold has ended.
    #[must_use]
    pub(crate) const fn resumed(self) -> Self {
        Self { resumed: true, ..self }
    }

    /// The next hold. The API allows no number past `i32::MAX`; there it stays.
    #[must_use]
    pub(crate) fn next(self) -> Self {
        Self::hold(self.transitions.saturating_add(1).min(i32::MAX.unsigned_abs()))
    }
}

impl fmt::Display for Epoch {
    /// `3`, or `3+` for the cluster-wide operator after hold 3.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.transitions, if self.resumed { "+" } else { "" })
    }
}

/// The content of a Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// `holderIdentity`; `None` when released.
    pub holder: Option<String>,
    /// `acquireTime`, by the holder's wall clock.
    pub(crate) acquired: Option<Timestamp>,
    /// `renewTime`, by the holder's wall clock. That it *changed* shows that the holder lives; its value is not used.
    pub renewed: Option<Timestamp>,
    /// `leaseDurationSeconds`, but five minutes at most.
    pub duration: Option<Duration>,
    /// `leaseTransitions`.
    pub transitions: u32,
    /// The installation that wrote it last ([`LeaseElection::installation`](crate::LeaseElection::installation)).
    pub installation: Option<String>,
    /// `resourceVersion`, the precondition of the next write.
    pub(crate) version: String,
}

impl Record {
    /// Whether the same is said: a change of labels or annotations is no sign of life.
    fn says_the_same(&self, other: &Self) -> bool {
        let said = |record: &Self| (record.acquired, record.renewed, record.duration, record.transitions);
        self.holder == other.holder && said(self) == said(other)
    }

    /// Whether it was written before `other`. Resource versions of one API server are increasing numbers; what is no
    /// number is taken for newer.
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

/// What was observed of one lease, and when it last changed by the local clock.
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

    /// Takes that a quorum list of this version, begun at `begun`, did not contain the Lease. Returns whether that
    /// changed what is known.
    pub(crate) fn absent(&mut self, list_version: &str, begun: Moment, now: Moment) -> bool {
        self.outdate(begun);
        self.missing(list_version, now)
    }

    /// What was known at `begun` is older than whatever is taken in next.
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

    /// Takes that a list of this version did not contain the Lease. Returns whether that changed what is known.
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

    /// When the record last changed.
    pub(crate) fn changed(&self) -> Moment {
        self.changed
    }
}
