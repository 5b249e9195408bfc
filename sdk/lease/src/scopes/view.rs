//! All namespaces, as a cluster-wide operator sees them. No IO, no clock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::ScopeTiming;
use crate::Ownership;
use crate::changes::Change;
use crate::record::{Observation, Record};
use crate::time::Moment;

/// The time for which an entry without a Lease is kept, so that an older answer does not bring it back.
const FORGET: Duration = Duration::from_hours(1);

/// A namespace in which a Lease was seen.
#[derive(Debug)]
struct Scope {
    lease: Observation,
    /// Whether this operator acts here.
    acting: bool,
    /// When that last changed.
    since: Moment,
    /// Whether the Lease was seen to change, or to be created: that of a dead holder is only found.
    is_alive: bool,
    /// The time at which the other's ownership ends by itself.
    until: Option<Moment>,
}

/// A cluster-wide operator's view of all namespaces, as a state machine.
///
/// It counts for [`ScopeTiming::freshness`] after a list. There is no list without a question: a question makes the
/// view [need](Self::needs_list) a list when the last one is older than [`ScopeTiming::confirm`].
#[derive(Debug)]
pub(crate) struct ScopeView {
    timing: ScopeTiming,
    scopes: BTreeMap<String, Scope>,
    /// The namespaces that an administrator has handed over: Leases count in these alone.
    handed_over: BTreeSet<String>,
    /// When the last complete list of what hands namespaces over was begun.
    handovers_listed: Option<Moment>,
    /// Namespaces that were taken back: until when a holder may act that has not noticed.
    taken_back: BTreeMap<String, Moment>,
    /// Whether the Leases were listed since the hand-overs are known without a gap.
    is_complete: bool,
    /// When the last complete list of Leases was begun.
    leases_listed: Option<Moment>,
    /// The first question that no list has answered yet.
    asked: Option<Moment>,
    /// The last time that was taken in.
    ticked: Moment,
    /// Whether an owner was reported as unknown because the view was too old.
    answered_unknown: bool,
    changes: Vec<Change>,
}

impl ScopeView {
    /// A view that has seen nothing yet.
    pub(crate) fn new(timing: ScopeTiming) -> Self {
        Self {
            timing,
            scopes: BTreeMap::new(),
            handed_over: BTreeSet::new(),
            handovers_listed: None,
            taken_back: BTreeMap::new(),
            is_complete: false,
            leases_listed: None,
            asked: None,
            ticked: Moment::default(),
            answered_unknown: false,
            changes: Vec::new(),
        }
    }

    /// Takes the namespaces that are handed over: from complete lists begun at `begun`, or from a change seen since
    /// (`None`).
    ///
    /// A namespace that is taken back has no owner until its holder has noticed, whatever its Lease says from
    /// then on: the holder reads the policy and its binding whenever it renews, and stops without them. Every operator
    /// validates there meanwhile. A view that starts, whose process stood still, or whose lists failed for a while,
    /// does not know what was taken back: it treats every namespace in which a Lease is held like this, once.
    pub(crate) fn handed_over(&mut self, namespaces: BTreeSet<String>, begun: Option<Moment>, now: Moment) {
        self.tick(now);
        if begun.is_some() && self.asked.is_some_and(|at| now >= at + self.timing.freshness) {
            self.is_complete = false;
        }
        let before = std::mem::replace(&mut self.handed_over, namespaces);
        for namespace in before.difference(&self.handed_over).cloned().collect::<Vec<_>>() {
            self.take_back(&namespace, now);
        }
        if self.handed_over.is_empty() {
            // Leases are not read then, and so are listed again before they count.
            self.leases_listed = None;
        }
        self.handovers_listed = self.handovers_listed.max(begun);
        let turned: Vec<String> = before.symmetric_difference(&self.handed_over).cloned().collect();
        for namespace in turned {
            self.refresh(&namespace, now);
        }
        self.tick(now);
    }

    /// Whether to read Leases of scopes: while any namespace is handed over, and once after that was not known.
    pub(crate) fn needs_leases(&self) -> bool {
        !self.handed_over.is_empty() || (self.handovers_listed.is_some() && !self.is_complete)
    }

