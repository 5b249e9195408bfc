//! The metrics of webhooks and conversions.

mod admission;
mod conversion;
mod route;

use portcullis_metrics::{Durations, Families, Labels};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

pub(crate) use admission::{AdmissionMetrics, Decided};
pub(crate) use conversion::{ConversionMetrics, ObjectOutcome};
pub(crate) use route::RouteMetrics;

/// Bounds of the duration histograms in seconds, from 100 µs to 10 s.
const SECONDS: [f64; 16] =
    [1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

fn durations() -> Durations {
    Durations::new_with_constructor(|| Histogram::new(SECONDS))
}

/// The metric families of admission webhooks.
struct AdmissionFamilies {
    requests: Family<Labels, Counter>,
    duration: Durations,
    patch_bytes: Family<Labels, Counter>,
}

impl Default for AdmissionFamilies {
    fn default() -> Self {
        Self { requests: Family::default(), duration: durations(), patch_bytes: Family::default() }
    }
}

impl Families for AdmissionFamilies {
    fn register(&self, registry: &mut Registry) {
        registry.register("admission_requests", "Admission reviews answered", self.requests.clone());
        let help = "Time from the head of an admission request to its answer";
        registry.register("admission_duration_seconds", help, self.duration.clone());
        let help = "Bytes of JSON patches sent, before base64";
        registry.register("admission_patch_bytes", help, self.patch_bytes.clone());
    }
}

/// The metric families of paths.
#[derive(Default)]
struct RouteFamilies {
    in_flight: Family<Labels, Gauge>,
    rejected: Family<Labels, Counter>,
}

impl Families for RouteFamilies {
    fn register(&self, registry: &mut Registry) {
        registry.register("webhook_in_flight", "Reviews in flight", self.in_flight.clone());
        let help = "Webhook calls that were not answered with a review, by reason";
        registry.register("webhook_rejected", help, self.rejected.clone());
    }
}

/// The metric families of conversions.
struct ConversionFamilies {
    objects: Family<Labels, Counter>,
    duration: Durations,
}

impl Default for ConversionFamilies {
    fn default() -> Self {
        Self { objects: Family::default(), duration: durations() }
    }
}

impl Families for ConversionFamilies {
    fn register(&self, registry: &mut Registry) {
        registry.register("conversion_objects", "Objects in conversion reviews, by outcome", self.objects.clone());
        let help = "Time from the head of a conversion request to its answer";
        registry.register("conversion_duration_seconds", help, self.duration.clone());
    }
}
