//! The actors: holders, as `LeaseElection` drives them, and a cluster-wide operator, as `Scopes` does.

use std::time::Duration;

use crate::decide::{Hold, Reason};
use crate::elector::{Elector, End, Step};
use crate::record::Record;
use crate::scopes::ScopeView;
use crate::time::Moment;
use crate::{Ownership, ScopeTiming, Timing};

use super::world::{Answer, Ask, Chance, Fault, LocalClock, NAMESPACE, Network, Server, wall};

/// A request under way: when it reaches the server, then when its answer is back.
#[derive(Clone, Debug)]
enum Request {
    There { at: Option<Duration>, ask: Ask },
    Back { at: Option<Duration>, answer: Answer },
}

#[derive(Debug)]
pub(crate) struct Holder {
    name: String,
    timing: Timing,
    end: End,
    /// Whether it reads its proof before it writes.
    restricted: bool,
    /// The proof at its last write.
    proof: Option<u64>,
    pub(crate) clock: LocalClock,
    pub(crate) elector: Option<Elector>,
    runs: u64,
    wakes: Moment,
    request: Option<(Moment, Request)>,
    /// Requests that were given up, and may still reach the server.
    abandoned: Vec<(Duration, Ask)>,
    frozen_until: Duration,
    starts: Duration,
    partitioned_until: Duration,
}

impl Holder {
    pub(crate) fn new(name: &str, timing: Timing, end: End, clock: LocalClock, starts: Duration) -> Self {
        Self {
            name: name.to_owned(),
            timing,
            end,
            restricted: false,
            proof: None,
            clock,
            elector: None,
            runs: 0,
            wakes: Moment::default(),
            request: None,
            abandoned: Vec::new(),
            frozen_until: Duration::ZERO,
            starts,
            partitioned_until: Duration::ZERO,
        }
    }

    pub(crate) fn restricted(self) -> Self {
        Self { restricted: true, ..self }
    }

    pub(crate) fn meet(&mut self, fault: Fault, time: Duration, server: &mut Server) {
        match fault {
            Fault::Crash(pause) => self.dies(time + pause),
            Fault::Freeze(pause) => self.frozen_until = self.frozen_until.max(time + pause),
            Fault::Stop(pause) => self.clock.stop(time + pause),
            Fault::Partition(pause) => self.partitioned_until = self.partitioned_until.max(time + pause),
            Fault::Restart(pause) => {
                let (now, wall) = (self.clock.now(), wall(time, self.clock.skew));
                let write = self.elector.as_mut().and_then(|elector| elector.release(self.end, now, wall));
                if let Some(write) = write.filter(|_| self.frozen_until <= time && self.partitioned_until <= time) {
                    server.serve(&Ask::Write(write));
                }
                self.dies(time + pause);
            }
        }
    }

    fn dies(&mut self, starts: Duration) {
        self.abandon();
        self.elector = None;
        self.starts = starts;
    }

    fn abandon(&mut self) {
        if let Some((_, Request::There { at: Some(at), ask })) = self.request.take() {
            self.abandoned.push((at, ask));
        }
    }

    /// The hold on which it acts, if it is able to do anything at all.
    pub(crate) fn acts(&self, time: Duration) -> Option<Hold> {
        let awake = time >= self.frozen_until && self.runs_at(time);
        self.elector.as_ref().filter(|_| awake)?.acting(self.clock.now())
    }

    fn runs_at(&self, time: Duration) -> bool {
        self.clock.clone().tick(time)
    }

