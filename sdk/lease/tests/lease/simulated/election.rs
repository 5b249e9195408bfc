//! Leader election under every mixture of faults.

use std::time::Duration;

use proptest::prelude::*;

use crate::Timing;
use crate::elector::End;

use super::actor::Holder;
use super::world::{Fault, LocalClock, Network, World};

const FAULTS: Duration = Duration::from_mins(2);

pub(crate) fn seconds(range: std::ops::Range<u64>) -> impl Strategy<Value = Duration> {
    (range.start * 10..range.end * 10).prop_map(|tenths| Duration::from_millis(tenths * 100))
}

/// Faults that leave the clocks running.
pub(crate) fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        seconds(0..40).prop_map(Fault::Crash),
        seconds(0..40).prop_map(Fault::Freeze),
        seconds(0..40).prop_map(Fault::Partition),
        seconds(0..10).prop_map(Fault::Restart),
    ]
}

fn network() -> impl Strategy<Value = Network> {
    (10..1500_u64, 0..20_u64).prop_map(|(delay, loss)| Network { delay: Duration::from_millis(delay), loss })
}

/// Rate within 1 %, wall within five minutes.
pub(crate) fn clock() -> impl Strategy<Value = LocalClock> {
    (seconds(0..1000), 990..=1010_u32, -300..=300_i64)
        .prop_map(|(origin, rate, skew)| LocalClock::new(origin, rate, skew))
}

pub(crate) fn schedule(faults: impl Strategy<Value = Fault>) -> impl Strategy<Value = Vec<(Duration, usize, Fault)>> {
    let one = (seconds(0..120), 0..3_usize, faults);
    proptest::collection::vec(one, 0..12).prop_map(|mut faults| {
        faults.sort_by_key(|(at, ..)| *at);
        faults
    })
}

fn world(seed: u64, network: Network, clocks: Vec<LocalClock>) -> World {
    let mut world = World::new(seed, network);
    let holder = |(index, clock)| {
        let starts = Duration::from_secs(index as u64);
        Holder::new(&format!("replica-{index}"), Timing::LEADER, End::Release, clock, starts)
    };
    world.holders = clocks.into_iter().enumerate().map(holder).collect();
    world
}

fn play(world: &mut World, faults: &[(Duration, usize, Fault)]) {
    for (at, index, fault) in faults {
        world.run_until(*at);
        let count = world.holders.len();
        world.holders[index % count].meet(*fault, *at, &mut world.server);
    }
    world.run_until(FAULTS);
}

/// No holder acts in an epoch that another has passed or shares.
fn assert_epochs_grow(world: &World) {
    let mut last = (usize::MAX, 0);
    for tick in &world.ticks {
        for (index, epoch) in &tick.holders {
            assert!(*epoch >= last.1, "epoch {epoch} after {} at {:?}", last.1, tick.time);
            assert!(*epoch > last.1 || *index == last.0, "two holders in epoch {epoch} at {:?}", tick.time);
            last = (*index, *epoch);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn at_no_time_do_two_act_while_clocks_run(
        seed: u64,
        network in network(),
        clocks in proptest::collection::vec(clock(), 2..=3),
        faults in schedule(fault()),
    ) {
        let mut world = world(seed, network, clocks);
        play(&mut world, &faults);
        let two = world.first(Duration::ZERO, |tick| tick.acting() > 1);
        prop_assert_eq!(two, None);
        assert_epochs_grow(&world);
    }

    #[test]
    fn what_was_begun_on_a_check_has_the_margin_to_end(
        seed: u64,
        network in network(),
        clocks in proptest::collection::vec(clock(), 2..=3),
        faults in schedule(fault().prop_filter("gives back", |fault| !matches!(fault, Fault::Restart(_)))),
    ) {
        let mut world = world(seed, network, clocks);
        play(&mut world, &faults);
        // 1 % of drift on either side of 15 s.
        let margin = Timing::LEADER.duration() - Timing::LEADER.deadline() - Duration::from_millis(300);
        let mut last: Option<(usize, Duration)> = None;
        for tick in &world.ticks {
            if let Some((index, _)) = tick.holders.first() {
                if let Some((before, at)) = last.filter(|(before, _)| before != index) {
                    prop_assert!(tick.time - at >= margin, "{before} until {at:?}, {index} from {:?}", tick.time);
                }
                last = Some((*index, tick.time));
            }
        }
    }

    #[test]
    fn a_holder_acts_within_the_duration_when_faults_end(
        seed: u64,
        clocks in proptest::collection::vec(clock(), 2..=3),
        faults in schedule(fault()),
    ) {
        let mut world = world(seed, Network::GOOD, clocks);
        play(&mut world, &faults);
        // Freezes, partitions and pauses before a start end after forty seconds at most.
        let quiet = FAULTS + Duration::from_secs(40);
        world.run_until(quiet + Duration::from_mins(1));
        // One look in two seconds, then the duration on a clock that may be slow, then a read and a write.
        let bound = Timing::LEADER.duration() + Timing::LEADER.retry() + Duration::from_millis(600);
        let first = world.first(quiet, |tick| tick.acting() == 1);
        prop_assert!(first.is_some_and(|at| at <= quiet + bound), "first at {first:?} after {quiet:?}");
        let settled = quiet + bound;
        prop_assert_eq!(world.first(settled, |tick| tick.acting() != 1), None, "it changed hands without a reason");
    }

    #[test]
    fn a_stopped_clock_lets_a_holder_act_for_its_deadline_at_most(
        seed: u64,
        clocks in proptest::collection::vec(clock(), 2..=3),
        faults in schedule(prop_oneof![fault(), seconds(0..40).prop_map(Fault::Stop)]),
    ) {
        let mut world = world(seed, Network::GOOD, clocks);
        play(&mut world, &faults);
        // It finds out with its next renewal: two seconds, or less when a request was under way.
        let found_out = Timing::LEADER.renew() + Duration::from_millis(200);
        let two = world.longest(Duration::ZERO, |tick| tick.acting() > 1);
        let partitioned = faults.iter().any(|(.., fault)| matches!(fault, Fault::Partition(_)));
        let bound = if partitioned { Timing::LEADER.deadline() + Duration::from_millis(200) } else { found_out };
        prop_assert!(two <= bound, "two acted for {two:?}");
        for tick in world.ticks.iter().filter(|tick| tick.acting() > 1) {
            let mut epochs: Vec<u32> = tick.holders.iter().map(|(_, epoch)| *epoch).collect();
            epochs.dedup();
            prop_assert_eq!(epochs.len(), tick.holders.len(), "one epoch, two holders");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn leases_recover_from_an_etcd_restore_and_no_two_act(
        seed: u64,
        clocks in proptest::collection::vec(clock(), 2..=3),
        faults in schedule(fault()),
    ) {
        let mut world = world(seed, Network::GOOD, clocks);
        world.run_until(Duration::from_secs(20));
        let (lease, version) = (world.server.lease.clone(), world.server.version);
        play(&mut world, &faults);
        let restored = FAULTS + Duration::from_mins(1);
        world.run_until(restored);
        world.server.restore(lease, version);
        world.run_until(restored + Duration::from_mins(1));
        prop_assert_eq!(world.first(Duration::ZERO, |tick| tick.acting() > 1), None);
        assert_epochs_grow(&world);
        // The holder before the restore finds out; then the duration passes on a clock that may be slow; then a
        // candidate reads and writes.
        let timing = Timing::LEADER;
        let settled = restored + timing.renew() + timing.duration() + timing.retry() + Duration::from_secs(1);
        prop_assert_eq!(world.first(settled, |tick| tick.acting() != 1), None);
    }
}
