//! All namespaces, as a cluster-wide operator sees them. No IO, no clock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::ScopeTiming;
use super::installations::{Earlier, Installations};
use crate::{Candidate, Change, Decision, Epoch, Hold, Moment, Observation, Ownership, Record, Role, decide};

/// How long an entry of a namespace whose Lease is gone is kept, for its epoch.
const FORGET: Duration = Duration::from_hours(1);

/// The Lease of a restricted operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its holder's identity.
    pub holder: Option<String>,
    /// Its epoch.
    pub epoch: Epoch,
    /// How long ago it was last seen to change.
    pub age: Duration,
    /// Whether it keeps the cluster-wide operator from writing: it is alive and has a voucher.
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
    /// The older installation that leads instead of this one.
    ahead: Option<Earlier>,
    /// As of when all of them are known: when the last list was begun, or the last write of ours that the watch brought.
    confirmed: Option<Moment>,
    /// The hold in which our leader may act.
    leads: Option<u32>,
}

/// A cluster-wide operator's view of all namespaces, as a state machine.
#[derive(Debug)]
pub struct ScopeView {
    timing: ScopeTiming,
    scopes: BTreeMap<String, Scope>,
    among: Option<Among>,
    /// The namespaces that an administrator has handed over: Leases count in these alone.
    vouched: BTreeSet<String>,
    /// When the last complete look at what vouches was begun.
    vouchers: Option<Moment>,
    /// Namespaces that are not vouched for any more: until when a holder may act that has not found out.
    withdrawn: BTreeMap<String, Moment>,
    /// Names of Leases that were listed since it is known without a gap what vouches.
    surveyed: BTreeSet<String>,
    /// By lease name: when the last complete list was begun.
    confirmed: BTreeMap<String, Option<Moment>>,
    fresh: Option<Moment>,
    /// Whether the Leases were known when that was last looked at.
    leases_known: bool,
    changes: Vec<Change>,
}

impl ScopeView {
    /// A view that has seen nothing yet of Leases with these names.
    pub fn new<N: Into<String>>(timing: ScopeTiming, names: impl IntoIterator<Item = N>) -> Self {
        Self {
            timing,
            scopes: BTreeMap::new(),
            among: None,
            vouched: BTreeSet::new(),
            vouchers: None,
            withdrawn: BTreeMap::new(),
            surveyed: BTreeSet::new(),
            confirmed: names.into_iter().map(|name| (name.into(), None)).collect(),
            fresh: None,
            leases_known: false,
            changes: Vec::new(),
        }
    }

    /// Takes the namespaces that have a voucher: from complete lists begun at `begun`, or from a change seen since
    /// (`None`).
    ///
    /// A namespace that loses its voucher belongs to nobody until its holder has noticed, whatever its Lease says from
    /// then on: the holder reads its voucher whenever it renews, and stops without one. Every operator validates there
    /// meanwhile. A view that starts, or was not updated for a while, does not know which vouchers were removed: it
    /// treats every namespace in which a Lease is held like this, once.
    pub fn vouched(&mut self, namespaces: BTreeSet<String>, begun: Option<Moment>, now: Moment) {
        if begun.is_some() && self.vouchers.is_none_or(|at| now >= at + self.timing.freshness) {
            self.surveyed.clear();
        }
        let before = std::mem::replace(&mut self.vouched, namespaces);
        for namespace in before.difference(&self.vouched).cloned().collect::<Vec<_>>() {
            self.withdraw(&namespace, now);
        }
        if self.vouched.is_empty() {
            // Nobody looks at Leases then: before they count again, they are listed again.
            self.confirmed.values_mut().for_each(|at| *at = None);
        }
        self.vouchers = self.vouchers.max(begun);
        let turned: Vec<String> = before.symmetric_difference(&self.vouched).cloned().collect();
        for namespace in turned {
            self.refresh(&namespace, now);
        }
        self.advance(now);
    }

    /// Whether to read Leases of scopes: while any namespace has a voucher, and once after the vouchers were not known.
    pub fn looks(&self) -> bool {
        !self.vouched.is_empty() || (self.vouchers.is_some() && self.surveyed.len() < self.confirmed.len())
    }

    /// Until its holder has found out.
    fn withdraw(&mut self, namespace: &str, now: Moment) {
        let until = now + self.timing.duration + self.timing.grace + self.timing.freshness;
        self.withdrawn.insert(namespace.to_owned(), until);
        scope(&mut self.scopes, namespace, now).lives = false;
        self.refresh(namespace, now);
    }

    /// Makes this one of several cluster-wide installations, whose leader holds this Lease: of those that are alive,
    /// the one whose Lease was created first leads; the others validate and never write.
    pub fn among(&mut self, namespace: &str, lease: &str) {
        let installations = Installations::new(namespace, lease);
        self.among = Some(Among { installations, ahead: None, confirmed: None, leads: None });
    }

