//! Every race that lease coordination is known for, one test each, with the window in which two write or none does.
//! The figures are those of the crate's documentation. MISSION D7.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use crate::elector::{Elector, End, Step, Write};
use crate::record::Record;
use crate::scopes::ScopeView;
use crate::time::Moment;
use crate::{Ownership, ScopeTiming, Timing};

use super::actor::{ClusterWide, Holder};
use super::scopes::world;
use super::world::{Ask, Fault, LocalClock, NAMESPACE, Network, TICK, World};

const DURATION: Duration = Timing::SCOPE.duration();
const GRACE: Duration = Duration::from_secs(5);
/// Messages and ticks.
const SLACK: Duration = Duration::from_millis(200);

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn exact(skew: i64) -> LocalClock {
    LocalClock::new(at(0), 1000, skew)
}

/// One restricted operator from second 30 on; the other replica is not there.
fn one_restricted(skews: [i64; 2]) -> World {
    let mut world = world(7, Network::GOOD, [exact(skews[0]), exact(0), exact(skews[1])]);
    world.holders.truncate(1);
    world
}

/// The longest that two wrote and that none did, after `after`.
fn windows(world: &World, after: Duration) -> (Duration, Duration) {
    let two = world.longest(after, |tick| tick.acting() > 1);
    let none = world.longest(after, |tick| tick.acting() == 0);
    (two, none)
}

fn assert_between(what: &str, value: Duration, low: Duration, high: Duration) {
    assert!((low..=high).contains(&value), "{what}: {value:?} is not within {low:?} and {high:?}");
    eprintln!("{what}: {value:?}");
}

fn record(holder: &str, transitions: u32, version: u64) -> Record {
    let renewed = Timestamp::from_second(i64::try_from(version).unwrap()).unwrap();
    Record {
        holder: Some(holder.to_owned()).filter(|holder| !holder.is_empty()),
        acquired: Some(renewed),
        renewed: Some(renewed),
        duration: Some(DURATION),
        transitions,
        installation: None,
        version: version.to_string(),
    }
}

fn moment(seconds: u64) -> Moment {
    Moment::since_origin(at(seconds))
}

/// A view that has been complete at second `now`.
fn listed(view: &mut ScopeView, now: u64) {
    view.handed_over([NAMESPACE.to_owned()].into(), Some(moment(now)), moment(now));
    view.listed(Vec::new(), "0", moment(now), moment(now));
}

#[test]
fn race_1_listeners_learn_when_a_namespace_is_taken_or_returned() {
    let mut view = ScopeView::new(ScopeTiming::DEFAULT);
    let told = || Some(NAMESPACE.to_owned());
    assert_eq!(view.owns(NAMESPACE, moment(0)), Ownership::Unknown);
    listed(&mut view, 1);
    assert_eq!(view.take_changes(), [None], "a question found no answer");

    view.see(NAMESPACE, record("restricted", 1, 10), moment(2));
    assert_eq!(view.take_changes(), [told()], "objects of a reconcile under way are looked at again");
    view.see(NAMESPACE, record("restricted", 1, 11), moment(10));
    assert_eq!(view.take_changes(), [], "a renewal changes nothing");
    view.tick(moment(39));
    assert!(!view.take_changes().contains(&told()));
    view.tick(moment(40));
    assert_eq!(view.take_changes(), [told()], "what was made meanwhile waits for no event");
}

#[test]
fn a_lease_counts_for_its_stated_duration_even_when_released() {
    for (holder, states, ends) in [("other", Some(30), 36), ("other", None, 31), ("", Some(30), 36), ("", Some(1), 7)] {
        let mut view = ScopeView::new(ScopeTiming::DEFAULT);
        listed(&mut view, 0);
        view.see(NAMESPACE, Record { duration: states.map(at), ..record(holder, 1, 10) }, moment(1));
        for (second, ours) in [(ends - 1, false), (ends, true)] {
            listed(&mut view, second);
            assert_eq!(
                view.owns(NAMESPACE, moment(second)).may_write(),
                ours,
                "{holder} {states:?} in second {second}"
            );
        }
    }
}

