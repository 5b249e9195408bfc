//! The one decision, for leader election and for scopes.

use std::time::Duration;

use crate::record::Observation;
use crate::time::Moment;
use crate::{Epoch, Timing};

/// The candidate for which to decide.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'a> {
    /// Its identity, unique to this run of this process.
    pub(crate) identity: &'a str,
    /// How it takes part.
    pub(crate) role: Role,
    /// What it holds, as far as it knows.
    pub(crate) hold: Option<Hold>,
}

/// How a candidate takes part.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Role {
    /// Acts while it holds the lease: a leader, a namespace-restricted operator.
    Holder(Timing),
    /// Acts while *nobody* holds the lease, and never writes it: a cluster-wide operator.
    Fallback {
        /// The duration of a lease that states none.
        duration: Duration,
        /// How much longer than the lease's duration it waits.
        grace: Duration,
    },
}

/// A hold on a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    /// Its epoch.
    pub(crate) epoch: Epoch,
    /// When it was acquired, as far as this process knows.
    pub(crate) since: Moment,
    /// When the last successful write was *begun*: others cannot have seen it earlier.
    pub(crate) confirmed: Moment,
    /// When to renew.
    pub(crate) renew_at: Moment,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Acquire the lease: a holder writes the record with this epoch, if nothing changed meanwhile; a fallback begins
    /// to act.
    Acquire {
        /// The epoch of the new hold.
        epoch: Epoch,
    },
    /// Renew the lease.
    Renew {
        /// The epoch of the hold.
        epoch: Epoch,
    },
    /// Do nothing until this time or until another record is seen; with `None`, until another record is seen.
    Wait {
        /// When to decide again.
        until: Option<Moment>,
    },
    /// Stop acting now, then decide again.
    Yield {
        /// Why.
        reason: Reason,
    },
}

/// Why a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
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
/// - A record counts as alive for its duration from the moment that *this process* saw it change; deleting it does not
///   end that, because the holder acts until it notices.
/// - A holder that could not renew before its deadline yields. Acquiring the lease again, even unchallenged, starts a
///   new epoch.
/// - A fallback yields as soon as the lease is held, and acts again after duration and grace, counted from when it last
///   saw the record change. A released record counts like a held one: a successor in the same scope comes first.
pub(crate) fn decide(observation: &Observation, now: Moment, me: &Candidate<'_>) -> Decision {
    match me.role {
        Role::Holder(timing) => match me.hold {
            Some(hold) => keep(observation, now, me.identity, &hold, &timing),
            None => seek(observation, now, me.identity, &timing),
        },
        Role::Fallback { duration, grace } => stand_in(observation, now, me.hold.is_some(), duration, grace),
    }
}

fn keep(observation: &Observation, now: Moment, identity: &str, hold: &Hold, timing: &Timing) -> Decision {
    let Some(record) = observation.present() else { return Decision::Yield { reason: Reason::Gone } };
    match record.holder.as_deref() {
        None => return Decision::Yield { reason: Reason::Gone },
        Some(holder) if holder != identity || record.transitions != hold.epoch.transitions => {
            return Decision::Yield { reason: Reason::Taken };
        }
        Some(_) => {}
    }
    if now >= hold.confirmed + timing.deadline() {
        Decision::Yield { reason: Reason::Late }
    } else if now >= hold.renew_at {
        Decision::Renew { epoch: hold.epoch }
    } else {
        Decision::Wait { until: Some(hold.renew_at.min(hold.confirmed + timing.deadline())) }
    }
}

fn seek(observation: &Observation, now: Moment, identity: &str, timing: &Timing) -> Decision {
    let Some(last) = observation.last() else { return Decision::Acquire { epoch: Epoch::default().next() } };
    let epoch = Epoch::hold(last.transitions).next();
    match last.holder.as_deref() {
        // A write of ours whose answer was lost, or a hold that we let lapse: nobody but us acts on it.
        Some(holder) if holder != identity => {
            let until = observation.changed() + last.duration.unwrap_or(timing.duration());
            if now < until { Decision::Wait { until: Some(until) } } else { Decision::Acquire { epoch } }
        }
        _ => Decision::Acquire { epoch },
    }
}

