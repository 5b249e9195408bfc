//! All namespaces, as a cluster-wide operator sees them. No IO, no clock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::installations::{Earlier, Installations};
use crate::{
    Candidate, Change, Decision, Epoch, Hold, LeaseError, Moment, Observation, Ownership, Record, Role, decide,
};

/// How long an entry of a namespace whose Lease is gone is kept, for its epoch.
const FORGET: Duration = Duration::from_hours(1);

/// The durations of a cluster-wide operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScopeTiming {
    duration: Duration,
    grace: Duration,
    freshness: Duration,
}

impl ScopeTiming {
    /// 5 s of grace, which with [`Timing::SCOPE`](crate::Timing::SCOPE) makes 30 s; 4 s of freshness, less than the 5 s
    /// that a restricted operator settles.
    pub const DEFAULT: Self =
        Self { duration: Duration::from_secs(25), grace: Duration::from_secs(5), freshness: Duration::from_secs(4) };

    /// `duration`: for a holder that does not say how long its lease lasts.
    /// `grace`: how long past a lease's duration the namespace stays with the other; a successor needs some of it.
    /// `freshness`: for how long what is known counts. Shorter than [`Timing::settle`](crate::Timing::settle) of the
    /// restricted operators.
    ///
    /// # Errors
    /// [`LeaseError::Zero`].
    pub fn new(duration: Duration, grace: Duration, freshness: Duration) -> Result<Self, LeaseError> {
        for (field, value) in [("duration", duration), ("grace", grace), ("freshness", freshness)] {
            if value.is_zero() {
                return Err(LeaseError::Zero { field });
            }
        }
        Ok(Self { duration, grace, freshness })
    }

    /// For a holder that does not say how long its lease lasts.
    pub fn duration(&self) -> Duration {
        self.duration
    }

    /// How long past a lease's duration the namespace stays with the other.
    pub fn grace(&self) -> Duration {
        self.grace
    }

    /// How long a leader waits for later installations to find out that it is there: longer than what they know counts.
    pub fn settle(&self) -> Duration {
        self.freshness + self.freshness / 4
    }

    /// How often to list, so that one list may fail and what is known stays fresh.
    pub fn confirm(&self) -> Duration {
        self.freshness / 3
    }

    /// For how long what is known counts.
    pub fn freshness(&self) -> Duration {
        self.freshness
    }
}

/// One lease of a restricted operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Who holds it, as it says.
    pub holder: Option<String>,
    /// Its epoch.
    pub epoch: Epoch,
    /// How long ago it was last seen to change.
    pub age: Duration,
    /// Whether it keeps the cluster-wide operator off.
    pub active: bool,
}

#[derive(Debug)]
struct Scope {
    leases: BTreeMap<String, Observation>,
    /// Whether we act, and from when on.
    acting: Option<Moment>,
    /// Whether a lease was seen to change, or to come: not only found, as those of the dead are.
    lives: bool,
    /// When the other's ownership began.
    theirs_since: Moment,
    /// When the other's ownership ends by itself.
    until: Option<Moment>,
}

/// The other installations, and what follows from them.
#[derive(Debug)]
struct Among {
    installations: Installations,
    /// The one that we stand back for.
    ahead: Option<Earlier>,
    /// When the last list of all was begun.
    confirmed: Option<Moment>,
    /// The hold in which our leader may act.
    leads: Option<u32>,
}

/// All namespaces.
#[derive(Debug)]
pub struct ScopeView {
    timing: ScopeTiming,
    scopes: BTreeMap<String, Scope>,
    among: Option<Among>,
    /// By lease name: when the last complete list was begun.
    confirmed: BTreeMap<String, Option<Moment>>,
    fresh: Option<Moment>,
    changes: Vec<Change>,
}

impl ScopeView {
    /// Nothing seen yet of leases with these names.
    pub fn new<N: Into<String>>(timing: ScopeTiming, names: impl IntoIterator<Item = N>) -> Self {
        let confirmed = names.into_iter().map(|name| (name.into(), None)).collect();
        Self { timing, scopes: BTreeMap::new(), among: None, confirmed, fresh: None, changes: Vec::new() }
    }

    /// This is one of several cluster-wide installations, whose leader holds this Lease: of those that are alive,
    /// the one whose Lease was created first acts, and the others stand back: they check, and never write.
    pub fn among(&mut self, namespace: &str, lease: &str) {
        let installations = Installations::new(namespace, lease);
        self.among = Some(Among { installations, ahead: None, confirmed: None, leads: None });
    }

    /// The Lease of an installation's leader was seen, ours or another's.
    pub fn see_leader(&mut self, namespace: &str, lease: &str, record: Record, now: Moment) {
        if let Some(among) = &mut self.among {
            among.installations.see(namespace, lease, record, now);
        }
        self.advance(now);
    }