#[test]
fn race_3_asking_at_the_very_end_of_a_lease_removes_no_renewal() {
    let mut view = ScopeView::new(ScopeTiming::DEFAULT);
    view.see(NAMESPACE, record("restricted", 1, 10), moment(0));
    listed(&mut view, 29);
    assert!(!view.owns(NAMESPACE, moment(29)).may_write());
    listed(&mut view, 30);
    assert!(view.owns(NAMESPACE, moment(30)).may_write());
    // The renewal that was on its way counts at once, and stays.
    view.see(NAMESPACE, record("restricted", 2, 11), moment(30));
    for now in 30..60 {
        listed(&mut view, now);
        assert_eq!(view.owns(NAMESPACE, moment(now)), Ownership::Theirs, "at {now}");
    }
}

#[test]
fn race_4_clocks_five_minutes_apart_change_no_window() {
    let mut seen = Vec::new();
    for (restricted, cluster) in [(0, 0), (300, 0), (-300, 0), (0, 300), (0, -300), (300, -300), (-300, 300)] {
        let mut world = one_restricted([restricted, cluster]);
        world.run_until(at(60));
        world.holders[0].meet(Fault::Crash(at(40)), at(60), &mut world.server);
        world.run_until(at(160));
        let taken = world.first(at(10), |tick| !tick.cluster_writes).unwrap();
        let resumed = world.first(at(60), |tick| tick.cluster_writes).unwrap();
        let again = world.first(at(100), |tick| tick.holders.len() == 1).unwrap();
        seen.push((windows(&world, at(10)), taken, resumed, again));
    }
    assert!(seen.iter().all(|run| *run == seen[0]), "{seen:?}");
    assert_eq!(seen[0].0.0, Duration::ZERO);
}

/// By counting: one event of the Lease has reached the cluster-wide operator since.
#[test]
fn a_retaken_leases_first_event_gives_its_namespace_back() {
    let mut world = one_restricted([0, 0]);
    world.run_until(at(60));
    world.holders[0].meet(Fault::Crash(at(40)), at(60), &mut world.server);
    world.run_until(at(100));
    assert!(world.ticks.last().unwrap().cluster_writes, "the holder is long dead");
    let held = world.server.version;
    while world.server.version == held {
        world.run_until(world.time + TICK);
    }
    world.run_until(world.time + Network::GOOD.delay + TICK);
    let last = world.ticks.last().unwrap();
    assert!(!last.cluster_writes && !last.cluster_checks);
    assert_eq!(world.server.version, held + 1, "it was renewed meanwhile");
}

#[test]
fn race_5_no_two_write_while_the_lease_is_created() {
    for (watch, what) in [(true, "a new restricted operator"), (false, "a new restricted operator, no watch event")] {
        let mut world = one_restricted([0, 0]);
        world.cluster.as_mut().unwrap().watch = watch;
        world.run_until(at(60));
        let (two, none) = windows(&world, at(10));
        assert_eq!(two, Duration::ZERO);
        let lag = if watch { SLACK } else { ScopeTiming::DEFAULT.confirm() + SLACK };
        let settle = Timing::SCOPE.settling();
        assert_between(what, none, settle.saturating_sub(lag), settle);
        // In the meantime both, or one of them, check.
        let unchecked = world.longest(at(10), |tick| tick.holders.is_empty() && !tick.cluster_checks);
        assert!(unchecked <= settle);
    }
}

#[test]
fn race_6_the_cluster_wide_operator_resumes_after_a_crash() {
    // Right after a renewal, and right before one.
    for crash in 56..72 {
        let mut world = one_restricted([0, 0]);
        world.run_until(at(crash));
        world.holders[0].meet(Fault::Crash(at(1000)), at(crash), &mut world.server);
        world.run_until(at(120));
        let (two, none) = windows(&world, at(50));
        assert_eq!(two, Duration::ZERO);
        let renewed = DURATION + GRACE;
        assert_between("crash of the restricted operator", none, renewed - Timing::SCOPE.renew(), renewed + SLACK);
    }
}

