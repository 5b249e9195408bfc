//! The time of this crate: a monotonic clock of this process, and a wall clock that is only written into Leases.

use std::fmt::Debug;
use std::ops::Add;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;

/// A point on the monotonic clock of this process: the time since an arbitrary origin.
///
/// It can be compared with other moments of the same clock and with nothing else, which is why no timestamp that
/// another process wrote can move an expiry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Moment(Duration);

impl Moment {
    /// The moment `elapsed` after the clock's origin.
    pub(crate) const fn since_origin(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    /// The time since `earlier`; zero if it is in the future.
    #[must_use]
    pub(crate) fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    /// Later by this much; the end of time when that is past what can be counted.
    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(by))
    }
}

/// The clock of a driver. Tests use one that they can stop and skew.
pub(crate) trait Clock: Debug + Send + Sync + 'static {
    /// Now, monotonic. Every decision uses this one.
    fn now(&self) -> Moment;

    /// Now, by the wall clock, for `acquireTime` and `renewTime`. People and other implementations read them; this
    /// crate never does.
    fn wall(&self) -> Timestamp;

    /// Waits until `now` has reached `until`.
    fn sleep_until(&self, until: Moment) -> BoxFuture<'static, ()>;
}

/// The clock of the machine.
///
/// Its monotonic part does not advance while the machine is suspended, or the virtual machine is stopped: after that, a
/// holder believes that it holds until its next renewal, at most for the rest of its deadline. Epochs are the
/// protection against that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SystemClock {
    origin: tokio::time::Instant,
}

impl SystemClock {
    /// A clock with its origin now.
    pub(crate) fn new() -> Self {
        Self { origin: tokio::time::Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Moment {
        Moment(self.origin.elapsed())
    }

    fn wall(&self) -> Timestamp {
        Timestamp::now()
    }

    fn sleep_until(&self, until: Moment) -> BoxFuture<'static, ()> {
        // A moment past what tokio can count is never reached; it sleeps for some thirty years.
        let pause = until.since(self.now());
        Box::pin(tokio::time::sleep(pause))
    }
}
