//! The time of day.

use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

/// What time it is: validity is judged by it, and nothing else. Waiting is timed by a clock that nobody sets.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// The machine's.
    pub fn system() -> Self {
        Self::new(Timestamp::now)
    }

    /// One that is wrong by this much, as a node's may be.
    pub fn off_by(skew: SignedDuration) -> Self {
        Self::new(move || Timestamp::now().saturating_add(skew).unwrap_or(Timestamp::MAX))
    }

    /// Any other.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// The time of day.
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clock").field(&self.now()).finish()
    }
}
