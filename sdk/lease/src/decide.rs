//! The decision function, for leader election and for scopes.

use crate::Timing;
use crate::record::{Observation, next_epoch};
use crate::time::Moment;

/// The candidate for which to decide: it acts while it holds the lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'a> {
    /// Its identity, unique to this run of this process.
    pub(crate) identity: &'a str,
    /// Its durations.
    pub(crate) timing: Timing,
    /// Its hold, as far as it knows.
    pub(crate) hold: Option<Hold>,
}

/// A hold on a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    /// Its number, greater than that of all holds before, from `leaseTransitions`.
    pub(crate) epoch: u32,
    /// When it was acquired, as far as this process knows.
    pub(crate) since: Moment,
    /// When the last successful write was *begun*: others cannot have seen it earlier.
    pub(crate) confirmed: Moment,
    /// When to renew.
    pub(crate) renew_at: Moment,
}

/// The decision for a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Acquire the lease: write the record with this epoch, if nothing changed meanwhile.
    Acquire {
        /// The epoch of the new hold.
        epoch: u32,
    },
    /// Renew the lease.
    Renew {
        /// The epoch of the hold.
        epoch: u32,
    },
    /// Do nothing until this time or until another record is seen.
    Wait {
        /// When to decide again.
        until: Moment,
    },
    /// Stop acting now, then decide again.
    Yield {
        /// The cause.
        reason: Reason,
    },
}

/// The reason why a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The deadline passed without a renewal.
    Late,
    /// Another candidate holds the lease.
    Taken,
    /// The Lease was deleted, or released.
    Gone,
    /// The namespace is not handed over any more.
    NotHandedOver,
}

/// Decides what a candidate does next, from what it observed and when. No clock but the local one is used.
///
/// Any record is valid input: what others write can make the candidate wait or yield, but not panic.
///
/// - A record [counts](Observation::counts_until) as alive for its duration, also when it was deleted.
/// - A holder that could not renew before its deadline yields. Acquiring the lease again, even unchallenged, starts a
///   new epoch.
pub(crate) fn decide(observation: &Observation, now: Moment, me: &Candidate<'_>) -> Decision {
    match &me.hold {
        Some(hold) => keep(observation, now, me, hold),
        None => seek(observation, now, me),
    }
}

fn keep(observation: &Observation, now: Moment, me: &Candidate<'_>, hold: &Hold) -> Decision {
    let Some(record) = observation.present() else { return Decision::Yield { reason: Reason::Gone } };
    match record.holder.as_deref() {
        None => return Decision::Yield { reason: Reason::Gone },
        Some(holder) if holder != me.identity || record.transitions != hold.epoch => {
            return Decision::Yield { reason: Reason::Taken };
        }
        Some(_) => {}
    }
    let deadline = hold.confirmed + me.timing.deadline();
    if now >= deadline {
        Decision::Yield { reason: Reason::Late }
    } else if now >= hold.renew_at {
        Decision::Renew { epoch: hold.epoch }
    } else {
        Decision::Wait { until: hold.renew_at.min(deadline) }
    }
}

fn seek(observation: &Observation, now: Moment, me: &Candidate<'_>) -> Decision {
    let epoch = next_epoch(observation.last().map_or(0, |last| last.transitions));
    // The answer to our write was lost, or we let the hold lapse: only we act on this record.
    let others = observation.last().and_then(|last| last.holder.as_deref()).is_some_and(|holder| holder != me.identity);
    let until = observation.counts_until(me.timing.duration()).filter(|until| others && now < *until);
    until.map_or(Decision::Acquire { epoch }, |until| Decision::Wait { until })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::record::Record;

    const ME: &str = "me";

    fn at(seconds: u64) -> Moment {
        Moment::since_origin(Duration::from_secs(seconds))
    }

    /// Seen at second 100: holder, transitions, duration in seconds.
    fn seen(record: Option<(&str, u32, Option<u64>)>) -> Observation {
        let mut observation = Observation::default();
        if let Some((holder, transitions, duration)) = record {
            let holder = Some(holder.to_owned()).filter(|holder| !holder.is_empty());
            let duration = duration.map(Duration::from_secs);
            observation.see(Some(Record { holder, duration, transitions, ..Record::default() }), at(100));
        }
        observation
    }

    #[test]
    fn a_candidate_takes_a_free_lease_and_waits_for_a_live_one() {
        let acquire = |epoch| Decision::Acquire { epoch };
        let wait = |until| Decision::Wait { until: at(until) };
        // The columns are: the Lease as seen at second 100, whether it was deleted after that, the time now, and the
        // decision.
        let table = [
            (None, false, 100, acquire(1)),
            (Some(("", 4, Some(15))), false, 100, acquire(5)),
            (Some(("other", 4, Some(15))), false, 100, wait(115)),
            (Some(("other", 4, Some(15))), false, 114, wait(115)),
            (Some(("other", 4, Some(15))), false, 115, acquire(5)),
            // The holder's duration counts, not ours; ours where it says none.
            (Some(("other", 4, Some(60))), false, 115, wait(160)),
            (Some(("other", 4, None)), false, 114, wait(115)),
            // Deleted: its holder does not know it yet.
            (Some(("other", 4, Some(15))), true, 114, wait(115)),
            (Some(("other", 4, Some(15))), true, 115, acquire(5)),
            (Some(("", 4, Some(15))), true, 100, acquire(5)),
            // A lapsed hold, or a write whose answer was lost: ours, and a new epoch.
            (Some((ME, 4, Some(15))), false, 101, acquire(5)),
            (Some(("", i32::MAX.unsigned_abs(), Some(15))), false, 100, acquire(i32::MAX.unsigned_abs())),
        ];
        for (record, deleted, now, expected) in table {
            let mut observation = seen(record);
            if deleted {
                observation.see(None, at(101));
            }
            let me = Candidate { identity: ME, timing: Timing::LEADER, hold: None };
            assert_eq!(decide(&observation, at(now), &me), expected, "{record:?}, deleted: {deleted}, at {now}");
        }
    }

    #[test]
    fn a_holder_renews_in_time_and_yields_to_others_and_to_time() {
        let hold = Hold { epoch: 4, since: at(90), confirmed: at(100), renew_at: at(102) };
        let yields = |reason| Decision::Yield { reason };
        let table = [
            (Some((ME, 4, Some(15))), 100, Decision::Wait { until: at(102) }),
            (Some((ME, 4, Some(15))), 102, Decision::Renew { epoch: 4 }),
            (Some((ME, 4, Some(15))), 109, Decision::Renew { epoch: 4 }),
            (Some((ME, 4, Some(15))), 110, yields(Reason::Late)),
            (Some(("other", 5, Some(15))), 100, yields(Reason::Taken)),
            // The same holder and another epoch is another hold.
            (Some((ME, 5, Some(15))), 100, yields(Reason::Taken)),
            (Some(("", 4, Some(15))), 100, yields(Reason::Gone)),
            (None, 100, yields(Reason::Gone)),
        ];
        for (record, now, expected) in table {
            let me = Candidate { identity: ME, timing: Timing::LEADER, hold: Some(hold) };
            assert_eq!(decide(&seen(record), at(now), &me), expected, "{record:?} at {now}");
        }
    }
}
