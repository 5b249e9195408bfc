//! Failures of the export: counted, and told in the log now and then.

use std::time::{Duration, Instant};

use mcp_middleware::Metrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use super::signal::Signal;

/// The time between two lines of the log that tell of failures.
const TELL_AGAIN: Duration = Duration::from_mins(5);

/// The counters of failures, and the collector's name in the log.
pub(super) struct Report {
    host: String,
    failures: Family<Labels, Counter>,
}

/// The failures of one kind of telemetry.
pub(super) struct SignalReport {
    signal: Signal,
    host: String,
    failures: Counter,
    /// The time at which the log last told of a failure.
    told: Option<Instant>,
    /// Whether the log is to tell of the next success.
    is_failing: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    signal: &'static str,
}

impl Report {
    /// Counts in `metrics`, from nothing.
    pub(super) fn new(host: &str, metrics: &Metrics) -> Self {
        let failures = Family::default();
        let help = "Exports of telemetry that the collector did not take";
        metrics.register("telemetry_export_failures", help, Family::clone(&failures));
        Self { host: host.to_owned(), failures }
    }

    pub(super) fn of(&self, signal: Signal) -> SignalReport {
        let failures = self.failures.get_or_create_owned(&Labels { signal: signal.as_str() });
        SignalReport { signal, host: self.host.clone(), failures, told: None, is_failing: false }
    }
}

impl SignalReport {
    pub(super) fn failed(&mut self, problem: &str) {
        self.failures.inc();
        if self.told.is_some_and(|told| told.elapsed() < TELL_AGAIN) {
            return;
        }
        (self.told, self.is_failing) = (Some(Instant::now()), true);
        tracing::warn!(
            signal = self.signal.as_str(),
            collector = self.host,
            problem,
            failures = self.failures.get(),
            "telemetry cannot be exported; calls go on, and it is tried again"
        );
    }

    pub(super) fn succeeded(&mut self) {
        if std::mem::take(&mut self.is_failing) {
            tracing::info!(signal = self.signal.as_str(), collector = self.host, "telemetry is exported again");
        }
    }
}