#[test]
fn race_6_the_other_replica_takes_over_first() {
    let mut world = world(7, Network::GOOD, [exact(0), exact(0), exact(0)]);
    world.run_until(at(60));
    world.holders[0].meet(Fault::Crash(at(1000)), at(60), &mut world.server);
    world.run_until(at(120));
    assert_eq!(world.first(at(50), |tick| tick.cluster_writes), None, "the cluster-wide operator had a turn");
    let (two, none) = windows(&world, at(50));
    assert_eq!(two, Duration::ZERO);
    // It looks every two seconds, so that is how much later it may have seen the last renewal.
    let longest = DURATION + Timing::SCOPE.settling() + Timing::SCOPE.retry();
    let shortest = longest - Timing::SCOPE.renew() - Timing::SCOPE.retry();
    assert_between("crash, with another replica", none, shortest, longest + SLACK);
}

#[test]
fn race_7_the_cluster_wide_operator_gets_no_turn_in_an_update() {
    let mut world = one_restricted([0, 0]);
    world.run_until(at(60));
    world.holders[0].meet(Fault::Restart(at(10)), at(60), &mut world.server);
    world.run_until(at(120));
    assert_eq!(world.first(at(50), |tick| tick.cluster_writes), None, "it would rewrite children with its version");
    let (two, none) = windows(&world, at(50));
    assert_eq!(two, Duration::ZERO);
    let settle = Timing::SCOPE.settling();
    assert_between("rolling update, new pod after 10 s", none, at(10) + settle, at(10) + settle + SLACK);
}

#[test]
fn race_7_a_released_or_deleted_lease_outlives_its_holder() {
    // Handed over, and no operator comes.
    let mut world = one_restricted([0, 0]);
    world.run_until(at(60));
    world.holders[0].meet(Fault::Restart(at(1000)), at(60), &mut world.server);
    world.run_until(at(120));
    let (two, none) = windows(&world, at(50));
    assert_eq!(two, Duration::ZERO);
    assert_between("taken away for good", none, DURATION + GRACE, DURATION + GRACE + SLACK);

    // Released for good: one second and grace.
    let mut world = one_restricted([0, 0]);
    let clock = exact(0);
    world.holders[0] = Holder::new("first", Timing::SCOPE, End::Release, clock, at(30));
    world.run_until(at(60));
    world.holders[0].meet(Fault::Restart(at(1000)), at(60), &mut world.server);
    world.run_until(at(120));
    let (two, none) = windows(&world, at(50));
    assert_eq!(two, Duration::ZERO);
    assert_between("released for good", none, GRACE + at(1), GRACE + at(1) + SLACK);

    // Deleted while its holder runs: it finds out with its next renewal, and makes it again in a later epoch.
    let mut world = one_restricted([0, 0]);
    world.run_until(at(60));
    world.server.put(None);
    world.run_until(at(120));
    let (two, none) = windows(&world, at(50));
    assert_eq!(two, Duration::ZERO);
    assert_eq!(world.first(at(50), |tick| tick.cluster_writes), None);
    assert_between("deleted", none, Timing::SCOPE.settling(), Timing::SCOPE.settling() + SLACK + at(1));
    assert_eq!(world.ticks.last().unwrap().holders, [(0, 2)]);
}

#[test]
fn race_8_a_lease_without_a_handover_takes_no_namespace() {
    let mut view = ScopeView::new(ScopeTiming::DEFAULT);
    for second in 0..60 {
        listed(&mut view, second);
        view.see("team-b", record("stranger", 1, 100 + second), moment(second));
        let ownership = view.owns("team-b", moment(second));
        assert!(ownership.may_write() && ownership.must_check(), "{ownership:?} in second {second}");
    }
}

/// A view that has been complete at second `now`, without any hand-over.
fn not_handed_over(view: &mut ScopeView, now: u64) {
    view.handed_over([].into(), Some(moment(now)), moment(now));
    view.listed(Vec::new(), "0", moment(now), moment(now));
}