    /// Whether there was a question that the last list is too old to answer.
    pub(crate) fn needs_list(&self) -> bool {
        self.asked.is_some()
    }

    /// Leaves the namespace without an owner until its holder has noticed.
    fn take_back(&mut self, namespace: &str, now: Moment) {
        let until = now + self.timing.duration + self.timing.grace + self.timing.freshness;
        self.taken_back.insert(namespace.to_owned(), until);
        self.scope(namespace, now).is_alive = false;
        self.refresh(namespace, now);
    }

    /// Takes a Lease that was seen. It counts if its namespace is [handed over](Self::handed_over).
    pub(crate) fn see(&mut self, namespace: &str, record: Record, now: Moment) {
        self.take(namespace, now, |lease| lease.see(Some(record), now));
    }

    fn take(&mut self, namespace: &str, now: Moment, take: impl FnOnce(&mut Observation) -> bool) {
        let counts = self.leases_listed.is_some() && self.handed_over.contains(namespace);
        let scope = self.scope(namespace, now);
        let news = take(&mut scope.lease);
        scope.is_alive |= news && counts;
        self.refresh(namespace, now);
    }

    /// Takes that a Lease was deleted, as of this version. Its holder acts until it notices, so the lease lasts as long
    /// as if it still existed.
    pub(crate) fn gone(&mut self, namespace: &str, version: &str, now: Moment) {
        if let Some(scope) = self.scopes.get_mut(namespace) {
            scope.lease.missing(version, now);
        }
    }

    /// Takes a quorum list of all Leases, begun at `begun`.
    pub(crate) fn listed(&mut self, found: Vec<(String, Record)>, version: &str, begun: Moment, now: Moment) {
        let mut absent: BTreeSet<String> = self.scopes.keys().cloned().collect();
        for (there, _) in &found {
            absent.remove(there);
        }
        let known = std::mem::replace(&mut self.is_complete, true);
        for (namespace, record) in found {
            if !known && record.holder.is_some() && !self.handed_over.contains(&namespace) {
                self.take_back(&namespace, now);
            }
            self.take(&namespace, now, |lease| lease.read(Some(record), begun, now));
        }
        for namespace in absent {
            if let Some(scope) = self.scopes.get_mut(&namespace) {
                scope.lease.absent(version, begun, now);
            }
        }
        if !self.handed_over.is_empty() {
            self.leases_listed = Some(begun);
        }
        self.tick(now);
    }

    /// Takes the time: ends what has expired.
    pub(crate) fn tick(&mut self, now: Moment) {
        // A process that was suspended for so long does not know what it missed.
        self.is_complete &= now < self.ticked + self.timing.freshness;
        self.ticked = now;
        let due = |scope: &Scope| !scope.acting && scope.until.is_none_or(|until| until <= now);
        let namespaces: Vec<String> =
            self.scopes.iter().filter(|(_, scope)| due(scope)).map(|(namespace, _)| namespace.clone()).collect();
        for namespace in namespaces {
            self.refresh(&namespace, now);
        }
        self.taken_back.retain(|_, until| now < *until);
        self.scopes.retain(|_, scope| {
            let gone = scope.lease.present().is_none();
            !(gone && scope.acting && now.since(scope.since) > FORGET)
        });
        if self.confirmed() >= self.asked {
            self.asked = None;
        }
        if self.answered_unknown && self.is_fresh(now) {
            self.answered_unknown = false;
            self.changes.push(None);
        }
    }

    /// Returns the owner of this namespace at `now`. The view [needs a list](Self::needs_list) if it is old.
    pub(crate) fn owns(&mut self, namespace: &str, now: Moment) -> Ownership {
        self.ask(now);
        let owner = self.owner(namespace, now);
        self.answered_unknown |= owner == Ownership::Unknown && !self.is_fresh(now);
        owner
    }

