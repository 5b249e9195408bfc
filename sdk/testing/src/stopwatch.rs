//! Upper bounds on time, on machines that stall.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The interval at which its thread asks to run.
const TICK: Duration = Duration::from_millis(10);

/// Measures time without the time in which the machine stalled.
///
/// A test that asserts "within two seconds" on wall time fails whenever its machine pauses for two seconds, although the
/// code keeps its promise. A thread of the stopwatch asks to run every 10 ms; the time by which it runs late does not
/// count as [`elapsed`](Self::elapsed).
///
/// It is for upper bounds. Assert a lower bound ("not before") on [`Instant`], and wait for a condition with
/// [`wait_until`](crate::wait_until) where the time is not what is promised.
///
/// ```
/// use std::time::Duration;
///
/// let asked = portcullis_testing::Stopwatch::start();
/// // What is promised to take no longer than a second.
/// assert!(asked.elapsed() < Duration::from_secs(1));
/// ```
#[derive(Debug)]
pub struct Stopwatch {
    started: Instant,
    ticks: Arc<Mutex<Ticks>>,
    /// Dropped with the stopwatch, which ends the thread.
    _running: Sender<()>,
}

/// When the thread is to run next, and by how much it was late until now.
#[derive(Clone, Copy, Debug)]
struct Ticks {
    due: Instant,
    lost: Duration,
}

impl Stopwatch {
    /// Starts to measure.
    pub fn start() -> Self {
        let started = Instant::now();
        let ticks = Arc::new(Mutex::new(Ticks { due: started + TICK, lost: Duration::ZERO }));
        let (running, ended) = channel();
        let of_thread = Arc::clone(&ticks);
        std::thread::spawn(move || tick(&of_thread, &ended));
        Self { started, ticks, _running: running }
    }

    /// When it was started.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// The time since the start, without the time that was [`lost`](Self::lost).
    pub fn elapsed(&self) -> Duration {
        let now = Instant::now();
        now.duration_since(self.started).saturating_sub(locked(&self.ticks).lost_at(now))
    }

    /// The time for which the machine has stalled since the start, all stalls together. Add it to a bound on a time
    /// that something else has measured, more than once where several processes do one after another what takes that
    /// time: on a busy machine they stall at different moments.
    pub fn lost(&self) -> Duration {
        locked(&self.ticks).lost_at(Instant::now())
    }
}

impl Ticks {
    /// The time lost until `now`: a stall also counts before the thread has run after it.
    fn lost_at(&self, now: Instant) -> Duration {
        self.lost + now.saturating_duration_since(self.due)
    }

    fn tick(&mut self, now: Instant) {
        *self = Self { due: now + TICK, lost: self.lost_at(now) };
    }
}

fn tick(ticks: &Mutex<Ticks>, ended: &Receiver<()>) {
    while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
        locked(ticks).tick(Instant::now());
    }
}

fn locked(ticks: &Mutex<Ticks>) -> MutexGuard<'_, Ticks> {
    ticks.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_lost_once_however_soon_after_it_one_looks() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut ticks = Ticks { due: at(10), lost: Duration::ZERO };
        for (now, ticks_then, lost) in [
            (9, false, 0),
            (10, true, 0),
            (15, false, 0),
            (21, true, 1),
            // Two seconds.
            (2031, false, 2001),
            (2032, true, 2002),
            (2042, true, 2002),
            (3052, true, 3002),
        ] {
            assert_eq!(ticks.lost_at(at(now)), Duration::from_millis(lost), "after {now} ms");
            if ticks_then {
                ticks.tick(at(now));
            }
        }
    }

    #[test]
    fn what_passed_is_elapsed_or_lost() {
        let watch = Stopwatch::start();
        while watch.elapsed() < Duration::from_millis(50) {
            std::thread::yield_now();
        }
        assert!(watch.started().elapsed() >= Duration::from_millis(50));
        assert!(watch.elapsed() + watch.lost() >= Duration::from_millis(50));
    }
}
