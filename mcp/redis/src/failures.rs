//! Commands that brought no answer, for the log and for metrics.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use mcp_middleware::Metrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use crate::error::RedisError;

/// Failures of one use of Redis. Each is counted, and told where none was for a while.
#[derive(Debug)]
pub(crate) struct Failures {
    /// The time between two lines of the log.
    quiet: Duration,
    errors: Family<OfKind, Counter>,
    told: Mutex<Option<Instant>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfKind {
    error: &'static str,
}

impl Failures {
    /// None yet; each is told that comes so long after the last one that was.
    pub(crate) fn told_each(quiet: Duration) -> Self {
        Self { quiet, errors: Family::default(), told: Mutex::default() }
    }

    pub(crate) fn register(&self, metrics: &Metrics, name: &str, help: &str) {
        // An alert needs the series before the first failure.
        for error in RedisError::KINDS {
            self.errors.get_or_create_owned(&OfKind { error });
        }
        metrics.register(name, help, self.errors.clone());
    }

    /// Notes that `error` had this `effect`.
    pub(crate) fn note(&self, error: &RedisError, effect: &'static str) {
        self.errors.get_or_create_owned(&OfKind { error: error.kind() }).inc();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let quiet = self.quiet;
        if told.is_none_or(|told| told.elapsed() >= quiet) {
            *told = Some(Instant::now());
            tracing::error!(%error, "{effect}; further failures within {quiet:?} are counted and not told");
        }
    }
}
