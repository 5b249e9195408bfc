//! A state machine for one holder or candidate: the next step, and the result of the last one. No IO, no clock.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::Timing;
use crate::decide::{Candidate, Decision, Hold, Reason, decide};
use crate::record::{Observation, Record, next_epoch};
use crate::time::Moment;

/// The next step of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "a few of them in a lifetime of seconds")]
pub(crate) enum Step {
    /// Read the Lease, then call [`Elector::read`] or [`Elector::failed`].
    Read,
    /// Write it, then call [`Elector::written`], [`Elector::conflicted`] or [`Elector::failed`].
    Write(Write),
    /// Do nothing until then.
    Sleep(Moment),
}

/// A conditional write of the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    /// The new content of the Lease. Its `version` is empty.
    pub(crate) record: Record,
    /// The resource version that it replaces; `None` if the Lease must not exist.
    pub(crate) replaces: Option<String>,
    /// When it was begun: the hold counts from here.
    pub(crate) begun: Moment,
}

/// The way a holder releases its Lease on a graceful stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Free for every candidate after one second, as client-go writes it.
    Release,
    /// Free for candidates at once; a cluster-wide operator still waits for duration and grace. In a rolling update the
    /// namespace goes to the new pod, and the cluster-wide operator does not write in between.
    HandOver,
}

/// The state machine of one holder or candidate.
#[derive(Clone, Debug)]
pub(crate) struct Elector {
    identity: String,
    timing: Timing,
    observation: Observation,
    hold: Option<Hold>,
    ended: Option<Reason>,
    floor: u32,
    next_read: Moment,
    failures: u32,
    retry_at: Moment,
    in_doubt: bool,
    chance: u64,
}

impl Elector {
    /// A candidate that has seen nothing. `identity` is unique to this run of this process; `seed` makes candidates
    /// differ in when they read the Lease.
    pub(crate) fn new(identity: impl Into<String>, timing: Timing, seed: u64) -> Self {
        Self {
            identity: identity.into(),
            timing,
            observation: Observation::default(),
            hold: None,
            ended: None,
            floor: 0,
            next_read: Moment::default(),
            failures: 0,
            retry_at: Moment::default(),
            in_doubt: false,
            // The generator never leaves the state zero.
            chance: seed | 1,
        }
    }

    /// Decides the next step at `now`. `wall` is only written into the Lease.
    pub(crate) fn step(&mut self, now: Moment, wall: Timestamp) -> Step {
        let step = self.next(now, wall);
        self.in_doubt |= matches!(step, Step::Write(_));
        step
    }

    fn next(&mut self, now: Moment, wall: Timestamp) -> Step {
        let me = Candidate { identity: &self.identity, timing: self.timing, hold: self.hold };
        let decision = decide(&self.observation, now, &me);
        if let Decision::Yield { reason } = decision {
            self.yields(reason, now);
        }
        // A hold ends in time even during a pause after a failure.
        if now < self.retry_at {
            let limit = self.hold.map(|hold| hold.confirmed + self.timing.deadline());
            return Step::Sleep(limit.map_or(self.retry_at, |limit| limit.min(self.retry_at)));
        }
        if self.next_read <= now {
            return Step::Read;
        }
        match decision {
            Decision::Acquire { epoch } => {
                Step::Write(self.write(epoch.max(next_epoch(self.floor)), Some(wall), now, wall))
            }
            Decision::Renew { epoch } => {
                let acquired = self.observation.present().and_then(|record| record.acquired);
                Step::Write(self.write(epoch, acquired, now, wall))
            }
            Decision::Wait { until } => Step::Sleep(until.min(self.next_read)),
            Decision::Yield { .. } => Step::Read,
        }
    }

