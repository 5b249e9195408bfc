//! Two cluster-wide installations of one operator, of two replicas each: race 14.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use portcullis_lease::{End, Moment, Record, ScopeTiming, ScopeView, Timing};
use proptest::prelude::*;

use super::actor::Holder;
use super::election::{clock, fault, schedule, seconds};
use super::world::{Chance, Fault, LEASE, LocalClock, NAMESPACE, Network, Server, TICK};

const TIMING: ScopeTiming = ScopeTiming::DEFAULT;
const FAULTS: Duration = Duration::from_mins(2);
const PLACES: [&str; 2] = ["first", "second"];
/// A watch ends after it.
const WATCH: Duration = Duration::from_mins(5);
/// Long after everything.
const NEVER: Duration = Duration::from_hours(9);

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A complete list on its way: when it was begun, when it arrives, what it holds, its version.
type List = (Moment, Duration, Vec<(String, String, Record)>, u64);

/// Whose Lease became what, at which version.
type Event = (usize, Option<Record>, u64);

/// What happened after this version, in its order.
fn since(servers: &[Server; 2], version: u64) -> Vec<Event> {
    let of_each = servers.iter().enumerate().flat_map(|(of, server)| {
        let later = server.log.iter().rev().take_while(|(_, at)| *at > version);
        later.map(move |(state, at)| (of, state.clone(), *at))
    });
    let mut events: Vec<_> = of_each.collect();
    events.sort_by_key(|(.., version)| *version);
    events
}

/// A replica: it stands for its installation's Lease, and sees both.
struct Replica {
    place: usize,
    holder: Holder,
    view: ScopeView,
    /// The events of one watch arrive in their order; after one is lost, none does until a list begins another watch.
    events: VecDeque<(Duration, usize, Option<Record>, u64)>,
    watching: bool,
    watched: u64,
    list: Option<List>,
    listed: Option<Moment>,
    lists: u32,
    next_list: Moment,
    away_until: Duration,
    cut_until: Duration,
}

impl Replica {
    fn new(place: usize, name: &str, clock: LocalClock, starts: Duration) -> Self {
        let holder = Holder::new(name, Timing::LEADER, End::Release, clock, starts);
        let next_list = holder.clock.now();
        Self {
            place,
            holder,
            view: view(place),
            events: VecDeque::new(),
            watching: false,
            watched: 0,
            list: None,
            listed: None,
            lists: 0,
            next_list,
            away_until: starts,
            cut_until: Duration::ZERO,
        }
    }

    fn meet(&mut self, fault: Fault, time: Duration, server: &mut Server) {
        self.holder.meet(fault, time, server);
        match fault {
            Fault::Crash(pause) | Fault::Restart(pause) => {
                (self.view, self.list, self.listed, self.watching) = (view(self.place), None, None, false);
                self.events.clear();
                self.away_until = time + pause;
            }
            Fault::Freeze(pause) | Fault::Stop(pause) => self.away_until = self.away_until.max(time + pause),
            Fault::Partition(pause) => self.cut_until = self.cut_until.max(time + pause),
        }
    }

    /// Events that its watch sends now.
    fn hear(&mut self, time: Duration, news: Vec<Event>, network: Network, connected: bool, chance: &mut Chance) {
        for (of, state, version) in news {
            match network.pass(time, chance).filter(|_| self.watching && connected) {
                Some(at) => {
                    let at = self.events.back().map_or(at, |(before, ..)| at.max(*before));
                    self.events.push_back((at, of, state, version));
                }
                None => self.watching = false,
            }
        }
    }

