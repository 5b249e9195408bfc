//! Counts and logs conversions. The log has no values of an object, except those in a converter's own error.

use std::sync::OnceLock;
use std::time::Duration;

use portcullis_convert::{Converted, Engine};
use prometheus_client::metrics::counter::Counter;
use tracing::{debug, error, warn};

use crate::metrics::{ConversionMetrics, ObjectOutcome};
use portcullis_metrics::Metrics;

/// Lines about the bad objects of one review; a kind whose objects are all bad must not fill a disk.
const LINES: usize = 100;
const OUTCOMES: [ObjectOutcome; 4] =
    [ObjectOutcome::Converted, ObjectOutcome::Flagged, ObjectOutcome::Failed, ObjectOutcome::Refused];
/// The version of an object that could not be read.
const UNKNOWN: &str = "";

/// The records of one kind.
pub(super) struct Records {
    kind: String,
    /// The versions of the engine, and the unknown one.
    versions: Vec<String>,
    /// The counters from each version to each, by outcome; made when the first object is counted.
    objects: Vec<OnceLock<Counter>>,
    metrics: ConversionMetrics,
}

impl Records {
    pub(super) fn new(engine: &Engine, metrics: &Metrics) -> Self {
        let versions: Vec<_> = engine.versions().chain([UNKNOWN]).map(str::to_owned).collect();
        let objects = vec![OnceLock::new(); versions.len() * versions.len() * OUTCOMES.len()];
        Self {
            kind: engine.kind().to_owned(),
            versions,
            objects,
            metrics: ConversionMetrics::new(metrics, engine.kind()),
        }
    }

    /// A review that is answered with objects: one line at debug level, and one at warn level for each bad object.
    pub(super) fn converted(&self, to: &str, objects: &[Converted], threads: usize, took: Duration) {
        let mut flagged = 0;
        for Converted { from, to, namespace, name, problem, partial, .. } in objects {
            // A partial object, which holds some managers' fields, is no object of its own that a user could correct.
            let Some(problem) = problem.as_ref().filter(|_| !partial) else {
                self.count(from, to, ObjectOutcome::Converted);
                continue;
            };
            self.count(from, to, ObjectOutcome::Flagged);
            flagged += 1;
            if flagged <= LINES {
                let (path, reason, error) = (&*problem.path, &*problem.message, problem.error.as_deref());
                warn!(
                    kind = self.kind,
                    namespace,
                    name,
                    from,
                    to,
                    path,
                    reason,
                    error,
                    "object converted only in part; its problem annotation says why"
                );
            }
        }
        if flagged > LINES {
            let more = flagged - LINES;
            warn!(kind = self.kind, to, more, "more objects of this review converted only in part");
        }
        self.metrics.took(took);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        debug!(kind = self.kind, to, objects = objects.len(), flagged, threads, micros, "converted objects");
    }

    /// A review that is answered with a failure: no list of the kind can be read as long as the object is there.
    pub(super) fn failed(&self, from: &str, to: &str, reason: &str, error: Option<&str>, took: Duration) {
        self.count(from, to, ObjectOutcome::Failed);
        self.metrics.took(took);
        error!(kind = self.kind, from, to, reason, error, "conversion failed, and with it the whole review");
    }

    /// A review that is answered with a failure because the object would be stored without data: no list is concerned.
    pub(super) fn refused(&self, from: &str, to: &str, reason: &str, took: Duration) {
        self.count(from, to, ObjectOutcome::Refused);
        self.metrics.took(took);
        warn!(kind = self.kind, from, to, reason, "write refused, since data of the object would be lost");
    }

    fn count(&self, from: &str, to: &str, outcome: ObjectOutcome) {
        let unknown = self.versions.len() - 1;
        let index = |version: &str| self.versions.iter().position(|known| known == version).unwrap_or(unknown);
        let (from, to) = (index(from), index(to));
        let cell = (from * self.versions.len() + to) * OUTCOMES.len()
            + OUTCOMES.iter().position(|o| *o == outcome).unwrap_or(0);
        let (Some(cell), Some(from), Some(to)) =
            (self.objects.get(cell), self.versions.get(from), self.versions.get(to))
        else {
            return;
        };
        cell.get_or_init(|| self.metrics.objects(from, to, outcome)).inc();
    }
}