    /// Takes the result of a read that ended at `now`. It replaces what is known, whatever its version is.
    pub(crate) fn read(&mut self, found: Option<Record>, now: Moment) {
        self.failures = 0;
        self.in_doubt = false;
        let known = self.observation.last().zip(found.as_ref());
        if let Some((known, _)) = known.filter(|(known, found)| found.older_than(&known.version)) {
            // etcd was restored: a holder since then acts until it notices, and its epoch must not be used again.
            self.floor = self.floor.max(known.transitions);
            if known.holder.as_ref().is_some_and(|holder| *holder != self.identity) {
                self.retry_at = now + known.duration.unwrap_or(self.timing.duration());
            }
        }
        self.observation.read(found, now, now);
        self.next_read = if self.hold.is_some() { END_OF_TIME } else { now + self.jittered(self.timing.retry()) };
    }

    /// Takes a successful write; `stored` is what the API server returned at `now`.
    pub(crate) fn written(&mut self, write: &Write, stored: Record, now: Moment) {
        self.failures = 0;
        self.in_doubt = false;
        let epoch = stored.transitions;
        let since = self.hold.filter(|hold| hold.epoch == epoch).map_or(now, |hold| hold.since);
        let mut renew_at = write.begun + self.jittered(self.timing.renew());
        if let Some(proven) = self.timing.proven().map(|proven| since + proven).filter(|at| write.begun < *at) {
            renew_at = renew_at.min(proven);
        }
        self.observation.see(Some(stored), now);
        self.hold = Some(Hold { epoch, since, confirmed: write.begun, renew_at });
        self.ended = None;
        self.next_read = END_OF_TIME;
    }

    /// Takes a conflict: another writer was faster. The Lease is read again, at once the first time.
    pub(crate) fn conflicted(&mut self, now: Moment) {
        let first = self.failures == 0;
        self.failed(now);
        if first {
            self.retry_at = now;
        }
    }

    /// Takes a read or write that failed or was not answered. The Lease is read again, after a pause that grows with
    /// each failure.
    pub(crate) fn failed(&mut self, now: Moment) {
        let pause = self.timing.retry() / 8 * 2_u32.saturating_pow(self.failures);
        self.failures = self.failures.saturating_add(1);
        let pause = self.jittered(pause.min(self.timing.retry()));
        self.retry_at = now + pause;
        self.next_read = now;
    }

    /// Records that a write was not sent, for this reason: a hold ends at once.
    pub(crate) fn withheld(&mut self, reason: Reason, now: Moment) {
        self.in_doubt = false;
        self.yields(reason, now);
        self.retry_at = now + self.jittered(self.timing.retry());
    }

    /// Whether the outcome of a write is unknown: the Lease may name this candidate.
    pub(crate) fn in_doubt(&self) -> bool {
        self.in_doubt
    }

    /// Ends the hold. Returns the write that releases the Lease, if that is known to name this candidate; when
    /// [in doubt](Self::in_doubt), read first. After a conflict, read and call it again.
    pub(crate) fn release(&mut self, end: End, now: Moment, wall: Timestamp) -> Option<Write> {
        self.yields(Reason::Gone, now);
        let known = self.observation.present().filter(|known| known.holder.as_ref() == Some(&self.identity))?;
        let mut write = self.write(known.transitions, known.acquired, now, wall);
        write.record.holder = None;
        if end == End::Release {
            write.record.duration = Some(Duration::from_secs(1));
        }
        Some(write)
    }

    /// The timeout of the next request: several fit into a deadline, and none outlasts the hold.
    pub(crate) fn limit(&self, now: Moment) -> Duration {
        let limit = self.timing.deadline() / 4;
        self.hold.map_or(limit, |hold| (hold.confirmed + self.timing.deadline()).since(now).min(limit))
    }

    /// The hold, if the holder may act at `now`: settled, renewed towards the end of settling, and within its deadline.
    pub(crate) fn acting(&self, now: Moment) -> Option<Hold> {
        let settled = |hold: &Hold| {
            let proven = self.timing.proven().is_none_or(|proven| hold.confirmed >= hold.since + proven);
            proven && now >= hold.since + self.timing.settling()
        };
        self.hold.filter(|hold| settled(hold) && now < hold.confirmed + self.timing.deadline())
    }

    /// The hold, whether the holder may act on it or not.
    pub(crate) fn hold(&self) -> Option<Hold> {
        self.hold
    }

