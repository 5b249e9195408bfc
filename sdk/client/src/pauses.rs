//! Pauses between retries.

use std::time::Duration;

use tokio::time::Instant;

/// Exponential backoff: pauses double with each retry, and start again from the first after a time without retries.
#[derive(Debug)]
pub struct Pauses {
    first: Duration,
    longest: Duration,
    next: Duration,
    last: Option<Instant>,
}

impl Pauses {
    /// Creates a backoff with pauses from `first` to `longest`.
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first, last: None }
    }

    /// Returns how long to wait before the next retry, counted from `now`.
    pub fn next(&mut self, now: Instant) -> Duration {
        // Twice the longest pause without a try is quiet: what happens now has nothing to do with what happened then.
        if self.last.is_some_and(|last| now.duration_since(last) > self.longest * 2) {
            self.next = self.first;
        }
        self.last = Some(now);
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_begin_again_after_a_quiet_time() {
        let mut pauses = Pauses::new(Duration::from_secs(1), Duration::from_secs(5));
        let start = Instant::now();
        let mut at = |seconds| pauses.next(start + Duration::from_secs(seconds)).as_secs();
        assert_eq!([at(0), at(1), at(3), at(7), at(12)], [1, 2, 4, 5, 5]);
        assert_eq!(at(22), 5);
        assert_eq!(at(33), 1);
    }
}