    fn look(&mut self, time: Duration, servers: &[Server; 2], network: Network, watch: bool, chance: &mut Chance) {
        let connected = time >= self.cut_until;
        let news = since(servers, self.watched);
        self.watched = news.last().map_or(self.watched, |(.., version)| *version);
        self.hear(time, news, network, connected, chance);
        if time < self.away_until {
            return;
        }
        let now = self.holder.clock.now();
        while let Some((_, of, state, version)) = self.events.pop_front_if(|(at, ..)| *at <= time) {
            match state {
                Some(record) => self.view.see_leader(PLACES[of], LEASE, record, now),
                None => self.view.leader_gone(PLACES[of], LEASE, &version.to_string(), now),
            }
        }
        // No namespace is vouched for, and that is known.
        self.view.vouched([].into(), Some(now), now);
        self.view.listed("scope", Vec::new(), "0", now, now);
        let written = self.holder.elector.as_ref().and_then(|elector| elector.confirmed());
        let written = written.map(|(begun, version)| (begun, version.to_owned()));
        let mut deaf = false;
        if let Some((begun, version)) = &written {
            self.view.heard(*begun, version, now);
            deaf = self.view.is_deaf(*begun, version, now);
        }
        if let Some((begun, at, found, version)) = self.list.take() {
            if at <= time {
                self.view.leaders_listed(found, true, &version.to_string(), begun, now);
                self.listed = Some(now);
                if watch && !self.watching {
                    // As the API server does: with all that happened since the list.
                    self.watching = true;
                    self.hear(time, since(servers, version), network, connected, chance);
                }
            } else if now < begun + TIMING.hearing() {
                self.list = Some((begun, at, found, version));
            }
        }
        // Listed at first, when a write of its own does not come back, and when a watch ends as each does.
        let due = deaf || self.listed.is_none_or(|at| now > at + WATCH);
        if due && self.list.is_none() && now >= self.next_list {
            self.lists += 1;
            self.next_list = now + TIMING.hearing() / 3;
            if let Some(at) = network.pass(time, chance).filter(|_| connected) {
                let leases = servers.iter().enumerate().filter_map(|(of, server)| Some((of, server.lease.clone()?)));
                let found = leases.map(|(of, lease)| (PLACES[of].to_owned(), LEASE.to_owned(), lease)).collect();
                self.list = Some((now, at, found, servers[0].versions.get()));
            }
        }
    }

    fn writes(&mut self, time: Duration) -> bool {
        let now = self.holder.clock.now();
        self.holder.acts(time).is_some_and(|hold| self.view.leads(hold.epoch, now))
    }

    fn checks(&mut self, time: Duration) -> bool {
        let now = self.holder.clock.now();
        let up = time >= self.away_until && self.holder.elector.is_some();
        up && self.view.owns(NAMESPACE, now).must_check()
    }
}

fn view(place: usize) -> ScopeView {
    let mut view = ScopeView::new(TIMING, ["scope"]);
    view.among(PLACES[place], LEASE);
    view
}

/// Who wrote and who checked in one tick, by installation.
#[derive(Clone, Copy, Debug)]
struct Tick {
    time: Duration,
    writes: [usize; 2],
    checks: [usize; 2],
}

struct World {
    time: Duration,
    servers: [Server; 2],
    network: Network,
    watch: bool,
    chance: Chance,
    replicas: Vec<Replica>,
    ticks: Vec<Tick>,
}

impl World {
    /// Two replicas each; those of the second installation start at `second`.
    fn new(seed: u64, network: Network, clocks: [LocalClock; 4], second: Duration) -> Self {
        let servers: [Server; 2] = Default::default();
        let servers = {
            let [first, other] = servers;
            let versions = Rc::clone(&first.versions);
            [first, Server { versions, ..other }]
        };
        let starts = [Duration::ZERO, at(1), second, second + at(1)];
        let replicas = clocks.into_iter().zip(starts).enumerate();
        let replicas =
            replicas.map(|(index, (clock, starts))| Replica::new(index / 2, &format!("{index}"), clock, starts));
        let (replicas, chance) = (replicas.collect(), Chance::new(seed));
        Self { time: Duration::ZERO, servers, network, watch: true, chance, replicas, ticks: Vec::new() }
    }

    fn quiet() -> Self {
        let clocks = [0, 300, -300, 60].map(|skew| LocalClock::new(at(5), 1000, skew));
        Self::new(11, Network::GOOD, clocks, at(20))
    }

    fn run_until(&mut self, end: Duration) {
        while self.time < end {
            self.time += TICK;
            let mut tick = Tick { time: self.time, writes: [0; 2], checks: [0; 2] };
            for replica in &mut self.replicas {
                let server = &mut self.servers[replica.place];
                replica.holder.tick(self.time, server, self.network, &mut self.chance);
            }
            for replica in &mut self.replicas {
                replica.look(self.time, &self.servers, self.network, self.watch, &mut self.chance);
                tick.writes[replica.place] += usize::from(replica.writes(self.time));
                tick.checks[replica.place] += usize::from(replica.checks(self.time));
            }
            self.ticks.push(tick);
        }
    }

