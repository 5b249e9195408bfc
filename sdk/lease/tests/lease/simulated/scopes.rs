//! A cluster-wide operator beside a restricted one of two replicas, under every mixture of faults.

use std::time::Duration;

use proptest::prelude::*;

use crate::elector::End;
use crate::{ScopeTiming, Timing};

use super::actor::{ClusterWide, Holder};
use super::election::{clock, fault, schedule, seconds};
use super::world::{Fault, LocalClock, Network, World};

const FAULTS: Duration = Duration::from_mins(2);

/// Two replicas of the restricted operator, which start after half a minute, and the cluster-wide one.
pub(crate) fn world(seed: u64, network: Network, clocks: [LocalClock; 3]) -> World {
    let [first, second, cluster] = clocks;
    let mut world = World::new(seed, network);
    world.server.hand_over(true);
    world.cluster = Some(ClusterWide::new(ScopeTiming::DEFAULT, cluster));
    for (name, clock, starts) in [("first", first, 30), ("second", second, 33)] {
        let holder = Holder::new(name, Timing::SCOPE, End::HandOver, clock, Duration::from_secs(starts));
        world.holders.push(holder.restricted());
    }
    world
}

fn play(world: &mut World, faults: &[(Duration, usize, Fault)]) {
    for (at, index, fault) in faults {
        world.run_until(*at);
        meet(world, *at, *index, *fault);
    }
    world.run_until(FAULTS);
}

fn meet(world: &mut World, at: Duration, index: usize, fault: Fault) {
    match world.holders.get_mut(index) {
        Some(holder) => holder.meet(fault, at, &mut world.server),
        None => world.cluster.as_mut().unwrap().meet(fault, at),
    }
}

fn clocks() -> impl Strategy<Value = [LocalClock; 3]> {
    [clock(), clock(), clock()]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_two_write_while_clocks_run_even_with_broken_watches(
        seed: u64,
        delay in 10..800_u64,
        loss in 0..20_u64,
        watch: bool,
        clocks in clocks(),
        faults in schedule(fault()),
    ) {
        let mut world = world(seed, Network { delay: Duration::from_millis(delay), loss }, clocks);
        world.cluster.as_mut().unwrap().watch = watch;
        play(&mut world, &faults);
        prop_assert_eq!(world.first(Duration::ZERO, |tick| tick.acting() > 1), None);
    }

    /// An administrator hands the namespace over and takes it back, at any times.
    #[test]
    fn no_two_write_however_often_the_namespace_changes_hands(
        seed: u64,
        delay in 10..800_u64,
        loss in 0..20_u64,
        watch: bool,
        clocks in clocks(),
        faults in schedule(fault()),
        turns in proptest::collection::vec(seconds(1..120), 0..8),
        at_first: bool,
    ) {
        let mut world = world(seed, Network { delay: Duration::from_millis(delay), loss }, clocks);
        world.cluster.as_mut().unwrap().watch = watch;
        world.server.hand_over(at_first);
        let mut events: Vec<_> = faults.into_iter().map(|(at, index, fault)| (at, Some((index, fault)))).collect();
        events.extend(turns.into_iter().map(|at| (at, None)));
        events.sort_by_key(|(at, _)| *at);
        for (at, event) in events {
            world.run_until(at);
            if let Some((index, fault)) = event {
                meet(&mut world, at, index, fault);
            } else {
                let handed_over = world.server.proof.is_some();
                world.server.hand_over(!handed_over);
            }
        }
        world.run_until(FAULTS + Duration::from_mins(1));
        prop_assert_eq!(world.first(Duration::ZERO, |tick| tick.acting() > 1), None);
    }

    #[test]
    fn writes_resume_within_duration_and_grace_after_faults(
        seed: u64,
        watch: bool,
        gone: bool,
        clocks in clocks(),
        faults in schedule(fault()),
    ) {
        let mut world = world(seed, Network::GOOD, clocks);
        world.cluster.as_mut().unwrap().watch = watch;
        play(&mut world, &faults);
        if gone {
            for holder in &mut world.holders {
                holder.meet(Fault::Crash(Duration::from_hours(1)), FAULTS, &mut world.server);
            }
        }
        let quiet = FAULTS + Duration::from_secs(40);
        world.run_until(quiet + Duration::from_mins(1));
        // Twenty-five and five on a slow clock; a restricted operator reads, writes and settles.
        let bound = Duration::from_secs(25 + 5) + Duration::from_millis(300) + Timing::SCOPE.settling()
            + Timing::SCOPE.retry() + Duration::from_millis(600);
        let first = world.first(quiet, |tick| tick.acting() == 1);
        prop_assert!(first.is_some_and(|at| at <= quiet + bound), "first at {first:?} after {quiet:?}");
        let last = world.ticks.last().unwrap();
        prop_assert_eq!(last.cluster_writes, gone, "the namespace is with the wrong one");
        prop_assert_eq!(last.holders.len(), usize::from(!gone));
    }

    #[test]
    fn a_stopped_clock_is_noticed_at_the_next_renewal_or_list(
        seed: u64,
        clocks in clocks(),
        stops in proptest::collection::vec((seconds(30..120), 0..3_usize, seconds(0..60)), 1..4),
    ) {
        let mut world = world(seed, Network::GOOD, clocks);
        let mut faults: Vec<_> = stops.into_iter().map(|(at, index, pause)| (at, index, Fault::Stop(pause))).collect();
        faults.sort_by_key(|(at, ..)| *at);
        play(&mut world, &faults);
        world.run_until(FAULTS + Duration::from_mins(2));
        // A holder renews every eight seconds; the cluster-wide operator lists every six.
        let bound = Timing::SCOPE.renew().max(ScopeTiming::DEFAULT.confirm()) + Duration::from_millis(300);
        let two = world.longest(Duration::ZERO, |tick| tick.acting() > 1);
        prop_assert!(two <= bound, "two wrote for {two:?}");
    }
}