#[test]
fn race_8_a_claim_outlives_its_proof_only_until_noticed() {
    let mut view = ScopeView::new(ScopeTiming::DEFAULT);
    listed(&mut view, 0);
    view.see(NAMESPACE, record("restricted", 1, 10), moment(1));
    view.see(NAMESPACE, record("restricted", 1, 11), moment(2));
    assert!(!view.owns(NAMESPACE, moment(2)).must_check());
    for second in 10..52 {
        not_handed_over(&mut view, second);
        view.see(NAMESPACE, record("editor", 2, second + 100), moment(second));
        let ownership = view.owns(NAMESPACE, moment(second));
        assert!(!ownership.may_write(), "its holder may not know it yet, in second {second}");
        assert!(ownership.must_check(), "no other is proven to check, in second {second}");
    }
    // Twenty-five, five and twelve.
    not_handed_over(&mut view, 52);
    assert!(view.owns(NAMESPACE, moment(52)).may_write());
}

#[test]
fn race_8_no_two_act_when_the_namespace_is_taken_back() {
    let mut world = one_restricted([0, 0]);
    world.server.hand_over(false);
    world.run_until(at(90));
    assert_eq!(world.first(at(0), |tick| !tick.holders.is_empty()), None, "it was not handed over");
    assert_eq!(windows(&world, at(50)), (Duration::ZERO, Duration::ZERO));

    // It is handed over while the cluster-wide operator's watch is dead, and taken back.
    for watch in [true, false] {
        let mut world = one_restricted([0, 0]);
        world.cluster.as_mut().unwrap().watch = watch;
        world.server.hand_over(false);
        world.run_until(at(61));
        world.server.hand_over(true);
        world.run_until(at(100));
        let (two, none) = windows(&world, at(40));
        assert_eq!(two, Duration::ZERO);
        let lag = if watch { SLACK } else { 2 * ScopeTiming::DEFAULT.confirm() + SLACK };
        let settle = Timing::SCOPE.settling();
        assert_between("it is handed over", none, settle.saturating_sub(lag), settle + Timing::SCOPE.retry());
        assert_eq!(world.ticks.last().unwrap().holders.len(), 1);

        world.server.hand_over(false);
        world.run_until(at(200));
        let (two, none) = windows(&world, at(100));
        assert_eq!(two, Duration::ZERO);
        let ends = DURATION + GRACE + ScopeTiming::DEFAULT.freshness;
        let ends = ends + if watch { Duration::ZERO } else { ScopeTiming::DEFAULT.confirm() };
        assert_between("it is taken back", none, ends - Timing::SCOPE.renew() - at(6), ends + SLACK);
        let last = world.ticks.last().unwrap();
        assert!(last.cluster_writes && last.holders.is_empty());
    }
}

// The cluster-wide operator lists every six seconds and sees none of them: so a hold ends with the proof that it began
// under.
#[test]
fn race_8_proofs_between_two_lists_let_no_holder_act() {
    let mut world = one_restricted([0, 0]);
    world.cluster.as_mut().unwrap().watch = false;
    world.server.hand_over(false);
    for (millis, handed_over) in
        [(36_300, true), (41_700, false), (42_300, true), (47_700, false), (48_300, true), (53_700, false)]
    {
        world.run_until(Duration::from_millis(millis));
        world.server.hand_over(handed_over);
    }
    world.run_until(at(60));
    assert_eq!(world.first(at(0), |tick| !tick.holders.is_empty()), None);
    assert_eq!(world.longest(at(10), |tick| !tick.cluster_writes), Duration::ZERO, "it saw no proof");
}