    /// Takes the Lease of an installation's leader, this one's or another's.
    pub fn see_leader(&mut self, namespace: &str, lease: &str, record: Record, now: Moment) {
        if let Some(among) = &mut self.among {
            among.installations.see(namespace, lease, record, now);
        }
        self.advance(now);
    }

    /// Takes that the Lease of an installation's leader was deleted, or lost its label, as of this version.
    pub fn leader_gone(&mut self, namespace: &str, lease: &str, version: &str, now: Moment) {
        if let Some(among) = &mut self.among {
            among.installations.gone(namespace, lease, version, now);
        }
        self.advance(now);
    }

    /// Takes a list of the leaders' Leases, by namespace and name, begun at `begun`. `all` is false if the list was cut
    /// off.
    pub fn leaders_listed(
        &mut self,
        found: Vec<(String, String, Record)>,
        all: bool,
        version: &str,
        begun: Moment,
        now: Moment,
    ) {
        if let Some(among) = &mut self.among {
            among.installations.listed(found, all, version, begun, now);
            among.confirmed = Some(begun);
        }
        self.advance(now);
    }

    /// Takes that a write of this leader's Lease, begun at `begun`, was stored under `version`. Once the watch has
    /// delivered that version, or a later one, it has delivered all before it: the view was complete when the write was
    /// begun.
    pub fn heard(&mut self, begun: Moment, version: &str, now: Moment) {
        if let Some(among) = self.among.as_mut().filter(|among| among.installations.has_seen(version)) {
            among.confirmed = among.confirmed.max(Some(begun));
        }
        self.advance(now);
    }

    /// Whether to treat the watch of leaders' Leases as dead: this leader's write did not come back on it within a
    /// quarter of [`ScopeTiming::hearing`].
    pub fn is_deaf(&self, begun: Moment, version: &str, now: Moment) -> bool {
        let unseen = self.among.as_ref().is_some_and(|among| !among.installations.has_seen(version));
        unseen && now.since(begun) > self.timing.hearing() / 4
    }

    /// The earlier installation that leads instead of this one.
    pub fn ahead(&mut self, now: Moment) -> Option<Earlier> {
        self.advance(now);
        self.among.as_ref()?.ahead.clone()
    }

    /// Whether this leader may write in the hold of this epoch: the hold is seen, the view counts, and no other
    /// installation may be writing. Always true without [`among`](Self::among).
    pub fn leads(&mut self, epoch: Epoch, now: Moment) -> bool {
        self.advance(now);
        self.among.as_ref().is_none_or(|among| self.fresh.is_some() && among.leads == Some(epoch.transitions))
    }

    /// Takes a Lease that was seen. It counts if its namespace is [vouched](Self::vouched) for.
    pub fn see(&mut self, namespace: &str, name: &str, record: Record, now: Moment) {
        self.take(namespace, name, now, |lease| lease.see(Some(record), now));
    }

    fn take(&mut self, namespace: &str, name: &str, now: Moment, take: impl FnOnce(&mut Observation) -> bool) {
        let listed = self.confirmed.get(name).copied().flatten().is_some();
        let counts = listed && self.vouched.contains(namespace);
        let scope = scope(&mut self.scopes, namespace, now);
        let news = take(scope.leases.entry(name.to_owned()).or_default());
        scope.lives |= news && counts;
        self.refresh(namespace, now);
    }

    /// Takes that a Lease was deleted, as of this version. Its holder acts until it notices, so the lease lasts as long
    /// as if it still existed.
    pub fn gone(&mut self, namespace: &str, name: &str, version: &str, now: Moment) {
        if let Some(lease) = self.scopes.get_mut(namespace).and_then(|scope| scope.leases.get_mut(name)) {
            lease.missing(version, now);
        }
    }

    /// Takes a quorum list of all Leases of one name, begun at `begun`.
    pub fn listed(&mut self, name: &str, found: Vec<(String, Record)>, version: &str, begun: Moment, now: Moment) {
        let mut absent: BTreeSet<String> = self.scopes.keys().cloned().collect();
        for (there, _) in &found {
            absent.remove(there);
        }
        let known = !self.surveyed.insert(name.to_owned());
        for (namespace, record) in found {
            if !known && record.holder.is_some() && !self.vouched.contains(&namespace) {
                self.withdraw(&namespace, now);
            }
            self.take(&namespace, name, now, |lease| lease.read(Some(record), begun, now));
        }
        for namespace in absent {
            if let Some(lease) = self.scopes.get_mut(&namespace).and_then(|scope| scope.leases.get_mut(name)) {
                lease.absent(version, begun, now);
            }
        }
        if let Some(confirmed) = self.confirmed.get_mut(name).filter(|_| !self.vouched.is_empty()) {
            *confirmed = Some(begun);
        }
        self.advance(now);
    }