    /// Why the last hold ended; `None` while there is one, or never was.
    pub(crate) fn ended(&self) -> Option<Reason> {
        self.ended
    }

    /// The last observation of the Lease.
    pub(crate) fn observation(&self) -> &Observation {
        &self.observation
    }

    /// The time at which the right to act next changes by itself: settled, or late.
    pub(crate) fn next_deadline(&self, now: Moment) -> Option<Moment> {
        let hold = self.hold?;
        let turns = [hold.since + self.timing.settling(), hold.confirmed + self.timing.deadline()];
        turns.into_iter().find(|at| now < *at)
    }

    fn yields(&mut self, reason: Reason, now: Moment) {
        self.hold = None;
        self.ended = Some(reason);
        self.next_read = now;
    }

    fn write(&self, epoch: u32, acquired: Option<Timestamp>, now: Moment, wall: Timestamp) -> Write {
        let known = self.observation.present();
        // Others notice a renewal only by a change: two renewals in one microsecond, or on a stopped clock, must
        // differ.
        let stood = known.and_then(|record| record.renewed).is_some_and(|last| last == micros(wall));
        let renewed = if stood { wall.saturating_add(SignedDuration::from_micros(1)).unwrap_or(wall) } else { wall };
        let seconds = self.timing.duration().as_secs() + u64::from(self.timing.duration().subsec_nanos() > 0);
        Write {
            record: Record {
                holder: Some(self.identity.clone()),
                acquired: acquired.map(micros),
                renewed: Some(micros(renewed)),
                duration: Some(Duration::from_secs(seconds)),
                transitions: epoch,
                installation: None,
                version: String::new(),
            },
            replaces: known.map(|record| record.version.clone()),
            begun: now,
        }
    }

    /// Jitter shortens by up to a fifth, so nothing is later than promised. Xorshift is enough to make candidates
    /// differ.
    fn jittered(&mut self, pause: Duration) -> Duration {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        let fraction = u32::try_from(self.chance % 256).unwrap_or_default();
        pause.saturating_mul(5 * 256 - fraction) / (5 * 256)
    }
}

const END_OF_TIME: Moment = Moment::since_origin(Duration::MAX);

