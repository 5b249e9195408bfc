//! Several cluster-wide installations of one operator: the one that was there first acts. No IO, no clock.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::ScopeTiming;
use crate::limits::LEADERS;
use crate::{Candidate, Decision, Moment, Observation, Record, Role, decide};

/// Namespace and name of a Lease.
type Place = (String, String);

/// A cluster-wide installation that was installed before this one, by the Lease of its leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Earlier {
    /// The namespace of its Lease.
    pub namespace: String,
    /// The name of its Lease.
    pub lease: String,
}

#[derive(Debug, Default)]
struct Seen {
    lease: Observation,
    /// When its present hold was first seen.
    held_since: Moment,
    /// Whether it was seen to change, or to come: not only found, as the Leases of the dead are.
    lives: bool,
}

/// The leader Leases of all installations, ours among them.
///
/// All agree on who is first, because a Lease never changes its `creationTimestamp`, and no clock is compared with it. A Lease
/// counts as a tenant's does for a cluster-wide operator: for its duration and grace from when we saw it change, held or
/// given back, so that a rolling update of the first gives the second no turn.
///
/// That two do not act at the same time: the later one acts on a view that is at most [`ScopeTiming::hearing`] old and
/// shows no earlier one. An earlier one that comes back acts on a view in which its own new hold is seen; whoever began
/// before that hold is seen with it, and is given [`ScopeTiming::settle`] to find out.
#[derive(Debug)]
pub(super) struct Installations {
    own: Place,
    seen: BTreeMap<Place, Seen>,
    /// Whether all were listed once: what comes after that is new.
    listed: bool,
    /// Whether some were forgotten since then because there were too many.
    crowded: bool,
}

impl Installations {
    pub(super) fn new(namespace: &str, lease: &str) -> Self {
        let own = (namespace.to_owned(), lease.to_owned());
        Self { own, seen: BTreeMap::new(), listed: false, crowded: false }
    }

    pub(super) fn is_crowded(&self) -> bool {
        self.crowded
    }

    pub(super) fn see(&mut self, namespace: &str, lease: &str, record: Record, now: Moment) {
        self.take(namespace, lease, now, |lease| lease.see(Some(record), now));
    }

    fn take(&mut self, namespace: &str, lease: &str, now: Moment, take: impl FnOnce(&mut Observation) -> bool) {
        let seen = self.seen.entry((namespace.to_owned(), lease.to_owned())).or_default();
        let hold = |of: &Seen| of.lease.present().map(|record| (record.transitions, record.created));
        let before = hold(seen);
        seen.lives |= take(&mut seen.lease) && self.listed;
        if hold(seen) != before {
            seen.held_since = now;
        }
    }

    pub(super) fn gone(&mut self, namespace: &str, lease: &str, version: &str, now: Moment) {
        if let Some(seen) = self.seen.get_mut(&(namespace.to_owned(), lease.to_owned())) {
            seen.lease.missing(version, now);
        }
    }

    /// Whether this version of our own Lease was seen, or a later one.
    pub(super) fn has_seen(&self, version: &str) -> bool {
        let own = self.seen.get(&self.own).and_then(|seen| seen.lease.last());
        own.is_some_and(|record| record.is_as_new_as(version))
    }

    /// What a quorum list that was begun at `begun` found. Of one that was cut, what is not in it may be there.
    pub(super) fn listed(
        &mut self,
        found: Vec<(String, String, Record)>,
        all: bool,
        version: &str,
        begun: Moment,
        now: Moment,
    ) {
        let mut absent: BTreeSet<Place> = if all { self.seen.keys().cloned().collect() } else { BTreeSet::new() };
        for (namespace, lease, record) in found {
            self.take(&namespace, &lease, now, |lease| lease.read(Some(record), begun, now));
            absent.remove(&(namespace, lease));
        }
        for place in absent {
            if let Some(seen) = self.seen.get_mut(&place) {
                seen.lease.absent(version, begun, now);
            }
        }
        (self.listed, self.crowded) = (true, !all);
    }

