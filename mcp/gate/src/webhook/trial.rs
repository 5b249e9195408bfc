//! The calls of a webhook that is tried.

use std::sync::Arc;
use std::time::Duration;

use mcp_middleware::{Running, Shadow};
use mcp_store::{Bound, Shares};
use tokio::sync::watch;
use tokio::time::timeout;

/// The memory for the calls of one shadow that are under way, in all and of each client, in bytes.
const LIMIT: usize = 16 << 20;
const LIMIT_OF_CLIENT: usize = 4 << 20;
/// The time for the last calls when the proxy ends.
const LAST: Duration = Duration::from_secs(2);

/// A webhook's calls that are only tried.
pub(super) struct Trial {
    pub(super) shadow: Shadow,
    pub(super) calls: Arc<Shares>,
    pub(super) running: Running,
    /// Whether nobody waits for an answer any more.
    over: watch::Sender<bool>,
}

impl Trial {
    pub(super) fn new(shadow: Shadow) -> Self {
        Self {
            shadow,
            calls: Shares::new(LIMIT, LIMIT_OF_CLIENT),
            running: Running::default(),
            over: watch::Sender::new(false),
        }
    }

    pub(super) fn bound(&self, name: &'static str) -> Bound {
        self.calls.bound(name)
    }

    /// Waits until nobody waits for an answer any more.
    pub(super) fn over(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut over = self.over.subscribe();
        async move { drop(over.wait_for(|over| *over).await) }
    }

    /// Ends the calls that are under way, after a time: audit and telemetry have a record of each request that waits for them.
    pub(super) async fn close(&self) {
        if timeout(LAST, self.running.none()).await.is_err() {
            self.over.send_replace(true);
            self.running.none().await;
        }
    }
}
