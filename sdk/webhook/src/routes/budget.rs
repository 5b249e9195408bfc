//! Limits that many calls share: of memory, and of concurrency.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// A number of bytes, or of calls, that calls take from and give back. No call waits for it: what does not fit is
/// refused at once.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    total: usize,
    taken: AtomicUsize,
    made: Instant,
    /// When something was last refused, in milliseconds since it was made; 0 for never.
    refused: AtomicU64,
}

/// The time after a refusal for which a budget counts as short.
const SHORT: Duration = Duration::from_secs(1);

/// A part of a budget, given back when dropped.
#[derive(Debug)]
pub(crate) struct Share {
    of: Budget,
    amount: usize,
}

impl Budget {
    /// A budget of this many.
    pub(crate) fn of(total: usize) -> Self {
        let (taken, refused) = (AtomicUsize::new(0), AtomicU64::new(0));
        Self { shared: Arc::new(Shared { total, taken, made: Instant::now(), refused }) }
    }

    /// An empty share, to [grow](Share::grow).
    pub(crate) fn share(&self) -> Share {
        Share { of: self.clone(), amount: 0 }
    }

    /// Whether something was refused a moment ago: a call that holds a share without need should give it back.
    pub(crate) fn short(&self, now: Instant) -> bool {
        match self.shared.refused.load(Ordering::Relaxed) {
            0 => false,
            refused => now < self.shared.made + Duration::from_millis(refused) + SHORT,
        }
    }

    /// Whether there is nothing left.
    pub(crate) fn exhausted(&self) -> bool {
        self.shared.taken.load(Ordering::Relaxed) >= self.shared.total
    }
}

impl Share {
    /// Takes more; false, and nothing taken, when there is not as much left.
    #[must_use]
    pub(crate) fn grow(&mut self, amount: usize) -> bool {
        let Shared { total, taken, made, refused } = &*self.of.shared;
        let fits = |taken: usize| taken.checked_add(amount).filter(|sum| sum <= total);
        let grown = taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok();
        if grown {
            self.amount += amount;
        } else {
            let now = u64::try_from(made.elapsed().as_millis()).unwrap_or(u64::MAX);
            refused.store(now.max(1), Ordering::Relaxed);
        }
        grown
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.shared.taken.fetch_sub(self.amount, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_never_overdrawn_and_comes_back_whole() {
        let budget = Budget::of(10);
        let (mut one, mut two) = (budget.share(), budget.share());
        assert!(one.grow(6) && !two.grow(5) && two.grow(4) && !one.grow(1) && !two.grow(usize::MAX));
        drop(one);
        assert!(!two.grow(7) && two.grow(6));
        assert!(budget.short(Instant::now()) && !budget.short(Instant::now() + 2 * SHORT));
        assert!(budget.exhausted());
        drop(two);
        assert!(budget.share().grow(10));
    }
}
