//! The metrics of controllers.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use portcullis_metrics::{Durations, Families, Labels, Metrics, label};

/// Bounds of the durations in seconds: a reconcile may take minutes.
const SECONDS: [f64; 12] = [1e-3, 5e-3, 1e-2, 5e-2, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0];

/// The outcome of a reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reconciled {
    /// The object waits for a change.
    Success,
    /// It is reconciled again after a while.
    Requeue,
    /// It failed and is retried.
    Error,
    /// It panicked and is retried.
    Panic,
}

impl Reconciled {
    const ALL: [Self; 4] = [Self::Success, Self::Requeue, Self::Error, Self::Panic];

    fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Requeue => "requeue",
            Self::Error => "error",
            Self::Panic => "panic",
        }
    }
}

/// The metric families of reconciles, for all controllers.
pub(crate) struct ReconcileFamilies {
    reconciles: Family<Labels, Counter>,
    duration: Durations,
    backlogs: Backlogs,
}

/// The handles of one controller.
#[derive(Clone, Debug)]
pub(crate) struct ReconcileMetrics {
    by_result: [Counter; 4],
    duration: Histogram,
}

/// The work that a controller has yet to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backlog {
    /// Objects that are due and wait for a worker.
    pub(crate) due: usize,
    /// Objects that are due, being reconciled or due soon; at least one while more may be enqueued.
    pub(crate) pending: usize,
}

/// The backlog of each controller, computed when `/metrics` is read.
#[derive(Clone, Default)]
struct Backlogs(Arc<Mutex<BTreeMap<String, Asked>>>);

type Asked = Box<dyn Fn() -> Option<Backlog> + Send + Sync>;

impl Default for ReconcileFamilies {
    fn default() -> Self {
        let duration = Durations::new_with_constructor(|| Histogram::new(SECONDS));
        Self { reconciles: Family::default(), duration, backlogs: Backlogs::default() }
    }
}

impl Families for ReconcileFamilies {
    fn register(&self, registry: &mut Registry) {
        registry.register("reconciles", "Reconciles that have ended, by result", self.reconciles.clone());
        registry.register("reconcile_duration_seconds", "Time that a reconcile takes", self.duration.clone());
        registry.register_collector(Box::new(self.backlogs.clone()));
    }
}

impl ReconcileFamilies {
    /// Makes the handles of a controller's metrics; `backlog` counts its pending work while there is a queue.
    pub(crate) fn of(&self, controller: &str, backlog: Asked) -> ReconcileMetrics {
        self.backlogs.0.lock().unwrap_or_else(PoisonError::into_inner).insert(controller.to_owned(), backlog);
        let by_result = Reconciled::ALL.map(|result| {
            let controller = ("controller", Cow::Owned(controller.to_owned()));
            self.reconciles.get_or_create_owned(&vec![controller, ("result", Cow::Borrowed(result.as_str()))])
        });
        ReconcileMetrics { by_result, duration: self.duration.get_or_create_owned(&label("controller", controller)) }
    }
}

impl ReconcileMetrics {
    /// Counts one reconcile.
    pub(crate) fn count(&self, result: Reconciled, took: Duration) {
        self.by_result[result as usize].inc();
        self.duration.observe(took.as_secs_f64());
    }
}

impl fmt::Debug for Backlogs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backlogs").finish_non_exhaustive()
    }
}

impl Collector for Backlogs {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all: Vec<_> = all.iter().filter_map(|(controller, backlog)| Some((controller, backlog()?))).collect();
        if all.is_empty() {
            return Ok(());
        }
        let gauge = |objects: usize| ConstGauge::new(i64::try_from(objects).unwrap_or(i64::MAX));
        let help = "Objects that wait for a reconcile that is due.";
        let mut family = encoder.encode_descriptor("reconcile_queue_depth", help, None, gauge(0).metric_type())?;
        for (controller, Backlog { due, .. }) in &all {
            gauge(*due).encode(family.encode_family(&[("controller", controller.as_str())])?)?;
        }
        let help = "Objects that are due, being reconciled, or due within 10 seconds.";
        let mut family = encoder.encode_descriptor("reconciles_pending", help, None, gauge(0).metric_type())?;
        for (controller, Backlog { pending, .. }) in &all {
            gauge(*pending).encode(family.encode_family(&[("controller", controller.as_str())])?)?;
        }
        Ok(())
    }
}

/// The metric families of watches.
#[derive(Default)]
struct WatchFamilies {
    panics: Family<Labels, Counter>,
}

impl Families for WatchFamilies {
    fn register(&self, registry: &mut Registry) {
        registry.register("watch_panics", "Panics in callbacks of watches; the watch goes on", self.panics.clone());
    }
}

/// Counts panics in callbacks of the watches of a kind.
pub(crate) fn watch_panics(metrics: &Metrics, kind: &str) -> Counter {
    metrics.families::<WatchFamilies>().panics.get_or_create_owned(&label("kind", kind))
}