    /// Forgets what is gone and does not count any more, and of too many those that came last: any that came before ours
    /// says as much as all of them.
    pub(super) fn advance(&mut self, timing: &ScopeTiming, now: Moment) {
        self.seen.retain(|_, seen| seen.lease.present().is_some() || alive(seen, timing, now).is_some());
        let most = usize::try_from(LEADERS).unwrap_or(usize::MAX);
        while self.seen.len() > most {
            let others = self.seen.iter().filter(|(place, _)| **place != self.own);
            let last = others.max_by_key(|(place, seen)| rank(place, seen)).map(|(place, _)| place.clone());
            let Some(last) = last else { return };
            self.seen.remove(&last);
            self.crowded = true;
        }
    }

    /// The first of those that are seen to live, when that is not the one that asks. Who has no Lease comes last.
    pub(super) fn ahead(&self, timing: &ScopeTiming, now: Moment) -> Option<Earlier> {
        let ((namespace, lease), ..) =
            self.earlier(timing, now).filter(|(_, seen, _)| seen.lives).min_by_key(ranked)?;
        Some(Earlier { namespace: namespace.clone(), lease: lease.clone() })
    }

    /// Whether an earlier one may be acting, seen to live or not.
    pub(super) fn in_doubt(&self, timing: &ScopeTiming, now: Moment) -> bool {
        self.earlier(timing, now).next().is_some()
    }

    /// The hold in which our leader may act: none while it is not seen, an earlier installation is alive, or a later one
    /// that may still act has to find out.
    pub(super) fn leads(&self, timing: &ScopeTiming, now: Moment) -> Option<u32> {
        let own = self.seen.get(&self.own)?;
        let record = own.lease.present().filter(|record| record.holder.is_some())?;
        let others = self.others(timing, now).next().is_some();
        let settled = !others || now >= own.held_since + timing.settle();
        (settled && !self.in_doubt(timing, now)).then_some(record.transitions)
    }

    /// When something changes by itself.
    pub(super) fn turns_at(&self, timing: &ScopeTiming, now: Moment) -> Option<Moment> {
        let settles = self.seen.get(&self.own).map(|own| own.held_since + timing.settle());
        let ends = self.others(timing, now).map(|(.., until)| until);
        ends.chain(settles.filter(|at| now < *at)).min()
    }

    fn earlier(&self, timing: &ScopeTiming, now: Moment) -> impl Iterator<Item = Other<'_>> {
        let own = self.seen.get_key_value(&self.own).filter(|(_, seen)| seen.lease.last().is_some());
        let own = own.map(|(place, seen)| rank(place, seen));
        self.others(timing, now).filter(move |other| own.is_none_or(|own| ranked(other) < own))
    }

    fn others(&self, timing: &ScopeTiming, now: Moment) -> impl Iterator<Item = Other<'_>> {
        let others = self.seen.iter().filter(|(place, _)| **place != self.own);
        others.filter_map(move |(place, seen)| Some((place, seen, alive(seen, timing, now)?)))
    }
}

/// Another installation that counts, and until when.
type Other<'a> = (&'a Place, &'a Seen, Moment);
/// Who was there first comes first; who came in the same second, by its name.
type Rank<'a> = (bool, Option<Timestamp>, &'a Place);

fn ranked<'a>((place, seen, _): &Other<'a>) -> Rank<'a> {
    rank(place, seen)
}

fn rank<'a>(place: &'a Place, seen: &Seen) -> Rank<'a> {
    let created = seen.lease.last().and_then(|record| record.created);
    (created.is_none(), created, place)
}

