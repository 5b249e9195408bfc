//! The one decision, for leader election and for scopes.

use std::time::Duration;

use crate::{Epoch, Moment, Observation, Timing};

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// Its identity: of this run of this process and of no other.
    pub identity: &'a str,
    /// How it takes part.
    pub role: Role,
    /// What it holds, as far as it knows.
    pub hold: Option<Hold>,
}

/// How a candidate takes part.
#[derive(Clone, Copy, Debug)]
pub enum Role {
    /// It acts while it holds the lease: a leader, a namespace-restricted operator.
    Holder(Timing),
    /// It acts while *nobody* holds the lease, and never writes it: a cluster-wide operator.
    Fallback {
        /// For a holder that does not say how long its lease lasts.
        duration: Duration,
        /// How much longer than the lease's duration it waits.
        grace: Duration,
    },
}

/// A hold that is believed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Its epoch.
    pub epoch: Epoch,
    /// When it was known to be ours.
    pub since: Moment,
    /// When the last write that succeeded was *begun*: others cannot have seen it earlier.
    pub confirmed: Moment,
    /// When to renew.
    pub renew_at: Moment,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Take it. A holder writes the record with this epoch, on condition that nothing changed; a fallback begins to act.
    Acquire {
        /// The epoch of the new hold.
        epoch: Epoch,
    },
    /// It is ours: write the renewal.
    Renew {
        /// The epoch, as it was.
        epoch: Epoch,
    },
    /// Nothing, until then or until something else is seen. `None`: only when something is seen.
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
pub enum Reason {
    /// The deadline passed without a renewal.
    Late,
    /// Somebody else has it.
    Taken,
    /// The Lease was deleted, or released in our name.
    Gone,
}

/// Decides from what was seen, when, and who asks. No other clock than our own has a part in it.
///
/// Any record is an allowed input: what strangers write can make us wait or yield, not panic.
///
/// - A record counts as alive for its duration from the moment that *we* saw it change; deleting it does not end that,
///   because the holder acts until it finds out.
/// - Who held, and could not renew before its deadline, yields. Taking it again, even unchallenged, is a new epoch.
/// - A fallback yields at once when somebody holds, and acts again after duration and grace, from when it last saw the
///   record change. A released record counts like a held one: a successor of the same scope comes first.
pub fn decide(observation: &Observation, now: Moment, me: &Candidate<'_>) -> Decision {
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