    /// The Lease of an installation's leader was deleted, or lost its label, as of this version.
    pub fn leader_gone(&mut self, namespace: &str, lease: &str, version: &str, now: Moment) {
        if let Some(among) = &mut self.among {
            among.installations.gone(namespace, lease, version, now);
        }
        self.advance(now);
    }

    /// The Leases of leaders were listed, by namespace and name, beginning at `begun`: all of them, or so many that the
    /// list was cut.
    pub fn leaders_listed(
        &mut self,
        found: Vec<(String, String, Record)>,
        all: bool,
        version: &str,
        begun: Moment,
        now: Moment,
    ) {
        if let Some(among) = &mut self.among {
            among.installations.listed(found, all, version, now);
            among.confirmed = Some(begun);
        }
        self.advance(now);
    }

    /// The installation that this one stands back for.
    pub fn ahead(&mut self, now: Moment) -> Option<Earlier> {
        self.advance(now);
        self.among.as_ref()?.ahead.clone()
    }

    /// Whether our leader may act in the hold of this epoch: it is seen, what is known counts, and no other installation
    /// may be acting. Always, for who is not [`among`](Self::among) others.
    pub fn leads(&mut self, epoch: Epoch, now: Moment) -> bool {
        self.advance(now);
        self.among.as_ref().is_none_or(|among| self.fresh.is_some() && among.leads == Some(epoch.transitions))
    }

    /// A Lease was seen.
    pub fn see(&mut self, namespace: &str, name: &str, record: Record, now: Moment) {
        // A namespace without entry is ours.
        let scope = self.scopes.entry(namespace.to_owned()).or_insert_with(|| Scope {
            leases: BTreeMap::new(),
            acting: Some(now),
            lives: false,
            theirs_since: now,
            until: None,
        });
        let news = scope.leases.entry(name.to_owned()).or_default().see(Some(record), now);
        scope.lives |= news && self.confirmed.get(name).copied().flatten().is_some();
        self.refresh(namespace, now);
    }

    /// A Lease was deleted, or does not count any more, as of this version. Its holder acts until it finds out: the
    /// lease lasts as long as if it were there.
    pub fn gone(&mut self, namespace: &str, name: &str, version: &str, now: Moment) {
        if let Some(lease) = self.scopes.get_mut(namespace).and_then(|scope| scope.leases.get_mut(name)) {
            lease.missing(version, now);
        }
    }

    /// All Leases of one name were listed, beginning at `begun`.
    pub fn listed(&mut self, name: &str, found: Vec<(String, Record)>, version: &str, begun: Moment, now: Moment) {
        let mut absent: BTreeSet<String> = self.scopes.keys().cloned().collect();
        for (there, _) in &found {
            absent.remove(there);
        }
        for (namespace, record) in found {
            self.see(&namespace, name, record, now);
        }
        for namespace in absent {
            self.gone(&namespace, name, version, now);
        }
        if let Some(confirmed) = self.confirmed.get_mut(name) {
            *confirmed = Some(begun);
        }
        self.advance(now);
    }

    /// Lets time pass: what ended ends.
    pub fn advance(&mut self, now: Moment) {
        let due = |scope: &Scope| scope.acting.is_none() && scope.until.is_none_or(|until| until <= now);
        let namespaces: Vec<String> =
            self.scopes.iter().filter(|(_, scope)| due(scope)).map(|(namespace, _)| namespace.clone()).collect();
        for namespace in namespaces {
            self.refresh(&namespace, now);
        }
        self.scopes.retain(|_, scope| {
            let gone = scope.leases.values().all(|lease| lease.present().is_none());
            !(gone && scope.acting.is_some_and(|since| now.since(since) > FORGET))
        });
        self.rank(now);
        let fresh = self.is_fresh(now);
        if fresh && self.fresh.is_none() {
            self.fresh = Some(now);
            self.changes.push(Change::Everywhere);
        } else if !fresh {
            self.fresh = None;
        }
    }

    /// Who owns this namespace at `now`.
    pub fn owns(&mut self, namespace: &str, now: Moment) -> Ownership {
        self.advance(now);
        // Many may write a Lease that looks like another installation's. So it keeps us from writing, never from checking.
        if self.among.as_ref().is_some_and(|among| among.installations.in_doubt(&self.timing, now)) {
            return self.theirs(namespace).unwrap_or(Ownership::Unknown);
        }
        let Some(fresh_since) = self.fresh else {
            // What is known to be another's stays another's while nothing is heard.
            return self.theirs(namespace).unwrap_or(Ownership::Unknown);
        };
        self.theirs(namespace).unwrap_or_else(|| {
            let scope = self.scopes.get(namespace);
            let since = scope.and_then(|scope| scope.acting).unwrap_or(fresh_since);
            Ownership::Mine { epoch: scope.map(Scope::epoch).unwrap_or_default(), since }
        })
    }

