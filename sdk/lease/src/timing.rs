use std::time::Duration;

use crate::LeaseError;
use crate::limits::LONGEST;

/// The durations of one lease, as its holder applies them.
///
/// `renew < deadline < duration`. What lies between `deadline` and `duration` is the margin in which the holder has
/// stopped already and no other may have begun: it has to outlast the longest single action that was begun on a check,
/// and what the clocks of two machines differ in *rate* over one duration. What they differ in *value* does not matter.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    duration: Duration,
    deadline: Duration,
    renew: Duration,
    retry: Duration,
    settle: Duration,
}

impl Timing {
    /// The timing of leader election, as client-go has it: 15 s, stop after 10 s without renewal, look every 2 s.
    pub const LEADER: Self = Self {
        duration: Duration::from_secs(15),
        deadline: Duration::from_secs(10),
        renew: Duration::from_secs(2),
        retry: Duration::from_secs(2),
        settle: Duration::ZERO,
    };

    /// The timing of a namespace's Lease: 25 s, which is 30 s with
    /// [`ScopeTiming::DEFAULT`](crate::ScopeTiming::DEFAULT)'s grace; stop after 20 s without renewal; renew every 8 s;
    /// 15 s to settle.
    pub const SCOPE: Self = Self {
        duration: Duration::from_secs(25),
        deadline: Duration::from_secs(20),
        renew: Duration::from_secs(8),
        retry: Duration::from_secs(2),
        settle: Duration::from_secs(15),
    };

    /// `duration`: others take over when they saw no change for that long, or for five minutes; written in whole
    /// seconds, rounded up. `deadline`: the holder stops acting when its last renewal was begun that long ago. `renew`:
    /// it renews that long after the last renewal, or up to a fifth earlier. Candidates look as often, and at least
    /// every two seconds.
    ///
    /// # Errors
    /// [`LeaseError::Invalid`].
    pub fn new(duration: Duration, deadline: Duration, renew: Duration) -> Result<Self, LeaseError> {
        if renew.is_zero() {
            return Err(LeaseError::zero("renew"));
        }
        for (shorter, is, longer, limit) in [
            ("renew", renew, "deadline", deadline),
            ("deadline", deadline, "duration", duration),
            ("duration", duration, "the longest that others wait", LONGEST),
        ] {
            if is >= limit {
                let order = format!("{shorter} ({is:?}) must be less than {longer} ({limit:?})");
                return Err(LeaseError::Invalid(order));
            }
        }
        Ok(Self { duration, deadline, renew, retry: renew.min(Duration::from_secs(2)), settle: Duration::ZERO })
    }

    /// Sets how long a new holder waits before it acts, so that a cluster-wide operator has seen its Lease first.
    /// Longer than that operator's freshness ([`ScopeTiming::new`](crate::ScopeTiming::new)), because it acts on a view
    /// of that age.
    #[must_use]
    pub const fn settle(mut self, settle: Duration) -> Self {
        self.settle = settle;
        self
    }

    /// Others take over after this time without a renewal.
    pub const fn duration(&self) -> Duration {
        self.duration
    }

    /// The holder stops acting after this time without a renewal.
    pub const fn deadline(&self) -> Duration {
        self.deadline
    }

    /// The holder renews after this time.
    pub(crate) const fn renew(&self) -> Duration {
        self.renew
    }

    /// A candidate reads the Lease again after this time; also the longest pause after a failed request.
    pub(crate) const fn retry(&self) -> Duration {
        self.retry
    }

    /// The time after the beginning of a hold that settles at which it is written again before its holder acts: its
    /// proof was there all that time, longer than a cluster-wide operator's list counts.
    pub(crate) fn proven(&self) -> Option<Duration> {
        (!self.settle.is_zero()).then(|| self.settle * 9 / 10)
    }

    /// A new holder begins to act after this time.
    pub(crate) const fn settling(&self) -> Duration {
        self.settle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_that_allow_two_holders_are_refused_with_the_field() {
        let s = Duration::from_secs;
        for (duration, deadline, renew, expected) in [
            (15, 10, 0, "renew is zero: give it a positive duration"),
            (15, 10, 10, "renew (10s) must be less than deadline (10s)"),
            (15, 15, 10, "deadline (15s) must be less than duration (15s)"),
            (10, 15, 5, "deadline (15s) must be less than duration (10s)"),
            (300, 15, 5, "duration (300s) must be less than the longest that others wait (300s)"),
        ] {
            let refused = Timing::new(s(duration), s(deadline), s(renew)).unwrap_err();
            assert_eq!(refused.to_string(), expected);
        }
        for preset in [Timing::LEADER, Timing::SCOPE] {
            assert!(Timing::new(preset.duration, preset.deadline, preset.renew).is_ok());
        }
    }
}