    /// Answers as [`owns`](Self::owns), for a caller that may err on the side of [`Ownership::Unknown`]: a list follows
    /// only where another's ownership has to be confirmed.
    pub(crate) fn peek(&mut self, namespace: &str, now: Moment) -> Ownership {
        self.tick(now);
        let owner = self.owner(namespace, now);
        if owner == Ownership::Theirs {
            self.ask(now);
        }
        owner
    }

    fn owner(&self, namespace: &str, now: Moment) -> Ownership {
        // A namespace that is known to be another's stays another's while no list succeeds.
        if let Some(theirs) = self.theirs(namespace) {
            theirs
        } else if !self.knows_handovers(now) || (self.handed_over.contains(namespace) && !self.knows_leases(now)) {
            Ownership::Unknown
        } else {
            Ownership::Mine
        }
    }

    /// Asks for a list, if the last one is old.
    pub(crate) fn ask(&mut self, now: Moment) {
        self.tick(now);
        if self.confirmed().is_none_or(|at| now >= at + self.timing.confirm()) {
            self.asked.get_or_insert(now);
        }
    }

    /// Returns the changes since the last call.
    pub(crate) fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// When the view next changes by itself.
    pub(crate) fn next_deadline(&self, now: Moment) -> Option<Moment> {
        let ends = self.scopes.values().filter(|scope| !scope.acting).filter_map(|scope| scope.until);
        let listed = [self.handovers_listed, self.leases_listed].into_iter().flatten();
        ends.chain(listed.map(|at| at + self.timing.freshness).filter(|at| now < *at)).min()
    }

    /// Counts the namespaces that other operators own.
    pub(crate) fn excluded_namespaces(&self) -> usize {
        let handed_over = self.handed_over.iter().filter_map(|namespace| self.scopes.get(namespace));
        handed_over.filter(|scope| !scope.acting).count()
    }

    /// Its durations.
    pub(crate) fn timing(&self) -> ScopeTiming {
        self.timing
    }

    /// Whether the view counts: of hand-overs, and of Leases where there are any.
    pub(crate) fn is_fresh(&self, now: Moment) -> bool {
        self.knows_handovers(now) && (self.handed_over.is_empty() || self.knows_leases(now))
    }

    /// When the view was last complete; `None` before the first time.
    pub(crate) fn confirmed(&self) -> Option<Moment> {
        let listed = self.handovers_listed.filter(|_| self.is_complete);
        if self.handed_over.is_empty() { listed } else { listed.min(self.leases_listed) }
    }

    fn knows_handovers(&self, now: Moment) -> bool {
        self.is_complete && self.handovers_listed.is_some_and(|at| now < at + self.timing.freshness)
    }

    fn knows_leases(&self, now: Moment) -> bool {
        self.leases_listed.is_some_and(|at| now < at + self.timing.freshness)
    }

    fn theirs(&self, namespace: &str) -> Option<Ownership> {
        let scope = self.scopes.get(namespace).filter(|scope| !scope.acting)?;
        Some(if scope.is_alive { Ownership::Theirs } else { Ownership::Unknown })
    }

    /// Decides again who owns a namespace, and records a change.
    fn refresh(&mut self, namespace: &str, now: Moment) {
        let Some(scope) = self.scopes.get_mut(namespace) else { return };
        let mut until = self.taken_back.get(namespace).copied();
        if self.handed_over.contains(namespace) {
            // A released record counts like a held one: a successor in the same scope comes first.
            until = until.max(scope.lease.counts_until(self.timing.duration).map(|end| end + self.timing.grace));
        }
        let until = until.filter(|until| now < *until);
        if scope.acting != until.is_none() {
            scope.acting = until.is_none();
            scope.since = now;
            scope.is_alive &= until.is_some();
            self.changes.push(Some(namespace.to_owned()));
        }
        scope.until = until;
    }

    /// The entry of a namespace; one without an entry is ours.
    fn scope(&mut self, namespace: &str, now: Moment) -> &mut Scope {
        self.scopes.entry(namespace.to_owned()).or_insert_with(|| Scope {
            lease: Observation::default(),
            acting: true,
            since: now,
            is_alive: false,
            until: None,
        })
    }
}
