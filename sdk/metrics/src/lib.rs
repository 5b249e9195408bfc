//! Metrics of an operator and of the libraries that it uses, in the text format of Prometheus (OpenMetrics).
//!
//! [`Metrics`] is the registry. Each library registers its families with [`Metrics::families`] on first use; an
//! application adds its own with [`Metrics::register`]. `Routes::metrics` of `portcullis-webhook` returns the registry
//! of its routes, and an operator's `run` serves it at `/metrics` of the health listener.
//!
//! | name | labels | value |
//! |---|---|---|
//! | `portcullis_admission_requests_total` | `webhook`, `operation`, `decision` (`allow`, `deny`, `patch`, `error`), `dry_run` | reviews answered |
//! | `portcullis_admission_duration_seconds` | `webhook` | time from the head of the request to the answer |
//! | `portcullis_admission_patch_bytes_total` | `webhook` | JSON patches sent, before base64 |
//! | `portcullis_webhook_in_flight` | `webhook` | reviews in flight, from the end of the body to the answer |
//! | `portcullis_webhook_rejected_total` | `webhook`, `reason` (`not_served`, `malformed`, `too_large`, `shed`, `timeout`, `panic`, `failed`) | calls that were not answered with a review, and failures, panics and timeouts that became denials |
//! | `portcullis_conversion_objects_total` | `kind`, `from`, `to`, `outcome` (`converted`, `flagged`, `failed`, `refused`) | objects in conversion reviews |
//! | `portcullis_conversion_duration_seconds` | `kind` | time to answer a review, whatever its number of objects |
//! | `portcullis_watch_panics_total` | `kind` | panics in the functions that a controller calls for each change of a watched object |
//! | `portcullis_reconciles_total` | `controller`, `result` (`success`, `requeue`, `error`, `panic`) | finished reconciles |
//! | `portcullis_reconcile_duration_seconds` | `controller` | time of a reconcile |
//! | `portcullis_reconcile_queue_depth` | `controller` | objects waiting for a worker |
//! | `portcullis_reconciles_pending` | `controller` | objects that are due, being reconciled, or due within 10 s; 0 when the controller is idle |
//! | `portcullis_lease_held` | `lease` (`namespace/name`) | 1 while this replica holds the Lease (one replica at a time) |
//! | `portcullis_lease_renew_failures_total` | `lease` | failed requests to acquire or renew the Lease |
//! | `portcullis_lease_transitions_total` | `lease` | `spec.leaseTransitions` of the Lease |
//! | `portcullis_lease_other_installation` | `lease` | 1 while another installation of the operator holds the Lease |
//! | `portcullis_scope_excluded_namespaces` | | namespaces that restricted operators own; cluster-wide operators only |
//! | `portcullis_scope_age_seconds` | | time since the last list of who owns which namespace; it grows while nothing is reconciled |
//! | `portcullis_certificate_not_after_seconds` | `certificate` (`leaf`, `ca`) | expiry of the served certificate and of its CA, in seconds since 1970 |
//! | `portcullis_certificate_rotation_phase` | | 0: no rotation, 1: a new CA is being published, 2: the CA before it is still trusted |
//! | `portcullis_ca_bundle_writes_total` | `object` | writes of a CA bundle: one per object and change, more when another client overwrites it |
//! | `portcullis_certificate_reload_failures_total` | | failed attempts to read, repair or serve the stored certificates |
//!
//! `webhook` is the path of the webhook, since a validating and a mutating webhook may have the same name. No label has
//! a value that a client can choose.

mod own;

use std::any::{Any, TypeId};
use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

pub use own::{CustomMetrics, MetricNameError};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Label names and values of a metric.
pub type Labels = Vec<(&'static str, Cow<'static, str>)>;
/// A family of histograms of durations.
pub type Durations = Family<Labels, Histogram, fn() -> Histogram>;

/// The metrics of one process, or of one component of it. Cheap to clone; clones share the same registry.
#[derive(Clone)]
pub struct Metrics {
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    registry: Registry,
    /// Families by their type, each registered once.
    families: Vec<(TypeId, Arc<dyn Any + Send + Sync>)>,
    own: CustomMetrics,
}

/// Families of metrics that a library registers together, once in each [`Metrics`]. Their names begin with
/// `portcullis_`.
pub trait Families: Default + Send + Sync + 'static {
    /// Registers each family under its name and description.
    fn register(&self, registry: &mut Registry);
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Creates an empty registry.
    pub fn new() -> Self {
        let registry = Registry::with_prefix("portcullis");
        Self { shared: Arc::new(Mutex::new(Shared { registry, families: Vec::new(), own: CustomMetrics::default() })) }
    }

    /// Returns the families `F` of a library, and registers them on the first call. Call once and keep the result.
    pub fn families<F: Families>(&self) -> Arc<F> {
        let mut shared = self.lock();
        let known =
            shared.families.iter().find(|(of, _)| *of == TypeId::of::<F>()).map(|(_, families)| families.clone());
        if let Some(Ok(families)) = known.map(Arc::downcast) {
            return families;
        }
        let families = Arc::new(F::default());
        families.register(&mut shared.registry);
        shared.families.push((TypeId::of::<F>(), families.clone()));
        families
    }

    /// Encodes all metrics as OpenMetrics text (`application/openmetrics-text; version=1.0.0`).
    pub fn encode(&self) -> String {
        let mut text = String::new();
        let shared = self.lock();
        for registry in [&shared.registry].into_iter().chain(&shared.own.registries) {
            // Writing to a string does not fail.
            _ = encode_registry(&mut text, registry);
        }
        _ = encode_eof(&mut text);
        text
    }

    /// Registers a metric of the application. An operator registers the metrics of its webhooks with
    /// `Components::metric` of `portcullis-operator`; use this for metrics that a controller creates while it runs, and
    /// for `Routes::metrics` in a process without an operator.
    ///
    /// # Errors
    /// When the name is not a valid metric name, begins with `portcullis_`, or is taken.
    pub fn register(&self, name: &str, help: &str, metric: impl Metric) -> Result<(), MetricNameError> {
        self.lock().own.register(name, help, metric)
    }

    /// Adds metrics that were registered before this registry existed.
    ///
    /// # Errors
    /// When a name is taken.
    pub fn adopt(&self, own: CustomMetrics) -> Result<(), MetricNameError> {
        self.lock().own.adopt(own)
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// Returns labels with one entry.
pub fn label(name: &'static str, value: &str) -> Labels {
    vec![(name, Cow::Owned(value.to_owned()))]
}
