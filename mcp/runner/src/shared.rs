//! The Redis that replicas of the proxy share.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use mcp_redis::Clients;

/// The pause before a Redis that has not answered is asked again.
const PAUSE: Duration = Duration::from_millis(200);

/// Whether each Redis that the document names has answered once. A proxy of which one has not is not ready: its pod would take the place of one that
/// has the right address, password and roots. One that goes away later costs calls and not readiness, as no other pod would have it.
#[derive(Debug)]
pub(crate) struct Shared {
    clients: Clients,
    met: AtomicBool,
}

impl Shared {
    pub(crate) fn new(clients: Clients) -> Self {
        Self { clients, met: AtomicBool::new(false) }
    }

    /// Asks each until it answers. The log says why one does not.
    pub(crate) async fn meet(&self) {
        for redis in self.clients.all() {
            while let Err(error) = redis.ping().await {
                tracing::debug!(%error, "the proxy waits for Redis");
                tokio::time::sleep(PAUSE).await;
            }
            tracing::info!(address = redis.address(), "Redis answers");
        }
        self.met.store(true, Relaxed);
    }

    pub(crate) fn is_met(&self) -> bool {
        self.met.load(Relaxed)
    }
}
