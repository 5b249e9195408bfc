//! True time, one API server with one Lease, a network that delays and loses, and what each actor makes of it.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use crate::elector::Write;
use crate::record::Record;
use crate::time::Moment;
use jiff::Timestamp;

use super::actor::{ClusterWide, Holder};

pub(crate) const TICK: Duration = Duration::from_millis(20);
pub(crate) const NAMESPACE: &str = "team-a";

/// A machine's clock: it runs a little fast or slow, its wall is off, and it can stand still.
#[derive(Clone, Debug)]
pub(crate) struct LocalClock {
    elapsed: Duration,
    /// Per mille of true time.
    pub(crate) rate: u32,
    /// Seconds that its wall clock is ahead.
    pub(crate) skew: i64,
    stopped_until: Duration,
}

impl LocalClock {
    pub(crate) fn new(origin: Duration, rate: u32, skew: i64) -> Self {
        Self { elapsed: origin, rate, skew, stopped_until: Duration::ZERO }
    }

    pub(crate) fn tick(&mut self, time: Duration) -> bool {
        let runs = time >= self.stopped_until;
        if runs {
            self.elapsed += TICK * self.rate / 1000;
        }
        runs
    }

    pub(crate) fn stop(&mut self, until: Duration) {
        self.stopped_until = self.stopped_until.max(until);
    }

    pub(crate) fn now(&self) -> Moment {
        Moment::since_origin(self.elapsed)
    }
}

/// A wall clock that is `skew` seconds ahead of true time.
pub(crate) fn wall(time: Duration, skew: i64) -> Timestamp {
    let start = Timestamp::from_second(1_800_000_000).unwrap();
    start + time + jiff::SignedDuration::from_secs(skew)
}

#[derive(Clone, Debug)]
pub(crate) enum Ask {
    Read,
    /// Whether the namespace is handed over: if so, this is written next.
    Proof(Write),
    Write(Write),
}

#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Found(Option<Record>),
    /// The proof that the namespace is handed over.
    Proven(Option<u64>, Write),
    Stored(Write, Record),
    Conflict,
}

/// The API server's one Lease.
#[derive(Debug, Default)]
pub(crate) struct Server {
    pub(crate) lease: Option<Record>,
    pub(crate) version: u64,
    /// The counter of versions, which all Leases of one API server share.
    pub(crate) versions: Rc<Cell<u64>>,
    /// Each state that the Lease ever had, with its version, for watches.
    pub(crate) log: Vec<(Option<Record>, u64)>,
    /// The version of the proof that the namespace is handed over, and its history in `handover_log`.
    pub(crate) proof: Option<u64>,
    pub(crate) handover_log: Vec<(bool, u64)>,
}

impl Server {
    pub(crate) fn serve(&mut self, ask: &Ask) -> Answer {
        match ask {
            Ask::Read => Answer::Found(self.lease.clone()),
            Ask::Proof(write) => Answer::Proven(self.proof, write.clone()),
            Ask::Write(write) => {
                if write.replaces != self.lease.as_ref().map(|lease| lease.version.clone()) {
                    return Answer::Conflict;
                }
                let stored = self.put(Some(write.record.clone())).unwrap();
                Answer::Stored(write.clone(), stored)
            }
        }
    }

    /// An administrator hands the namespace over, or takes it back.
    pub(crate) fn hand_over(&mut self, handed_over: bool) {
        self.versions.set(self.versions.get() + 1);
        self.proof = handed_over.then(|| self.versions.get());
        self.handover_log.push((handed_over, self.versions.get()));
    }

    /// etcd is restored: what was stored at this version is back, and versions go on from there.
    pub(crate) fn restore(&mut self, lease: Option<Record>, version: u64) {
        (self.lease, self.version) = (lease, version);
        self.versions.set(version);
    }

