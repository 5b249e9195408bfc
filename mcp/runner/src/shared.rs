//! The Redis that replicas of the proxy share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use mcp_middleware::Metrics;
use mcp_redis::{Clients, ConfigError, RedisSessions, SessionOptions};
use mcp_runconfig::{RunConfig, SessionRedis};
use mcp_store::{Limits, MemorySessions, SessionStore};

/// The pause before a Redis that has not answered is asked again.
const PAUSE: Duration = Duration::from_millis(200);

/// The servers that the document names, and whether each has answered once. A proxy of which one has not is not ready: its pod would take the place of
/// one that has the right address, password and roots. One that goes away later costs calls and not readiness, as no other pod would have it.
#[derive(Debug)]
pub(crate) struct Shared {
    clients: Clients,
    metrics: Metrics,
    met: AtomicBool,
}

impl Shared {
    pub(crate) fn new(clients: Clients, metrics: Metrics) -> Self {
        Self { clients, metrics, met: AtomicBool::new(false) }
    }

    /// The sessions of a server that HTTP leads to, which live for `ttl` without being used.
    pub(crate) fn sessions(&self, config: &RunConfig, ttl: Duration) -> Result<Arc<dyn SessionStore>, ConfigError> {
        let Some(settings) = session_redis(config) else { return Ok(Arc::new(MemorySessions::new(Limits::new(ttl)))) };
        let mut options = SessionOptions::new(ttl);
        if !settings.key_prefix.is_empty() {
            options.key_prefix.clone_from(&settings.key_prefix);
        }
        let sessions = RedisSessions::new(self.clients.of(settings)?, options)?;
        sessions.register(&self.metrics);
        Ok(Arc::new(sessions))
    }

    /// Asks each server until it answers. The log says why one does not.
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

/// The Redis that the document names for sessions.
pub(crate) fn session_redis(config: &RunConfig) -> Option<&SessionRedis> {
    config.scaling_config.as_ref()?.session_redis.as_ref()
}
