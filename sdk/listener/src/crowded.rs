//! Whether new connections wait for a place on the listener.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that tells whether new connections wait because the listener is at its connection limit.
#[derive(Clone, Debug, Default)]
pub struct Crowded(Arc<AtomicBool>);

impl Crowded {
    /// Returns whether new connections wait now.
    pub fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, crowded: bool) {
        self.0.store(crowded, Ordering::Relaxed);
    }
}