    pub(crate) fn put(&mut self, lease: Option<Record>) -> Option<Record> {
        self.version = self.versions.get() + 1;
        self.versions.set(self.version);
        let version = self.version.to_string();
        self.lease = lease.map(|lease| Record { version, ..lease });
        self.log.push((self.lease.clone(), self.version));
        self.lease.clone()
    }
}

/// Chance, from a seed that proptest shrinks.
#[derive(Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub(crate) fn up_to(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit.max(1)
    }
}

/// The quality of the network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Network {
    /// The longest that one way takes.
    pub(crate) delay: Duration,
    /// The percentage of messages that are lost.
    pub(crate) loss: u64,
}

impl Network {
    pub(crate) const GOOD: Self = Self { delay: Duration::from_millis(20), loss: 0 };

    /// When a message that is sent now arrives, if it does.
    pub(crate) fn pass(&self, time: Duration, chance: &mut Chance) -> Option<Duration> {
        let delay = u64::try_from(self.delay.as_millis()).unwrap();
        let arrives = time + Duration::from_millis(chance.up_to(delay + 1));
        (chance.up_to(100) >= self.loss).then_some(arrives)
    }
}

/// A fault, with its duration.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// The process ends; another, with another identity, starts after this time.
    Crash(Duration),
    /// The process stands still, its clock does not: SIGSTOP, a starved node.
    Freeze(Duration),
    /// The machine stands still with its clock: a virtual machine that is stopped.
    Stop(Duration),
    /// No message passes.
    Partition(Duration),
    /// A graceful end; another starts after this time.
    Restart(Duration),
}

/// The actors that act at one tick.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tick {
    pub(crate) time: Duration,
    /// Index and epoch of each holder that acts.
    pub(crate) holders: Vec<(usize, u32)>,
    /// Whether the cluster-wide operator writes, and checks.
    pub(crate) cluster_writes: bool,
    pub(crate) cluster_checks: bool,
}

impl Tick {
    pub(crate) fn acting(&self) -> usize {
        self.holders.len() + usize::from(self.cluster_writes)
    }
}

pub(crate) struct World {
    pub(crate) time: Duration,
    pub(crate) server: Server,
    pub(crate) chance: Chance,
    pub(crate) network: Network,
    pub(crate) holders: Vec<Holder>,
    pub(crate) cluster: Option<ClusterWide>,
    pub(crate) ticks: Vec<Tick>,
}

impl World {
    pub(crate) fn new(seed: u64, network: Network) -> Self {
        Self {
            time: Duration::ZERO,
            server: Server::default(),
            chance: Chance::new(seed),
            network,
            holders: Vec::new(),
            cluster: None,
            ticks: Vec::new(),
        }
    }

    pub(crate) fn run_until(&mut self, end: Duration) {
        while self.time < end {
            self.time += TICK;
            let mut tick = Tick { time: self.time, ..Tick::default() };
            for (index, holder) in self.holders.iter_mut().enumerate() {
                holder.tick(self.time, &mut self.server, self.network, &mut self.chance);
                tick.holders.extend(holder.acts(self.time).map(|hold| (index, hold.epoch)));
            }
            if let Some(cluster) = &mut self.cluster {
                cluster.tick(self.time, &self.server, self.network, &mut self.chance);
                (tick.cluster_writes, tick.cluster_checks) = cluster.acts(self.time);
            }
            self.ticks.push(tick);
        }
    }

    /// The longest unbroken time after `after` during which `what` held.
    pub(crate) fn longest(&self, after: Duration, what: impl Fn(&Tick) -> bool) -> Duration {
        let (mut longest, mut run) = (0, 0);
        for tick in self.ticks.iter().filter(|tick| tick.time > after) {
            run = if what(tick) { run + 1 } else { 0 };
            longest = longest.max(run);
        }
        TICK * longest
    }

    /// When `what` first held, from `after` on.
    pub(crate) fn first(&self, after: Duration, what: impl Fn(&Tick) -> bool) -> Option<Duration> {
        self.ticks.iter().find(|tick| tick.time > after && what(tick)).map(|tick| tick.time)
    }
}