    fn meet(&mut self, time: Duration, index: usize, fault: Fault) {
        self.run_until(time);
        let replica = &mut self.replicas[index];
        replica.meet(fault, time, &mut self.servers[replica.place]);
    }

    fn longest(&self, after: Duration, what: impl Fn(&Tick) -> bool) -> Duration {
        let ticks = self.ticks.iter().filter(|tick| tick.time > after);
        let runs = ticks.scan(0_u32, |run, tick| {
            *run = if what(tick) { *run + 1 } else { 0 };
            Some(*run)
        });
        TICK * runs.max().unwrap_or_default()
    }

    /// A row of the table of windows: two never write, none for this long, and so long is nothing checked.
    fn row(&self, what: &str, after: Duration, none: (u64, u64), unchecked: u64) {
        let two = self.longest(after, |tick| tick.writes[0] + tick.writes[1] > 1);
        let nobody = self.longest(after, |tick| tick.writes == [0, 0]);
        let open = self.longest(after, |tick| tick.checks == [0, 0]);
        eprintln!("{what}: two write {two:?}, none {nobody:?}, nobody checks {open:?}");
        assert_eq!(two, Duration::ZERO, "{what}");
        assert!((at(none.0)..=at(none.1)).contains(&nobody), "{what}: {nobody:?}");
        assert!(open <= at(unchecked), "{what}: nobody checks for {open:?}");
    }
}

#[test]
fn windows_of_two_installations_are_as_documented() {
    let mut world = World::quiet();
    world.run_until(at(20));
    assert_eq!(world.ticks.last().unwrap().writes, [1, 0]);
    world.run_until(at(60));
    world.row("the second starts", at(10), (0, 0), 0);
    let last = world.ticks.last().unwrap();
    assert_eq!((last.writes, last.checks), ([1, 0], [2, 2]), "the second stands back, and checks");

    // Of the first, the pod that leads and then the other: what replaces each starts before it ends, in a rolling update.
    for (index, time) in [(0, 60), (1, 75)] {
        world.meet(at(time), index, Fault::Restart(at(3)));
    }
    world.run_until(at(100));
    world.row("rolling update of the first", at(60), (1, 8), 0);
    let turns = world.ticks.iter().filter(|tick| tick.time > at(60) && tick.writes[1] > 0).count();
    assert_eq!(turns, 0, "the second had a turn");

    for index in [0, 1] {
        world.meet(at(100), index, Fault::Crash(at(60)));
    }
    world.run_until(at(159));
    world.row("the first crashes", at(100), (18, 21), 0);
    let last = world.ticks.last().unwrap();
    assert_eq!((last.writes, last.checks), ([0, 1], [0, 2]));

    world.run_until(at(200));
    world.row("the first comes back", at(159), (4, 6), 0);
    let last = world.ticks.last().unwrap();
    assert_eq!((last.writes, last.checks), ([1, 0], [2, 2]), "it acts again, and the other stands back again");

    let mut world = World::quiet();
    for index in [1, 0] {
        world.meet(at(60), index, Fault::Restart(NEVER));
    }
    world.run_until(at(120));
    world.row("the first is taken away", at(60), (5, 7), 0);
    assert_eq!(world.ticks.last().unwrap().writes, [0, 1]);

    let mut world = World::quiet();
    world.run_until(at(60));
    world.servers[0].put(at(60), None);
    world.run_until(at(120));
    world.row("the Lease of the first is deleted", at(60), (0, 3), 0);
    assert_eq!(world.ticks.last().unwrap().writes, [0, 1], "it was there first from then on");
}

#[test]
fn beside_the_lease_of_an_installation_that_is_gone_everything_is_checked_at_once() {
    let mut world = World::quiet();
    for index in [0, 1] {
        world.meet(at(10), index, Fault::Crash(NEVER));
    }
    world.run_until(at(60));
    world.row("the second starts beside a dead Lease", at(22), (17, 22), 0);
}

