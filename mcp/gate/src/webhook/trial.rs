//! The calls of a webhook that is tried.

use std::sync::Arc;

use mcp_middleware::{Running, Shadow};
use mcp_store::{Bound, Shares};

/// The memory for the calls of one shadow that are under way, in all and of each client, in bytes.
const LIMIT: usize = 16 << 20;
const LIMIT_OF_CLIENT: usize = 4 << 20;
/// A webhook's calls that are only tried.
pub(super) struct Trial {
    pub(super) shadow: Shadow,
    pub(super) calls: Arc<Shares>,
    pub(super) running: Running,
}

impl Trial {
    pub(super) fn new(shadow: Shadow) -> Self {
        Self { shadow, calls: Shares::new(LIMIT, LIMIT_OF_CLIENT), running: Running::default() }
    }

    pub(super) fn bound(&self, name: &'static str) -> Bound {
        self.calls.bound(name)
    }
}