    pub(crate) fn tick(&mut self, time: Duration, server: &mut Server, network: Network, chance: &mut Chance) {
        let runs = self.clock.tick(time);
        self.abandoned.retain(|(at, ask)| {
            let late = *at > time;
            if !late {
                server.serve(ask);
            }
            late
        });
        // A request on its way arrives even while its sender stands still.
        if let Some((_, request)) = &mut self.request
            && let Request::There { at: Some(at), ask } = request
            && *at <= time
        {
            let answer = server.serve(ask);
            let back = network.pass(time, chance).filter(|_| time >= self.partitioned_until);
            *request = Request::Back { at: back, answer };
        }
        if !runs || time < self.frozen_until {
            return;
        }
        let now = self.clock.now();
        if self.elector.is_none() && time >= self.starts {
            self.runs += 1;
            let identity = format!("{}_{}", self.name, self.runs);
            self.elector = Some(Elector::new(identity, self.timing, chance.up_to(u64::MAX)));
            self.wakes = now;
        }
        let Some(elector) = &mut self.elector else { return };
        if let Some((limit, request)) = &self.request {
            match request {
                Request::Back { at: Some(at), answer } if *at <= time && now < *limit => {
                    match answer.clone() {
                        Answer::Found(found) => elector.read(found, now),
                        Answer::Proven(proof, _)
                            if proof.is_none() || (elector.hold().is_some() && proof != self.proof) =>
                        {
                            elector.withheld(Reason::NotHandedOver, now);
                        }
                        Answer::Proven(proof, write) => {
                            self.proof = proof;
                            let at = network.pass(time, chance).filter(|_| time >= self.partitioned_until);
                            self.request = Some((*limit, Request::There { at, ask: Ask::Write(write) }));
                            return;
                        }
                        Answer::Stored(write, stored) => elector.written(&write, stored, now),
                        Answer::Conflict => elector.conflicted(now),
                    }
                    self.request = None;
                }
                _ if now >= *limit => {
                    elector.failed(now);
                    self.abandon();
                }
                _ => return,
            }
            self.wakes = now;
        }
        let Some(elector) = self.elector.as_mut().filter(|_| now >= self.wakes) else { return };
        let ask = match elector.step(now, wall(time, self.clock.skew)) {
            Step::Sleep(at) => {
                self.wakes = at;
                return;
            }
            Step::Read => Ask::Read,
            Step::Write(write) if self.restricted => Ask::Proof(write),
            Step::Write(write) => Ask::Write(write),
        };
        let at = network.pass(time, chance).filter(|_| time >= self.partitioned_until);
        self.request = Some((now + elector.limit(now), Request::There { at, ask }));
    }
}

#[derive(Debug)]
pub(crate) struct ClusterWide {
    timing: ScopeTiming,
    pub(crate) clock: LocalClock,
    pub(crate) view: ScopeView,
    /// Whether watch events reach it.
    pub(crate) watch: bool,
    watched: usize,
    events: Vec<(Duration, Option<Record>, u64)>,
    list: Option<(Moment, Duration, Option<Record>, u64)>,
    next_list: Moment,
    handovers: Handovers,
    frozen_until: Duration,
    partitioned_until: Duration,
}

/// Its knowledge of the hand-over: the state of this version, and events and lists that are under way.
#[derive(Debug, Default)]
struct Handovers {
    known: (bool, u64),
    watched: usize,
    events: Vec<(Duration, bool, u64)>,
    list: Option<(Moment, Duration, bool, u64)>,
    next_list: Moment,
}

impl ClusterWide {
    pub(crate) fn new(timing: ScopeTiming, clock: LocalClock) -> Self {
        let next_list = clock.now();
        Self {
            timing,
            clock,
            view: ScopeView::new(timing),
            watch: true,
            watched: 0,
            events: Vec::new(),
            list: None,
            next_list,
            handovers: Handovers { next_list, ..Handovers::default() },
            frozen_until: Duration::ZERO,
            partitioned_until: Duration::ZERO,
        }
    }

