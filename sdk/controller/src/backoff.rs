//! Delays between repeated attempts.

use std::time::Duration;

/// Delays before a failed reconcile is retried, and before a write of a child that others undo is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The delay after the first failure; it doubles with each further one.
    pub min: Duration,
    /// The longest delay.
    pub max: Duration,
    /// The longest delay if the object, or something it refers to, changed during the failed reconcile.
    pub max_after_change: Duration,
}

// === impl Backoff ===

impl Default for Backoff {
    /// Delays from half a second to five minutes; five seconds after a change.
    fn default() -> Self {
        Self { min: Duration::from_millis(500), max: Duration::from_mins(5), max_after_change: Duration::from_secs(5) }
    }
}

impl Backoff {
    pub(super) fn delay(&self, failures: u32) -> Duration {
        self.min.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1).min(16))).min(self.max)
    }
}