// There is no list without a question; one that finds the view old makes it need a list, until one answers.
#[test]
fn a_view_needs_a_list_at_a_question_and_not_before() {
    let mut view = ScopeView::new(ScopeTiming::DEFAULT);
    not_handed_over(&mut view, 1);
    for second in 2..60 {
        view.tick(moment(second));
        let peeked = view.peek(NAMESPACE, moment(second));
        assert_eq!((view.needs_list(), peeked.may_write()), (false, second < 13), "in second {second}");
    }
    assert!(!view.owns(NAMESPACE, moment(60)).may_write() && view.needs_list());
    assert_eq!(view.take_changes(), []);
    view.handed_over([].into(), Some(moment(60)), moment(61));
    assert_eq!((view.needs_list(), view.needs_leases()), (false, false), "rest is no gap");
    assert_eq!(view.take_changes(), [None], "a question found no answer");
    assert!(view.owns(NAMESPACE, moment(62)).may_write());
    assert!(view.owns(NAMESPACE, moment(66)).may_write() && view.needs_list(), "it is half as old as it may be");

    // A review that passes unchecked rests on a view that is confirmed: its policy may be gone, and the watch dead.
    let mut view = ScopeView::new(ScopeTiming::DEFAULT);
    listed(&mut view, 1);
    view.see(NAMESPACE, record("restricted", 1, 10), moment(2));
    assert_eq!((view.peek(NAMESPACE, moment(6)), view.needs_list()), (Ownership::Theirs, false));
    assert_eq!((view.peek(NAMESPACE, moment(7)), view.needs_list()), (Ownership::Theirs, true));
}

// A watch on policies that has died is noticed by the lists: nothing that is older than twelve seconds counts.
#[test]
fn a_dead_watch_on_policies_lets_no_stale_view_write() {
    let mut view = ScopeView::new(ScopeTiming::DEFAULT);
    not_handed_over(&mut view, 1);
    assert!(view.owns(NAMESPACE, moment(12)).may_write());
    let late = view.owns(NAMESPACE, moment(13));
    assert!(!late.may_write() && late.must_check(), "{late:?}");
    assert!(ScopeTiming::DEFAULT.freshness < Timing::SCOPE.settling());
    // The Leases of a namespace that is handed over have to be known as well.
    listed(&mut view, 14);
    assert!(view.owns(NAMESPACE, moment(25)).may_write());
    view.handed_over([NAMESPACE.to_owned()].into(), Some(moment(25)), moment(25));
    assert!(!view.owns(NAMESPACE, moment(26)).may_write() && view.owns("team-b", moment(26)).may_write());
    view.listed(Vec::new(), "0", moment(27), moment(27));
    assert!(view.owns(NAMESPACE, moment(27)).may_write());
}

/// A record that any account with the right to write Leases can write: 68 years, renewed in the future.
fn for_ever(version: u64) -> Record {
    let spec = LeaseSpec {
        holder_identity: Some("stranger".to_owned()),
        lease_duration_seconds: Some(i32::MAX),
        renew_time: Some(MicroTime("2099-01-01T00:00:00Z".parse().unwrap())),
        lease_transitions: Some(i32::try_from(version).unwrap()),
        ..LeaseSpec::default()
    };
    let mut lease = Lease { spec: Some(spec), ..Lease::default() };
    lease.metadata.resource_version = Some(version.to_string());
    Record::from(&lease)
}

#[test]
fn race_8_a_deleted_endless_lease_does_not_block_for_long() {
    let mut view = ScopeView::new(ScopeTiming::DEFAULT);
    listed(&mut view, 0);
    view.see(NAMESPACE, for_ever(10), moment(1));
    assert!(!view.owns(NAMESPACE, moment(1)).must_check());
    view.gone(NAMESPACE, "11", moment(2));
    listed(&mut view, 305);
    assert!(!view.owns(NAMESPACE, moment(305)).may_write());
    listed(&mut view, 306);
    assert!(view.owns(NAMESPACE, moment(306)).may_write());

    // The same for who would lead instead of that one.
    let mut elector = Elector::new("me", Timing::LEADER, 7);
    elector.read(Some(for_ever(10)), moment(1));
    elector.read(None, moment(2));
    let tries = |elector: &mut Elector, at| {
        elector.read(None, moment(at));
        matches!(elector.step(moment(at), Timestamp::UNIX_EPOCH), Step::Write(_))
    };
    assert!(!tries(&mut elector, 300) && tries(&mut elector, 301));
}