fn stand_in(observation: &Observation, now: Moment, acting: bool, duration: Duration, grace: Duration) -> Decision {
    let Some(last) = observation.last() else {
        return if acting { Decision::Wait { until: None } } else { Decision::Acquire { epoch: Epoch::default() } };
    };
    let until = observation.changed() + last.duration.unwrap_or(duration) + grace;
    match (now < until, acting) {
        (true, true) => Decision::Yield { reason: Reason::Taken },
        (true, false) => Decision::Wait { until: Some(until) },
        (false, true) => Decision::Wait { until: None },
        (false, false) => Decision::Acquire { epoch: Epoch::hold(last.transitions).resumed() },
    }
}

#[cfg(test)]
mod tests {
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
    fn a_candidate_takes_what_is_free_and_waits_for_what_it_saw_alive() {
        let acquire = |transitions| Decision::Acquire { epoch: Epoch::hold(transitions) };
        let wait = |until| Decision::Wait { until: Some(at(until)) };
        // What was seen at second 100, whether it was deleted since, now, and what is decided.
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
            let me = Candidate { identity: ME, role: Role::Holder(Timing::LEADER), hold: None };
            assert_eq!(decide(&observation, at(now), &me), expected, "{record:?}, deleted: {deleted}, at {now}");
        }
    }

    #[test]
    fn a_holder_renews_in_time_and_yields_to_whoever_has_it_and_to_time() {
        let hold = Hold { epoch: Epoch::hold(4), since: at(90), confirmed: at(100), renew_at: at(102) };
        let yields = |reason| Decision::Yield { reason };
        let table = [
            (Some((ME, 4, Some(15))), 100, Decision::Wait { until: Some(at(102)) }),
            (Some((ME, 4, Some(15))), 102, Decision::Renew { epoch: Epoch::hold(4) }),
            (Some((ME, 4, Some(15))), 109, Decision::Renew { epoch: Epoch::hold(4) }),
            (Some((ME, 4, Some(15))), 110, yields(Reason::Late)),
            (Some(("other", 5, Some(15))), 100, yields(Reason::Taken)),
            // The same holder and another epoch is another hold.
            (Some((ME, 5, Some(15))), 100, yields(Reason::Taken)),
            (Some(("", 4, Some(15))), 100, yields(Reason::Gone)),
            (None, 100, yields(Reason::Gone)),
        ];
        for (record, now, expected) in table {
            let me = Candidate { identity: ME, role: Role::Holder(Timing::LEADER), hold: Some(hold) };
            assert_eq!(decide(&seen(record), at(now), &me), expected, "{record:?} at {now}");
        }
    }

    #[test]
    fn a_cluster_wide_operator_yields_at_once_and_comes_back_after_duration_and_grace() {
        let role = Role::Fallback { duration: Duration::from_secs(25), grace: Duration::from_secs(5) };
        let hold = Hold { epoch: Epoch::default(), since: at(0), confirmed: at(0), renew_at: at(0) };
        let taken = Decision::Yield { reason: Reason::Taken };
        let free = Decision::Wait { until: None };
        let back = |epoch| Decision::Acquire { epoch };
        let wait = |until| Decision::Wait { until: Some(at(until)) };
        // What was seen at second 100, now, and what is decided for one who acts and for one who does not.
        let table = [
            (None, 100, free, back(Epoch::default())),
            (Some(("tenant", 4, Some(30))), 100, taken, wait(135)),
            (Some(("tenant", 4, Some(30))), 134, taken, wait(135)),
            (Some(("tenant", 4, Some(30))), 135, free, back(Epoch::hold(4).resumed())),
            (Some(("tenant", 4, None)), 129, taken, wait(130)),
            (Some(("tenant", 4, None)), 130, free, back(Epoch::hold(4).resumed())),
            // Released: a successor of the same scope comes first.
            (Some(("", 4, Some(30))), 134, taken, wait(135)),
            (Some(("", 4, Some(1))), 106, free, back(Epoch::hold(4).resumed())),
        ];
        for (record, now, acting, waiting) in table {
            let ask = |hold| decide(&seen(record), at(now), &Candidate { identity: "", role, hold });
            assert_eq!((ask(Some(hold)), ask(None)), (acting, waiting), "{record:?} at {now}");
        }
    }
}
