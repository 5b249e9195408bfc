//! How long what a cluster-wide operator knows of others counts.

use std::time::Duration;

use crate::LeaseError;

/// The durations of a cluster-wide operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScopeTiming {
    pub(super) duration: Duration,
    pub(super) grace: Duration,
    pub(super) freshness: Duration,
}

impl ScopeTiming {
    /// 5 s of grace, which with [`Timing::SCOPE`](crate::Timing::SCOPE) makes 30 s; 12 s of freshness, less than the 15 s
    /// that a restricted operator settles.
    pub const DEFAULT: Self =
        Self { duration: Duration::from_secs(25), grace: Duration::from_secs(5), freshness: Duration::from_secs(12) };

    /// - `duration`: of a lease that states none.
    /// - `grace`: how long past a lease's duration the namespace stays with its holder; a successor needs some of it.
    /// - `freshness`: how long what is known counts. Shorter than [`Timing::settle`](crate::Timing::settle) of the
    ///   restricted operators.
    ///
    /// # Errors
    /// [`LeaseError::Zero`].
    pub fn new(duration: Duration, grace: Duration, freshness: Duration) -> Result<Self, LeaseError> {
        for (field, value) in [("duration", duration), ("grace", grace), ("freshness", freshness)] {
            if value.is_zero() {
                return Err(LeaseError::Zero { field });
            }
        }
        Ok(Self { duration, grace, freshness })
    }

    /// The duration of a lease that states none.
    pub fn duration(&self) -> Duration {
        self.duration
    }

    /// How long past a lease's duration the namespace stays with its holder.
    pub fn grace(&self) -> Duration {
        self.grace
    }

    /// How long a leader waits for later installations to notice it: longer than [`hearing`](Self::hearing).
    pub fn settle(&self) -> Duration {
        self.hearing() + self.hearing() / 4
    }

    /// How often to list, so that one list may fail and what is known stays fresh.
    pub fn confirm(&self) -> Duration {
        self.freshness / 2
    }

    /// How long a leader's view of other leaders counts, from the beginning of its last write that came back on the
    /// watch of their Leases. Nobody leads on a dead watch for longer.
    pub fn hearing(&self) -> Duration {
        self.freshness / 3
    }

    /// How long the view of vouchers, and of the Leases that they vouch for, counts.
    pub fn freshness(&self) -> Duration {
        self.freshness
    }
}
