//! The metrics of a proxy.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::{Metric, Registry};

/// The metrics of one proxy, in which each of its parts registers its own. Clones are the same.
#[derive(Clone)]
pub struct Metrics(Arc<Mutex<Registry>>);

impl Metrics {
    /// Adds a metric, under `mcp_runner_` and its name.
    pub fn register(&self, name: &str, help: &str, metric: impl Metric) {
        self.registry().register(name, help, metric);
    }

    /// All of them in the OpenMetrics text format.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = encode(&mut text, &self.registry());
        text
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Registry::with_prefix("mcp_runner"))))
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}
