//! What takes part: holders, as `LeaseElection` drives them, and a cluster-wide operator, as `Scopes` does.

use std::time::Duration;

use portcullis_lease::{Elector, End, Hold, Moment, Ownership, Reason, Record, ScopeTiming, ScopeView, Step, Timing};

use super::world::{Answer, Ask, Chance, Fault, LEASE, LocalClock, NAMESPACE, Network, Server, wall};

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
    /// Whether it looks for its voucher before it writes.
    vouched_by: bool,
    /// What vouched at its last write.
    voucher: Option<u64>,
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
            vouched_by: false,
            voucher: None,
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

    pub(crate) fn vouched_by(self) -> Self {
        Self { vouched_by: true, ..self }
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
                    server.serve(time, &Ask::Write(write));
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
                server.serve(time, ask);
            }
            late
        });
        // What is on its way arrives even while its sender stands still.
        if let Some((_, request)) = &mut self.request
            && let Request::There { at: Some(at), ask } = request
            && *at <= time
        {
            let answer = server.serve(time, ask);
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
                        Answer::Vouched(voucher, _)
                            if voucher.is_none() || (elector.hold().is_some() && voucher != self.voucher) =>
                        {
                            elector.withheld(Reason::Unvouched, now);
                        }
                        Answer::Vouched(voucher, write) => {
                            self.voucher = voucher;
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
            Step::Write(write) if self.vouched_by => Ask::Voucher(write),
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
    vouchers: Vouchers,
    frozen_until: Duration,
    partitioned_until: Duration,
}

/// What it knows of the voucher: the state of this version; what is on its way to it.
#[derive(Debug, Default)]
struct Vouchers {
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
            view: ScopeView::new(timing, [LEASE]),
            watch: true,
            watched: 0,
            events: Vec::new(),
            list: None,
            next_list,
            vouchers: Vouchers { next_list, ..Vouchers::default() },
            frozen_until: Duration::ZERO,
            partitioned_until: Duration::ZERO,
        }
    }

    /// Watches what vouches, and lists it every now and then.
    fn look_for_vouchers(&mut self, time: Duration, server: &Server, network: Network, chance: &mut Chance) {
        let connected = time >= self.partitioned_until;
        let awake = time >= self.frozen_until && self.clock.clone().tick(time);
        let (now, vouchers) = (self.clock.now(), &mut self.vouchers);
        while vouchers.watched < server.vouched_log.len() {
            let (vouched, version) = server.vouched_log[vouchers.watched];
            vouchers.watched += 1;
            if let Some(at) = network.pass(time, chance).filter(|_| self.watch && connected) {
                vouchers.events.push((at, vouched, version));
            }
        }
        if !awake {
            return;
        }
        let (due, later) = std::mem::take(&mut vouchers.events).into_iter().partition(|(at, ..)| *at <= time);
        vouchers.events = later;
        let mut seen: Vec<(bool, u64, Option<Moment>)> =
            due.into_iter().map(|(_, vouched, version)| (vouched, version, None)).collect();
        if let Some((begun, at, vouched, version)) = vouchers.list.take() {
            if at <= time {
                seen.push((vouched, version, Some(begun)));
            } else if now < begun + self.timing.freshness() {
                vouchers.list = Some((begun, at, vouched, version));
            }
        }
        for (vouched, version, begun) in seen {
            if version >= vouchers.known.1 {
                vouchers.known = (vouched, version);
            }
            let namespaces = vouchers.known.0.then(|| NAMESPACE.to_owned()).into_iter().collect();
            self.view.vouched(namespaces, begun, now);
        }
        if vouchers.list.is_none() && now >= vouchers.next_list {
            vouchers.next_list = now + self.timing.confirm();
            if let Some(at) = network.pass(time, chance).filter(|_| connected) {
                let version = server.vouched_log.last().map_or(0, |(_, version)| *version);
                vouchers.list = Some((now, at, server.voucher.is_some(), version));
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
        self.look_for_vouchers(time, server, network, chance);
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
                Some(record) => self.view.see(NAMESPACE, LEASE, record, now),
                None => self.view.gone(NAMESPACE, LEASE, &version.to_string(), now),
            }
        }
        if let Some((begun, at, found, version)) = self.list.take() {
            if at <= time {
                let found = found.map(|record| (NAMESPACE.to_owned(), record)).into_iter().collect();
                self.view.listed(LEASE, found, &version.to_string(), begun, now);
            } else if now < begun + self.timing.freshness() {
                self.list = Some((begun, at, found, version));
            }
        }
        if self.view.looks() && self.list.is_none() && now >= self.next_list {
            self.next_list = now + self.timing.confirm();
            // The server answers as it is now; the answer takes its time.
            if let Some(at) = network.pass(time, chance).filter(|_| connected) {
                self.list = Some((now, at, server.lease.clone(), server.version));
            }
        }
        self.view.advance(now);
    }
}