#[test]
fn race_9_reviews_go_on_from_memory_without_the_api_server() {
    let mut world = one_restricted([0, 0]);
    world.run_until(at(60));
    world.cluster.as_mut().unwrap().meet(Fault::Partition(at(100)), at(60));
    world.run_until(at(70));
    let cluster = world.cluster.as_mut().unwrap();
    assert!(!cluster.owns().must_check(), "the tenant's namespace stays the tenant's");
    let elsewhere = cluster.view.owns("team-b", cluster.clock.now());
    assert_eq!(elsewhere, Ownership::Unknown);
    assert!(elsewhere.must_check() && !elsewhere.may_write(), "nothing gets past unchecked");
    // Connected again, it says that everything has to be looked at again.
    cluster.view.take_changes();
    world.run_until(at(170));
    let cluster = world.cluster.as_mut().unwrap();
    assert!(cluster.view.take_changes().contains(&None));
    assert!(cluster.view.owns("team-b", cluster.clock.now()).may_write());
}

#[test]
fn a_cut_off_restricted_operator_stops_before_the_other_resumes() {
    let mut world = one_restricted([0, 0]);
    world.run_until(at(60));
    world.holders[0].meet(Fault::Partition(at(100)), at(60), &mut world.server);
    world.run_until(at(120));
    let (two, none) = windows(&world, at(50));
    assert_eq!(two, Duration::ZERO);
    let margin = DURATION + GRACE - Timing::SCOPE.deadline();
    assert_between("restricted operator cut off", none, margin - SLACK, margin + SLACK);
}

#[test]
fn a_frozen_restricted_operator_does_nothing_when_it_thaws_late() {
    let mut world = one_restricted([0, 0]);
    world.run_until(at(60));
    world.holders[0].meet(Fault::Freeze(at(50)), at(60), &mut world.server);
    world.run_until(at(160));
    let (two, none) = windows(&world, at(50));
    assert_eq!(two, Duration::ZERO);
    assert_between("process frozen for 50 s", none, DURATION + GRACE - Timing::SCOPE.renew(), DURATION + GRACE + SLACK);
    let last = world.ticks.last().unwrap();
    assert_eq!(last.holders, [(0, 2)], "it holds again, in a later epoch");
}

#[test]
fn a_stopped_clock_may_overlap_until_the_next_renewal() {
    // The one case that no lease can close: neither clock nor network say that time passed.
    let mut longest = Duration::ZERO;
    for stop in 56..72 {
        let mut world = one_restricted([0, 0]);
        world.run_until(at(stop));
        world.holders[0].meet(Fault::Stop(at(60)), at(stop), &mut world.server);
        world.run_until(at(stop + 120));
        longest = longest.max(windows(&world, at(50)).0);
    }
    assert_between("machine stopped for 60 s: two", longest, at(4), Timing::SCOPE.renew() + SLACK);
}

#[test]
fn a_stalled_cluster_wide_operator_knows_nothing_until_it_lists() {
    let list = ScopeTiming::DEFAULT.confirm();
    for (fault, what, bound) in [
        (Fault::Freeze(at(60)), "cluster-wide process frozen: two", Duration::ZERO..=Duration::ZERO),
        (Fault::Stop(at(60)), "cluster-wide machine stopped: two", Duration::from_millis(100)..=list + SLACK),
    ] {
        // It stops before there is a lease, and comes back, with its watch dead, when the restricted operator acts.
        let mut world = one_restricted([0, 0]);
        world.run_until(at(20));
        let cluster: &mut ClusterWide = world.cluster.as_mut().unwrap();
        cluster.watch = false;
        cluster.meet(fault, at(20));
        world.run_until(at(120));
        assert_between(what, windows(&world, at(10)).0, *bound.start(), *bound.end());
    }
}

#[test]
fn a_new_cluster_wide_operator_waits_out_a_dead_lease() {
    let mut world = one_restricted([0, 0]);
    world.holders.clear();
    let write = Write { record: record("long-gone", 4, 1), replaces: None, begun: moment(0) };
    world.server.serve(&Ask::Write(write));
    world.run_until(at(60));
    let resumed = world.first(at(0), |tick| tick.cluster_writes).unwrap();
    assert_between("cluster-wide start beside a dead lease", resumed, DURATION + GRACE, DURATION + GRACE + SLACK);
    // No other does: what was only found there is no sign of life.
    assert_eq!(world.first(at(0), |tick| !tick.cluster_checks), None);
    let cluster = world.cluster.as_mut().unwrap();
    assert!(cluster.owns().may_write());
}