/// Until when it counts, when it does.
fn alive(seen: &Seen, timing: &ScopeTiming, now: Moment) -> Option<Moment> {
    let role = Role::Fallback { duration: timing.duration(), grace: timing.grace() };
    match decide(&seen.lease, now, &Candidate { identity: "", role, hold: None }) {
        Decision::Wait { until } => until,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::since_origin(Duration::from_secs(seconds))
    }

    /// Created at `created`, in hold `transitions`; free when `holder` is empty.
    fn record(created: i64, holder: &str, transitions: u32, version: u32) -> Record {
        Record {
            holder: Some(holder.to_owned()).filter(|holder| !holder.is_empty()),
            duration: Some(Duration::from_secs(15)),
            transitions,
            created: Timestamp::from_second(created).ok(),
            version: version.to_string(),
            ..Record::default()
        }
    }

    const TIMING: ScopeTiming = ScopeTiming::DEFAULT;

    /// Ours is `b/op-leader`, created at second 10; what is seen at second 100.
    fn beside(others: &[(&str, Record)], own: Option<Record>) -> Installations {
        let mut installations = Installations::new("b", "op-leader");
        installations.listed(Vec::new(), true, "0", at(99), at(99));
        for (namespace, record) in others {
            installations.see(namespace, "op-leader", record.clone(), at(100));
        }
        if let Some(own) = own {
            installations.see("b", "op-leader", own, at(100));
        }
        installations
    }

    #[test]
    fn the_first_that_is_alive_acts_and_who_has_no_lease_comes_last() {
        let own = || Some(record(10, "me", 3, 50));
        // The others, our own, now, who is ahead and whether we lead.
        let table = [
            (vec![], own(), 100, None, true),
            (vec![], None, 100, None, false),
            (vec![], Some(record(10, "", 3, 50)), 100, None, false),
            (vec![("c", record(9, "other", 1, 1))], own(), 100, Some("c"), false),
            (vec![("c", record(9, "other", 1, 1))], own(), 119, Some("c"), false),
            // Fifteen seconds and five of grace.
            (vec![("c", record(9, "other", 1, 1))], own(), 120, None, true),
            // Given back counts the same: a successor comes first.
            (vec![("c", record(9, "", 1, 1))], own(), 119, Some("c"), false),
            // In the same second, by name.
            (vec![("a", record(10, "other", 1, 1))], own(), 100, Some("a"), false),
            // A later one has to find out that we are here, and five seconds are enough for that.
            (vec![("c", record(10, "other", 1, 1))], own(), 104, None, false),
            (vec![("c", record(10, "other", 1, 1))], own(), 105, None, true),
            (vec![("c", record(99, "other", 1, 1))], None, 105, Some("c"), false),
            (vec![("c", record(9, "other", 1, 1)), ("d", record(8, "other", 1, 1))], own(), 100, Some("d"), false),
        ];
        for (others, own, now, ahead, leads) in table {
            let told = format!("{others:?}, {own:?} at {now}");
            let seen = beside(&others, own);
            let first = seen.ahead(&TIMING, at(now));
            assert_eq!(first.as_ref().map(|first| &*first.namespace), ahead, "{told}");
            assert_eq!(seen.leads(&TIMING, at(now)), leads.then_some(3), "{told}");
        }
    }

    #[test]
    fn a_lease_that_is_deleted_counts_until_its_holder_found_out_and_a_new_one_comes_after_those_that_are_there() {
        let mut seen = beside(&[("a", record(5, "other", 1, 10))], Some(record(10, "me", 3, 50)));
        seen.listed(
            vec![("b".to_owned(), "op-leader".to_owned(), record(10, "me", 3, 50))],
            true,
            "60",
            at(101),
            at(101),
        );
        assert_eq!(seen.leads(&TIMING, at(119)), None, "its holder does not know it yet");
        seen.see("a", "op-leader", record(500, "other", 2, 61), at(102));
        assert_eq!(seen.ahead(&TIMING, at(102)), None);
        assert_eq!(seen.leads(&TIMING, at(105)), Some(3));
        seen.gone("a", "op-leader", "70", at(106));
        seen.advance(&TIMING, at(126));
        assert_eq!(seen.turns_at(&TIMING, at(126)), None, "it is forgotten");
    }

    #[test]
    fn the_lease_of_the_dead_keeps_nobody_from_checking_and_for_its_time_from_writing() {
        let mut seen = Installations::new("b", "op-leader");
        let found = |version| {
            let dead = ("a".to_owned(), "op-leader".to_owned(), record(5, "other", 1, version));
            vec![dead, ("b".to_owned(), "op-leader".to_owned(), record(10, "me", 3, 50))]
        };
        seen.listed(found(10), true, "60", at(100), at(100));
        seen.listed(found(10), true, "61", at(101), at(101));
        assert!(seen.ahead(&TIMING, at(119)).is_none() && seen.in_doubt(&TIMING, at(119)));
        assert_eq!((seen.leads(&TIMING, at(119)), seen.leads(&TIMING, at(120))), (None, Some(3)));
        let mut renewed = found(62);
        renewed[0].2.renewed = Timestamp::from_second(7).ok();
        seen.listed(renewed, true, "62", at(121), at(121));
        assert!(seen.ahead(&TIMING, at(121)).is_some());
    }

    // Whoever may create Leases chooses how many there are.
    #[test]
    fn of_too_many_those_that_came_first_are_remembered_and_what_a_cut_list_leaves_out_is_not_gone() {
        let mut seen = beside(&[("z", record(5, "first", 1, 10))], Some(record(10, "me", 3, 50)));
        let flood = (0..2 * LEADERS).map(|n| (format!("a{n}"), "x-leader".to_owned(), record(99, "tenant", 1, 60)));
        seen.listed(flood.collect(), false, "70", at(101), at(101));
        seen.advance(&TIMING, at(101));
        assert_eq!(seen.seen.len(), usize::try_from(LEADERS).unwrap());
        assert_eq!(seen.ahead(&TIMING, at(101)).map(|first| first.namespace).as_deref(), Some("z"));
        seen.see("b", "op-leader", record(10, "next", 4, 80), at(102));
        seen.advance(&TIMING, at(120));
        assert_eq!(seen.leads(&TIMING, at(120)), Some(4), "ours is not crowded out");
    }

    /// The Lease of the first installation says again what it said, under a version that is lower.
    #[test]
    fn after_a_restore_of_etcd_a_list_replaces_leases_that_were_seen_under_later_versions() {
        let mut seen = beside(&[("a", record(5, "other", 7, 900))], Some(record(10, "me", 3, 901)));
        let place = |namespace: &str, record| (namespace.to_owned(), "op-leader".to_owned(), record);
        // Listed before that was seen, and answered afterwards: no restore.
        seen.listed(vec![place("a", record(5, "other", 6, 60))], true, "60", at(99), at(101));
        assert!(seen.has_seen("901"));
        seen.listed(vec![place("b", record(10, "me", 3, 50))], true, "60", at(102), at(103));
        assert!(seen.has_seen("50") && !seen.has_seen("901"));
        assert_eq!(seen.leads(&TIMING, at(119)), None, "the other acts until it finds out");
        assert_eq!(seen.leads(&TIMING, at(120)), Some(3), "it is not waited for any longer");
        seen.see("a", "op-leader", record(104, "other", 1, 61), at(121));
        assert!(seen.seen[&("a".to_owned(), "op-leader".to_owned())].lease.present().is_some());
    }

    #[test]
    fn each_new_hold_settles_while_a_later_installation_is_alive() {
        let mut seen = beside(&[("c", record(20, "other", 1, 10))], Some(record(10, "me", 3, 50)));
        seen.see("b", "op-leader", record(10, "next", 4, 60), at(110));
        assert_eq!(seen.turns_at(&TIMING, at(110)), Some(at(115)));
        assert_eq!((seen.leads(&TIMING, at(114)), seen.leads(&TIMING, at(115))), (None, Some(4)));
    }
}
