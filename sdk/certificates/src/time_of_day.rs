//! The time of day.

use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

/// The wall clock, by which only validity is checked. Waiting is timed by a monotonic clock.
#[derive(Clone)]
pub struct TimeOfDay(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl TimeOfDay {
    /// The machine's clock.
    pub fn system() -> Self {
        Self(Arc::new(Timestamp::now))
    }

    /// A clock with this error, as a node's may have.
    pub fn with_offset(skew: SignedDuration) -> Self {
        Self(Arc::new(move || Timestamp::now().saturating_add(skew).unwrap_or(Timestamp::MAX)))
    }

    /// The current time.
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl Default for TimeOfDay {
    /// The machine's clock.
    fn default() -> Self {
        Self::system()
    }
}

impl fmt::Debug for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TimeOfDay").field(&self.now()).finish()
    }
}