    /// Watches hand-overs, and lists them every now and then.
    fn look_for_handovers(&mut self, time: Duration, server: &Server, network: Network, chance: &mut Chance) {
        let connected = time >= self.partitioned_until;
        let awake = time >= self.frozen_until && self.clock.clone().tick(time);
        let (now, handovers) = (self.clock.now(), &mut self.handovers);
        while handovers.watched < server.handover_log.len() {
            let (handed_over, version) = server.handover_log[handovers.watched];
            handovers.watched += 1;
            if let Some(at) = network.pass(time, chance).filter(|_| self.watch && connected) {
                handovers.events.push((at, handed_over, version));
            }
        }
        if !awake {
            return;
        }
        let (due, later) = std::mem::take(&mut handovers.events).into_iter().partition(|(at, ..)| *at <= time);
        handovers.events = later;
        let mut seen: Vec<(bool, u64, Option<Moment>)> =
            due.into_iter().map(|(_, handed_over, version)| (handed_over, version, None)).collect();
        if let Some((begun, at, handed_over, version)) = handovers.list.take() {
            if at <= time {
                seen.push((handed_over, version, Some(begun)));
            } else if now < begun + self.timing.freshness {
                handovers.list = Some((begun, at, handed_over, version));
            }
        }
        for (handed_over, version, begun) in seen {
            if version >= handovers.known.1 {
                handovers.known = (handed_over, version);
            }
            let namespaces = handovers.known.0.then(|| NAMESPACE.to_owned()).into_iter().collect();
            self.view.handed_over(namespaces, begun, now);
        }
        if handovers.list.is_none() && now >= handovers.next_list {
            handovers.next_list = now + self.timing.confirm();
            if let Some(at) = network.pass(time, chance).filter(|_| connected) {
                let version = server.handover_log.last().map_or(0, |(_, version)| *version);
                handovers.list = Some((now, at, server.proof.is_some(), version));
            }
        }
    }

    pub(crate) fn meet(&mut self, fault: Fault, time: Duration) {
        match fault {
            Fault::Freeze(pause) => self.frozen_until = time + pause,
            Fault::Stop(pause) => self.clock.stop(time + pause),
            Fault::Partition(pause) => self.partitioned_until = time + pause,
            Fault::Crash(pause) | Fault::Restart(pause) => {
                *self = Self { watch: self.watch, ..Self::new(self.timing, self.clock.clone()) };
                self.frozen_until = time + pause;
            }
        }
    }

    /// Whether it writes, and whether it checks.
    pub(crate) fn acts(&mut self, time: Duration) -> (bool, bool) {
        if time < self.frozen_until || !self.clock.clone().tick(time) {
            return (false, false);
        }
        let ownership = self.owns();
        (ownership.may_write(), ownership.must_check())
    }

    pub(crate) fn owns(&mut self) -> Ownership {
        self.view.owns(NAMESPACE, self.clock.now())
    }

    pub(crate) fn tick(&mut self, time: Duration, server: &Server, network: Network, chance: &mut Chance) {
        let runs = self.clock.tick(time);
        let connected = time >= self.partitioned_until;
        self.look_for_handovers(time, server, network, chance);
        while self.watched < server.log.len() {
            let (state, version) = &server.log[self.watched];
            self.watched += 1;
            if let Some(at) = network.pass(time, chance).filter(|_| self.watch && connected) {
                self.events.push((at, state.clone(), *version));
            }
        }
        if !runs || time < self.frozen_until {
            return;
        }
        let now = self.clock.now();
        let (due, later) = std::mem::take(&mut self.events).into_iter().partition(|(at, ..)| *at <= time);
        self.events = later;
        for (_, state, version) in due {
            match state {
                Some(record) => self.view.see(NAMESPACE, record, now),
                None => self.view.gone(NAMESPACE, &version.to_string(), now),
            }
        }
        if let Some((begun, at, found, version)) = self.list.take() {
            if at <= time {
                let found = found.map(|record| (NAMESPACE.to_owned(), record)).into_iter().collect();
                self.view.listed(found, &version.to_string(), begun, now);
            } else if now < begun + self.timing.freshness {
                self.list = Some((begun, at, found, version));
            }
        }
        if self.view.needs_leases() && self.list.is_none() && now >= self.next_list {
            self.next_list = now + self.timing.confirm();
            // The server answers as it is now; the answer takes its time.
            if let Some(at) = network.pass(time, chance).filter(|_| connected) {
                self.list = Some((now, at, server.lease.clone(), server.version));
            }
        }
        self.view.tick(now);
    }
}