    /// Lets time pass: ends what has expired.
    pub fn advance(&mut self, now: Moment) {
        let due = |scope: &Scope| scope.acting.is_none() && scope.until.is_none_or(|until| until <= now);
        let namespaces: Vec<String> =
            self.scopes.iter().filter(|(_, scope)| due(scope)).map(|(namespace, _)| namespace.clone()).collect();
        for namespace in namespaces {
            self.refresh(&namespace, now);
        }
        self.withdrawn.retain(|_, until| now < *until);
        self.scopes.retain(|_, scope| {
            let gone = scope.leases.values().all(|lease| lease.present().is_none());
            !(gone && scope.acting.is_some_and(|since| now.since(since) > FORGET))
        });
        self.rank(now);
        let leases_known = self.knows_leases(now);
        if leases_known && !self.leases_known {
            self.changes.extend(self.vouched.iter().cloned().map(Change::Namespace));
        }
        self.leases_known = leases_known;
        let fresh = self.knows_vouchers(now);
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
        if self.vouched.contains(namespace) && !self.leases_known {
            return self.theirs(namespace).unwrap_or(Ownership::Unknown);
        }
        self.theirs(namespace).unwrap_or_else(|| {
            let scope = self.scopes.get(namespace);
            let since = scope.and_then(|scope| scope.acting).unwrap_or(fresh_since);
            Ownership::Mine { epoch: scope.map(Scope::epoch).unwrap_or_default(), since }
        })
    }

    /// Returns the changes since the last call.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// When something next changes by itself.
    pub fn turns_at(&self, now: Moment) -> Option<Moment> {
        let ends = self.scopes.values().filter(|scope| scope.acting.is_none()).filter_map(|scope| scope.until);
        let turns = self.among.as_ref().and_then(|among| among.installations.turns_at(&self.timing, now));
        let fresh = [self.vouchers, self.leases()].into_iter().flatten().map(|at| at + self.timing.freshness);
        let heard = self.among.as_ref().and_then(|among| among.confirmed).map(|at| at + self.timing.hearing());
        ends.chain(turns).chain(fresh.chain(heard).filter(|at| now < *at)).min()
    }

    /// How many namespaces other operators own.
    pub fn theirs_count(&self) -> usize {
        let vouched = self.vouched.iter().filter_map(|namespace| self.scopes.get(namespace));
        vouched.filter(|scope| scope.acting.is_none()).count()
    }

    /// Its durations.
    pub fn timing(&self) -> &ScopeTiming {
        &self.timing
    }

    /// Whether there were more leaders' Leases than are kept, since they were last listed.
    pub fn is_crowded(&self) -> bool {
        self.among.as_ref().is_some_and(|among| among.installations.is_crowded())
    }

    /// Whether the view counts: of vouchers, and of the Leases that they vouch for.
    pub fn is_fresh(&self, now: Moment) -> bool {
        self.knows_vouchers(now) && (self.vouched.is_empty() || self.knows_leases(now))
    }

    /// When the view was last complete; `None` before the first time.
    pub fn confirmed(&self) -> Option<Moment> {
        if self.vouched.is_empty() { self.vouchers } else { self.vouchers.min(self.leases()) }
    }

    /// The others were listed once: from then on those that come are seen.
    fn knows_vouchers(&self, now: Moment) -> bool {
        let among = self.among.as_ref().is_none_or(|among| among.confirmed.is_some());
        let surveyed = self.surveyed.len() == self.confirmed.len();
        among && surveyed && self.vouchers.is_some_and(|at| now < at + self.timing.freshness)
    }

    fn knows_leases(&self, now: Moment) -> bool {
        self.leases().is_some_and(|at| now < at + self.timing.freshness)
    }

    /// As of when the Leases of scopes are known, all of them.
    fn leases(&self) -> Option<Moment> {
        self.confirmed.values().copied().min().flatten()
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
                    active: self.vouched.contains(namespace) && self.end_of(lease).is_some_and(|until| now < until),
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
        let heard = among.confirmed.is_some_and(|at| now < at + self.timing.hearing());
        let leads = among.installations.leads(&self.timing, now).filter(|_| heard);
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
        let mut until = self.withdrawn.get(namespace).copied().filter(|until| now < *until);
        for lease in scope.leases.values().filter(|_| self.vouched.contains(namespace)) {
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

/// A namespace without entry is ours.
fn scope<'a>(scopes: &'a mut BTreeMap<String, Scope>, namespace: &str, now: Moment) -> &'a mut Scope {
    scopes.entry(namespace.to_owned()).or_insert_with(|| Scope {
        leases: BTreeMap::new(),
        acting: Some(now),
        lives: false,
        theirs_since: now,
        until: None,
    })
}

impl Scope {
    /// Ours after the last hold that was seen.
    fn epoch(&self) -> Epoch {
        let seen = self.leases.values().filter_map(Observation::last).map(|record| record.transitions).max();
        seen.map_or(Epoch::default(), |transitions| Epoch::hold(transitions).resumed())
    }
}
