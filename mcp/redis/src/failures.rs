//! Commands that brought no answer, for the log and for metrics.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use mcp_middleware::Metrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use crate::error::RedisError;

/// The time between two lines of the log.
const QUIET: Duration = Duration::from_secs(10);

/// Failures of one use of Redis. Each is counted, and one in [`QUIET`] is told.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    errors: Family<OfKind, Counter>,
    told: Mutex<Option<Instant>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfKind {
    error: &'static str,
}

impl Failures {
    pub(crate) fn register(&self, metrics: &Metrics, name: &str, help: &str) {
        metrics.register(name, help, self.errors.clone());
    }

    /// Notes that `error` had this `effect`.
    pub(crate) fn note(&self, error: &RedisError, effect: &'static str) {
        self.errors.get_or_create_owned(&OfKind { error: error.kind() }).inc();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_none_or(|told| told.elapsed() >= QUIET) {
            *told = Some(Instant::now());
            tracing::error!(%error, "{effect}; further failures within {QUIET:?} are counted and not told");
        }
    }
}
