//! What the reader of a request should know of the listener.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether connections came for which there was no place, and there still is none.
#[derive(Clone, Debug, Default)]
pub struct Crowded(Arc<AtomicBool>);

impl Crowded {
    /// Whether somebody waits for a place now.
    pub fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, crowded: bool) {
        self.0.store(crowded, Ordering::Relaxed);
    }
}
