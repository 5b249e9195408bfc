//! The metrics of a proxy.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::{Metric, Registry};

/// The metrics of one proxy, in which each of its parts registers its own. Clones are the same.
#[derive(Clone, Default)]
pub struct Metrics(Arc<Mutex<Registry>>);

impl Metrics {
    /// Adds a metric, under `mcp_runner_` and its name.
    pub fn register(&self, name: &str, help: &str, metric: impl Metric) {
        self.registry().register(format!("mcp_runner_{name}"), help, metric);
    }

    /// Adds metrics that are collected when they are read, under the names that `collector` gives them.
    pub fn register_collector(&self, collector: impl Collector) {
        self.registry().register_collector(Box::new(collector));
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

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}