    /// Takes the changes since it was last asked.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// When something changes by itself.
    pub fn turns_at(&self, now: Moment) -> Option<Moment> {
        let ends = self.scopes.values().filter(|scope| scope.acting.is_none()).filter_map(|scope| scope.until);
        let turns = self.among.as_ref().and_then(|among| among.installations.turns_at(&self.timing, now));
        ends.chain(turns).chain(self.fresh.and(self.confirmed()).map(|at| at + self.timing.freshness)).min()
    }

    /// How many namespaces are another's.
    pub fn theirs_count(&self) -> usize {
        self.scopes.values().filter(|scope| scope.acting.is_none()).count()
    }

    /// How often to list.
    pub fn confirm(&self) -> Duration {
        self.timing.confirm()
    }

    /// For how long what is known counts.
    pub fn freshness(&self) -> Duration {
        self.timing.freshness()
    }

    /// Whether what is known counts.
    pub fn is_fresh(&self, now: Moment) -> bool {
        self.confirmed().is_some_and(|at| now < at + self.timing.freshness)
    }

    /// When what is known was last complete; none before that.
    pub fn confirmed(&self) -> Option<Moment> {
        let installations = self.among.as_ref().map(|among| among.confirmed);
        self.confirmed.values().copied().chain(installations).min().flatten()
    }

    /// Every lease that is known, for metrics and diagnosis.
    pub fn claims(&self, now: Moment) -> Vec<Claim> {
        let of = |(namespace, scope): (&String, &Scope)| {
            let claims = scope.leases.iter().filter_map(|(name, lease)| {
                let record = lease.present()?;
                Some(Claim {
                    namespace: namespace.clone(),
                    name: name.clone(),
                    holder: record.holder.clone(),
                    epoch: Epoch::hold(record.transitions),
                    age: now.since(lease.changed()),
                    active: self.end_of(lease).is_some_and(|until| now < until),
                })
            });
            claims.collect::<Vec<_>>()
        };
        self.scopes.iter().flat_map(of).collect()
    }

    /// Decides again which installation acts; tells when that, or the hold in which ours does, is another than before.
    fn rank(&mut self, now: Moment) {
        let Some(among) = &mut self.among else { return };
        among.installations.advance(&self.timing, now);
        let ahead = among.installations.ahead(&self.timing, now);
        let leads = among.installations.leads(&self.timing, now);
        if among.ahead != ahead || among.leads != leads {
            self.changes.push(Change::Everywhere);
        }
        (among.ahead, among.leads) = (ahead, leads);
    }

    fn role(&self) -> Role {
        Role::Fallback { duration: self.timing.duration, grace: self.timing.grace }
    }

    fn end_of(&self, lease: &Observation) -> Option<Moment> {
        let duration = lease.last()?.duration.unwrap_or(self.timing.duration);
        Some(lease.changed() + duration + self.timing.grace)
    }

    fn theirs(&self, namespace: &str) -> Option<Ownership> {
        let scope = self.scopes.get(namespace).filter(|scope| scope.acting.is_none())?;
        if !scope.lives {
            return Some(Ownership::Unknown);
        }
        let lease = scope.leases.values().max_by_key(|lease| self.end_of(lease))?.last()?;
        Some(Ownership::Theirs {
            holder: lease.holder.clone().unwrap_or_default(),
            epoch: Epoch::hold(lease.transitions),
            since: scope.theirs_since,
            until: scope.until,
        })
    }

    /// Decides again who owns a namespace; tells when that, or the other's epoch, is another than before.
    fn refresh(&mut self, namespace: &str, now: Moment) {
        let role = self.role();
        let Some(scope) = self.scopes.get_mut(namespace) else { return };
        let hold = scope.acting.map(|since| Hold { epoch: scope.epoch(), since, confirmed: since, renew_at: since });
        let me = Candidate { identity: "", role, hold };
        let mut until = None;
        for lease in scope.leases.values() {
            let end = match decide(lease, now, &me) {
                Decision::Wait { until } => until,
                // Yield says that it begins; asked as one who does not act, the same function says how long.
                Decision::Yield { .. } => match decide(lease, now, &Candidate { hold: None, ..me }) {
                    Decision::Wait { until } => until,
                    _ => None,
                },
                Decision::Acquire { .. } | Decision::Renew { .. } => None,
            };
            until = until.max(end);
        }
        match (scope.acting, until) {
            (Some(_), Some(_)) => {
                scope.acting = None;
                scope.theirs_since = now;
                self.changes.push(Change::Namespace(namespace.to_owned()));
            }
            (None, None) => {
                scope.acting = Some(now);
                scope.lives = false;
                self.changes.push(Change::Namespace(namespace.to_owned()));
            }
            _ => {}
        }
        scope.until = until;
    }
}

impl Scope {
    /// Ours after the last hold that was seen.
    fn epoch(&self) -> Epoch {
        let seen = self.leases.values().filter_map(Observation::last).map(|record| record.transitions).max();
        seen.map_or(Epoch::default(), |transitions| Epoch::hold(transitions).resumed())
    }
}
