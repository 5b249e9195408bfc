//! Durations for which a cluster-wide operator's knowledge of others counts.

use std::time::Duration;

use crate::LeaseError;

/// The durations of a cluster-wide operator.
#[derive(Clone, Copy, Debug)]
pub struct ScopeTiming {
    pub(crate) duration: Duration,
    pub(crate) grace: Duration,
    pub(crate) freshness: Duration,
}

impl ScopeTiming {
    /// 5 s of grace, which with [`Timing::SCOPE`](crate::Timing::SCOPE) makes 30 s; 12 s of freshness, less than the 15
    /// s that a restricted operator settles.
    pub const DEFAULT: Self =
        Self { duration: Duration::from_secs(25), grace: Duration::from_secs(5), freshness: Duration::from_secs(12) };

    /// - `duration`: of a lease that states none.
    /// - `grace`: how long past a lease's duration the namespace stays with its holder; a successor needs some of it.
    /// - `freshness`: how long a list counts. Shorter than [`Timing::settle`](crate::Timing::settle) of the restricted
    ///   operators.
    ///
    /// # Errors
    /// [`LeaseError::Invalid`].
    pub fn new(duration: Duration, grace: Duration, freshness: Duration) -> Result<Self, LeaseError> {
        for (field, value) in [("duration", duration), ("grace", grace), ("freshness", freshness)] {
            if value.is_zero() {
                return Err(LeaseError::zero(field));
            }
        }
        Ok(Self { duration, grace, freshness })
    }

    /// The shortest time between two lists while the view is used, so that one may fail and the view stays fresh.
    pub(crate) fn confirm(&self) -> Duration {
        self.freshness / 2
    }

    /// The shortest time between two attempts, and how long one may take.
    pub(crate) fn pause(&self) -> Duration {
        self.freshness / 3
    }
}