/// Both Leases are created while the first list of each replica is on its way, within one second of the API server's.
#[test]
fn a_watch_shows_what_happened_since_the_list_that_it_goes_on_from() {
    let clock = |origin, rate| LocalClock::new(Duration::from_millis(origin), rate, 0);
    let clocks = [clock(0, 990), clock(89_800, 993), clock(963_700, 1006), clock(751_700, 993)];
    let network = Network { delay: Duration::from_millis(423), loss: 0 };
    let mut world = World::new(1_413_415_923_465_971_908, network, clocks, Duration::from_millis(500));
    world.meet(Duration::ZERO, 1, Fault::Crash(NEVER));
    world.run_until(at(10));
    assert_eq!(world.longest(Duration::ZERO, |tick| tick.writes[0] + tick.writes[1] > 1), Duration::ZERO);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn at_no_time_do_two_installations_write_while_clocks_run_whether_watches_work_or_not(
        seed: u64,
        delay in 10..800_u64,
        loss in 0..20_u64,
        watch: bool,
        clocks in [clock(), clock(), clock(), clock()],
        second in seconds(0..30),
        faults in schedule(fault()),
        others: bool,
    ) {
        let mut world = World::new(seed, Network { delay: Duration::from_millis(delay), loss }, clocks, second);
        world.watch = watch;
        for (time, index, fault) in faults {
            world.meet(time, index + usize::from(others), fault);
        }
        world.run_until(FAULTS);
        let two = world.ticks.iter().find(|tick| tick.writes[0] + tick.writes[1] > 1);
        prop_assert!(two.is_none(), "{two:?}");
    }

    #[test]
    fn the_first_that_is_alive_acts_and_all_check_when_faults_end(
        seed: u64,
        watch: bool,
        gone: bool,
        clocks in [clock(), clock(), clock(), clock()],
        faults in schedule(fault()),
    ) {
        let mut world = World::new(seed, Network::GOOD, clocks, at(5));
        world.watch = watch;
        for (time, index, fault) in faults {
            world.meet(time, index, fault);
        }
        if gone {
            for index in [0, 1] {
                world.meet(FAULTS, index, Fault::Crash(NEVER));
            }
        }
        // Faults last for forty seconds; fifteen, five and five, on a slow clock.
        world.run_until(FAULTS + at(40 + 30));
        let first = world.ticks.len();
        world.run_until(FAULTS + at(90));
        for tick in &world.ticks[first..] {
            let expected = if gone { [0, 1] } else { [1, 0] };
            prop_assert_eq!(tick.writes, expected);
            prop_assert_eq!(tick.checks, if gone { [0, 2] } else { [2, 2] }, "who stands back checks");
        }
    }
}

#[test]
fn while_watches_live_nothing_is_listed_twice_and_all_the_same_the_first_leads() {
    let mut world = World::quiet();
    world.run_until(at(200));
    let lists: Vec<_> = world.replicas.iter().map(|replica| replica.lists).collect();
    assert_eq!(lists, [1; 4]);
    assert_eq!(world.longest(at(10), |tick| tick.writes != [1, 0]), Duration::ZERO);
}

// The bound by which a watch that has died is noticed: no view of leaders counts for longer, and a list mends it sooner.
#[test]
fn a_leader_whose_watch_has_died_finds_out_by_its_own_renewals_and_leads_on_nothing_that_is_older_than_four_seconds() {
    let mut world = World::quiet();
    world.run_until(at(60));
    world.watch = false;
    world.replicas.iter_mut().for_each(|replica| replica.watching = false);
    world.run_until(at(63));
    assert!(world.replicas[0].lists > 1, "it has listed because its renewal did not come back");
    // Then the lists fail as well.
    world.replicas[0].cut_until = at(100);
    world.run_until(at(80));
    let last = world.ticks.iter().filter(|tick| tick.writes[0] > 0).map(|tick| tick.time).max().unwrap();
    let (begun, bound) = (at(63), TIMING.hearing() + TICK);
    assert!(last <= begun + bound && last > begun, "it led until {last:?}");
    assert_eq!(TIMING.hearing(), at(4));
    assert_eq!(world.longest(at(20), |tick| tick.writes[0] + tick.writes[1] > 1), Duration::ZERO);
}
