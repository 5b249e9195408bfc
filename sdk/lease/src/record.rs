use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;

use crate::Moment;
use crate::limits::LONGEST;

/// The fencing epoch: which hold, of all there ever were on one lease, an action belongs to.
///
/// It grows with every hand-over, so who stamps what it writes with its epoch can see that somebody later was there.
/// It counts in `spec.leaseTransitions`; deleting the Lease begins again, except for who has seen the old one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch {
    /// The number of the hold, from `spec.leaseTransitions`; our first is 1. Zero: no lease, or a holder that does not count.
    pub transitions: u32,
    /// Whether this is the cluster-wide operator, acting again *after* that hold.
    pub resumed: bool,
}

impl Epoch {
    /// Hold number `transitions`.
    pub const fn hold(transitions: u32) -> Self {
        Self { transitions, resumed: false }
    }

    /// What follows for the cluster-wide operator when this hold ends.
    #[must_use]
    pub const fn resumed(self) -> Self {
        Self { resumed: true, ..self }
    }

    /// The next hold. The API allows no number past `i32::MAX`; there it stays.
    #[must_use]
    pub fn next(self) -> Self {
        Self::hold(self.transitions.saturating_add(1).min(i32::MAX.unsigned_abs()))
    }
}

impl fmt::Display for Epoch {
    /// `3`, or `3+` for the cluster-wide operator after hold 3.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.transitions, if self.resumed { "+" } else { "" })
    }
}

/// What a Lease says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// `holderIdentity`; none when released.
    pub holder: Option<String>,
    /// `acquireTime`, by the holder's wall clock.
    pub acquired: Option<Timestamp>,
    /// `renewTime`, by the holder's wall clock. That it *changed* says that the holder lives; its value says nothing.
    pub renewed: Option<Timestamp>,
    /// `leaseDurationSeconds`, as the holder has it; five minutes at most, whatever it says.
    pub duration: Option<Duration>,
    /// `leaseTransitions`.
    pub transitions: u32,
    /// `metadata.creationTimestamp`, by the API server's clock. It orders Leases; it is compared with no clock.
    pub created: Option<Timestamp>,
    /// `resourceVersion`, the precondition of the next write.
    pub version: String,
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

impl Record {
    /// Whether it is what `version` names, or was written after that.
    pub(crate) fn is_as_new_as(&self, version: &str) -> bool {
        match (self.version.parse::<u64>(), version.parse::<u64>()) {
            (Ok(ours), Ok(theirs)) => ours >= theirs,
            _ => self.version == version,
        }
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
            created: lease.metadata.creation_timestamp.as_ref().map(|time| time.0),
            version: lease.metadata.resource_version.clone().unwrap_or_default(),
        }
    }
}

/// What was seen of one lease, and when it last changed by our own clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    record: Option<Record>,
    present: bool,
    changed: Moment,
    /// When the record was taken in.
    learned: Moment,
}

impl Observation {
    /// Takes in what a quorum read that was begun at `begun` found, at `now`. It shows all that was known when it was
    /// begun, so it replaces that whatever its version is: after a restore of etcd, versions go on from an earlier one.
    /// Returns whether it says something new.
    pub fn read(&mut self, found: Option<Record>, begun: Moment, now: Moment) -> bool {
        self.outdate(begun);
        self.see(found, now)
    }

    /// Takes in that a quorum list of this version, begun at `begun`, did not hold the Lease. Returns whether that is
    /// news.
    pub fn absent(&mut self, list_version: &str, begun: Moment, now: Moment) -> bool {
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

    /// Takes in what a read, a watch or a write of ours returned at `now`; `None` when there is no Lease. What was
    /// written before what is known already is left out. Returns whether it says something new.
    pub fn see(&mut self, seen: Option<Record>, now: Moment) -> bool {
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

    /// Takes in that a list of this version did not hold the Lease. Returns whether that is news.
    pub fn missing(&mut self, list_version: &str, now: Moment) -> bool {
        let listed = Record { version: list_version.to_owned(), ..Record::default() };
        let outdated = self.record.as_ref().is_some_and(|known| listed.older_than(&known.version));
        !outdated && self.see(None, now)
    }

    /// The Lease as it is; none when there is none.
    pub fn present(&self) -> Option<&Record> {
        self.record.as_ref().filter(|_| self.present)
    }

    /// The last that was ever seen of it, whether it is still there or not.
    pub fn last(&self) -> Option<&Record> {
        self.record.as_ref()
    }

    /// When what it says last changed.
    pub fn changed(&self) -> Moment {
        self.changed
    }
}
