//! What controllers count.

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

/// How a reconcile ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reconciled {
    /// A change wakes the object.
    Success,
    /// It is reconciled again after a while.
    Requeue,
    /// It is tried again.
    Error,
    /// The same.
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

/// Of all controllers.
pub(crate) struct ReconcileFamilies {
    reconciles: Family<Labels, Counter>,
    duration: Durations,
    depths: Depths,
}

/// The handles of one controller.
#[derive(Clone, Debug)]
pub(crate) struct ReconcileMetrics {
    by_result: [Counter; 4],
    duration: Histogram,
}

/// How long the queue of each controller is, asked for when `/metrics` is read.
#[derive(Clone, Default)]
struct Depths(Arc<Mutex<BTreeMap<String, Depth>>>);

type Depth = Box<dyn Fn() -> Option<usize> + Send + Sync>;

impl Default for ReconcileFamilies {
    fn default() -> Self {
        let duration = Durations::new_with_constructor(|| Histogram::new(SECONDS));
        Self { reconciles: Family::default(), duration, depths: Depths::default() }
    }
}

impl Families for ReconcileFamilies {
    fn register(&self, registry: &mut Registry) {
        registry.register("reconciles", "Reconciles that have ended, by result", self.reconciles.clone());
        registry.register("reconcile_duration_seconds", "Time that a reconcile takes", self.duration.clone());
        registry.register_collector(Box::new(self.depths.clone()));
    }
}

impl ReconcileFamilies {
    /// What the queue of a controller counts; `depth` says how many objects are due, as long as there is a queue.
    pub(crate) fn of(&self, controller: &str, depth: Depth) -> ReconcileMetrics {
        self.depths.0.lock().unwrap_or_else(PoisonError::into_inner).insert(controller.to_owned(), depth);
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

impl fmt::Debug for Depths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Depths").finish_non_exhaustive()
    }
}

impl Collector for Depths {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let depths = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let depths: Vec<_> = depths.iter().filter_map(|(controller, depth)| Some((controller, depth()?))).collect();
        if depths.is_empty() {
            return Ok(());
        }
        let help = "Objects that wait for a reconcile that is due.";
        let kind = ConstGauge::new(0_i64).metric_type();
        let mut family = encoder.encode_descriptor("reconcile_queue_depth", help, None, kind)?;
        for (controller, depth) in depths {
            let depth = ConstGauge::new(i64::try_from(depth).unwrap_or(i64::MAX));
            depth.encode(family.encode_family(&[("controller", controller.as_str())])?)?;
        }
        Ok(())
    }
}

/// Of all watches.
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
