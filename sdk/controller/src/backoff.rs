//! Delays between repeated attempts.

use std::time::Duration;

/// Delays before a failed reconcile is retried, and before a write of a child that others undo is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The delay after the first failure; it doubles with each further one.
    pub first: Duration,
    /// The longest delay.
    pub last: Duration,
    /// The longest delay if the object, or something it refers to, changed during the failed reconcile.
    pub after_change: Duration,
}

// === impl Backoff ===

impl Default for Backoff {
    /// Delays from half a second to five minutes; five seconds after a change.
    fn default() -> Self {
        Self { first: Duration::from_millis(500), last: Duration::from_mins(5), after_change: Duration::from_secs(5) }
    }
}

impl Backoff {
    pub(super) fn delay(&self, failures: u32) -> Duration {
        self.first.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1).min(16))).min(self.last)
    }
}
