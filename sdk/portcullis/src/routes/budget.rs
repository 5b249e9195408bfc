//! Memory that many calls share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A number of bytes that calls take from and give back. Nobody waits for it: what does not fit is refused at once.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    total: usize,
    taken: AtomicUsize,
}

/// Bytes taken from a budget, given back when dropped.
#[derive(Debug)]
pub(crate) struct Share {
    of: Budget,
    bytes: usize,
}

impl Budget {
    /// A budget of this many bytes.
    pub(crate) fn of(bytes: usize) -> Self {
        Self { shared: Arc::new(Shared { total: bytes, taken: AtomicUsize::new(0) }) }
    }

    /// An empty share, to [grow](Share::grow).
    pub(crate) fn share(&self) -> Share {
        Share { of: self.clone(), bytes: 0 }
    }

    /// All that can be taken.
    pub(crate) fn total(&self) -> usize {
        self.shared.total
    }
}

impl Share {
    /// Takes more; false, and nothing taken, when there is not as much left.
    #[must_use]
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        let Shared { total, taken } = &*self.of.shared;
        let fits = |taken: usize| taken.checked_add(bytes).filter(|sum| sum <= total);
        let grown = taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok();
        if grown {
            self.bytes += bytes;
        }
        grown
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.shared.taken.fetch_sub(self.bytes, Ordering::Relaxed);
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
        drop(two);
        assert!(budget.share().grow(10));
    }
}