/// A Lease keeps microseconds.
fn micros(time: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::since_origin(Duration::from_millis(millis))
    }

    fn wall() -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    fn stored(write: &Write, version: u32) -> Record {
        Record { version: version.to_string(), ..write.record.clone() }
    }

    /// Holds since a write that was begun at second 1 and answered at second 3.
    fn holder() -> Elector {
        let mut elector = Elector::new("me", Timing::LEADER, 7);
        assert_eq!(elector.step(at(0), wall()), Step::Read);
        elector.read(None, at(1000));
        let Step::Write(write) = elector.step(at(1000), wall()) else { panic!("it is free") };
        assert_eq!(write.replaces, None);
        elector.written(&write, stored(&write, 1), at(3000));
        elector
    }

    #[test]
    fn a_hold_counts_from_when_its_write_was_begun() {
        let mut elector = holder();
        assert!(elector.acting(at(10_999)).is_some());
        assert_eq!(elector.acting(at(11_000)), None, "others may have seen it from second 1 on");
        assert_eq!(elector.step(at(11_000), wall()), Step::Read);
        assert_eq!(elector.ended(), Some(Reason::Late));
    }

    #[test]
    fn a_renewal_differs_from_the_last_even_if_the_clock_stands() {
        let mut elector = holder();
        let Step::Write(renewal) = elector.step(at(3000), wall()) else { panic!("two seconds have passed") };
        assert_eq!(renewal.replaces.as_deref(), Some("1"));
        assert!(renewal.record.renewed > Some(wall()));
        assert_eq!(renewal.record.acquired, Some(wall()), "it holds since then");
        assert_eq!(renewal.record.transitions, 1);
    }

    #[test]
    fn a_conflict_is_read_at_once_and_failures_back_off() {
        let mut elector = holder();
        elector.conflicted(at(3000));
        assert_eq!(elector.step(at(3000), wall()), Step::Read);
        let mut now = at(3000);
        let mut pauses = Vec::new();
        for _ in 0..5 {
            elector.failed(now);
            let Step::Sleep(until) = elector.step(now, wall()) else { panic!("it pauses") };
            pauses.push(until.since(now));
            now = until;
        }
        assert!(pauses[0] < Duration::from_secs(1), "{pauses:?}");
        assert!(pauses.iter().all(|pause| *pause <= Timing::LEADER.retry()), "{pauses:?}");
        elector.failed(at(10_900));
        assert_eq!(elector.step(at(10_900), wall()), Step::Sleep(at(11_000)), "it has to stop acting then");
    }

    #[test]
    fn an_unanswered_acquire_is_in_doubt_until_it_is_read() {
        let mut elector = Elector::new("me", Timing::LEADER, 7);
        elector.read(None, at(1000));
        let Step::Write(write) = elector.step(at(1000), wall()) else { panic!("it is free") };
        assert!(elector.in_doubt());
        elector.failed(at(3000));
        assert!(elector.in_doubt(), "no answer is no answer");
        elector.read(Some(stored(&write, 1)), at(3100));
        assert!(!elector.in_doubt());
        assert_eq!(elector.release(End::Release, at(3200), wall()).unwrap().record.holder, None);
        assert!(!holder().in_doubt(), "an answered write leaves no doubt");
    }

    #[test]
    fn no_future_version_is_awaited_after_an_etcd_restore() {
        let mut elector = holder();
        let Step::Write(renewal) = elector.step(at(3000), wall()) else { panic!("two seconds have passed") };
        let before = elector.observation().present().unwrap().clone();
        elector.written(&renewal, stored(&renewal, 900), at(3100));
        // The restore of etcd brings back version 1 of the Lease.
        let Step::Write(renewal) = elector.step(at(5100), wall()) else { panic!("two seconds have passed") };
        assert_eq!(renewal.replaces.as_deref(), Some("900"));
        elector.conflicted(at(5100));
        assert_eq!(elector.step(at(5100), wall()), Step::Read);
        elector.read(Some(before), at(5200));
        let Step::Write(renewal) = elector.step(at(5200), wall()) else { panic!("it is still ours") };
        assert_eq!(renewal.replaces.as_deref(), Some("1"));
        elector.written(&renewal, stored(&renewal, 2), at(5300));
        assert!(elector.acting(at(5300)).is_some());
    }

    #[test]
    fn no_acting_epoch_is_taken_again_after_an_etcd_restore() {
        let mut elector = holder();
        let ours = elector.observation().present().unwrap().clone();
        let theirs =
            Record { holder: Some("other".to_owned()), transitions: 4, version: "900".to_owned(), ..ours.clone() };
        elector.read(Some(theirs), at(4000));
        assert_eq!(elector.step(at(4000), wall()), Step::Read, "it is not ours any more");
        // The Lease names us again, as before the other candidate acquired it.
        elector.read(Some(ours.clone()), at(6000));
        assert_eq!(elector.step(at(6000), wall()), Step::Sleep(at(21_000)), "the other acts until it finds out");
        assert_eq!(elector.step(at(21_000), wall()), Step::Read);
        elector.read(Some(ours), at(21_000));
        let Step::Write(write) = elector.step(at(21_000), wall()) else { panic!("nobody has it") };
        assert_eq!((write.record.transitions, write.replaces.as_deref()), (5, Some("1")));
    }

    #[test]
    fn a_release_keeps_the_epoch_and_touches_only_our_own_hold() {
        for (end, seconds) in [(End::Release, 1), (End::HandOver, 15)] {
            let mut elector = holder();
            let write = elector.release(end, at(4000), wall()).unwrap();
            assert_eq!((write.record.holder, write.record.transitions), (None, 1));
            assert_eq!(write.record.duration, Some(Duration::from_secs(seconds)));
            assert_eq!(elector.acting(at(4000)), None);
            let other = Record { holder: Some("other".to_owned()), version: "2".to_owned(), ..Record::default() };
            elector.read(Some(other), at(4100));
            assert_eq!(elector.release(end, at(4200), wall()), None);
        }
    }
}
