//! Metrics of an operator, in the text format of Prometheus (OpenMetrics): its own beside those of the libraries it uses.
//!
//! A [`Metrics`] is where they are read. Each library registers its families there when it is first used, with
//! [`Metrics::families`]; an application adds its own with [`Metrics::register`]. `Webhooks::routes` makes one,
//! `Routes::metrics` gives it out, and an operator's `run` serves it at `/metrics` of the health listener.
//!
//! | name | labels | what |
//! |---|---|---|
//! | `portcullis_admission_requests_total` | `webhook`, `operation`, `decision` (`allow`, `deny`, `patch`, `error`), `dry_run` | reviews that were answered |
//! | `portcullis_admission_duration_seconds` | `webhook` | from the head of the request to the answer |
//! | `portcullis_admission_patch_bytes_total` | `webhook` | JSON patches sent, before base64 |
//! | `portcullis_webhook_in_flight` | `webhook` | reviews under way, from the end of the body to the answer |
//! | `portcullis_webhook_rejected_total` | `webhook`, `reason` (`not_served`, `unauthenticated`, `malformed`, `too_large`, `shed`, `timeout`, `panic`, `failed`) | calls that got no review for an answer, and failures, panics and timeouts that became denials |
//! | `portcullis_conversion_objects_total` | `kind`, `from`, `to`, `outcome` (`converted`, `flagged`, `failed`) | objects |
//! | `portcullis_conversion_duration_seconds` | `kind` | reviews, however many objects they hold |
//! | `portcullis_watch_panics_total` | `kind` | panics in what a controller has called for each change of an object |
//! | `portcullis_reconciles_total` | `controller`, `result` (`success`, `requeue`, `error`, `panic`) | reconciles that have ended |
//! | `portcullis_reconcile_duration_seconds` | `controller` | what a reconcile takes |
//! | `portcullis_reconcile_queue_depth` | `controller` | objects that are due and that no worker has taken yet |
//! | `portcullis_token_requests_total` | `controller`, `outcome` (`issued`, `failed`) | requests for a token of a controller's ServiceAccount |
//! | `portcullis_token_held` | `controller` | 1 while the controller has a token to act with |
//! | `portcullis_lease_held` | `lease` (`namespace/name`) | 1 while this replica holds it: on one of all replicas |
//! | `portcullis_lease_renew_failures_total` | `lease` | requests for it that failed |
//! | `portcullis_lease_transitions_total` | `lease` | how often it changed hands, as it says itself |
//! | `portcullis_scope_excluded_namespaces` | | namespaces that restricted operators own; cluster-wide operators only |
//! | `portcullis_scope_standing_back` | | 1 while another cluster-wide installation, which was there first, acts |
//! | `portcullis_scope_age_seconds` | | since it was last known who owns what: some seconds, or nothing is written |
//! | `portcullis_certificate_not_after_seconds` | `certificate` (`leaf`, `ca`) | when what is served, and what issues it, ends; in seconds since 1970 |
//! | `portcullis_certificate_rotation_phase` | | 0: no rotation, 1: a new CA is being published, 2: the CA before it is still trusted |
//! | `portcullis_ca_bundle_writes_total` | `object` | writes of a CA bundle: one per object and change, more where others rewrite it |
//! | `portcullis_certificate_reload_failures_total` | | rounds in which the stored certificates could not be read, repaired or served |
//!
//! `webhook` is the path that is served, since a validating and a mutating webhook may have the same name. No label
//! holds anything that a client chose.

mod own;

use std::any::{Any, TypeId};
use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

pub use own::{MetricNameError, OwnMetrics};

/// Names and values of labels.
pub type Labels = Vec<(&'static str, Cow<'static, str>)>;
/// Histograms of durations.
pub type Durations = Family<Labels, Histogram, fn() -> Histogram>;

/// The metrics of one process, or of one part of it. Cheap to clone; clones count together.
#[derive(Clone)]
pub struct Metrics {
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    registry: Registry,
    /// Families by their type, each registered once.
    families: Vec<(TypeId, Arc<dyn Any + Send + Sync>)>,
    own: OwnMetrics,
}

/// Families of metrics that a library registers together, once in each [`Metrics`]. Their names begin with `portcullis_`.
pub trait Families: Default + Send + Sync + 'static {
    /// Adds each to the registry, under its name and description.
    fn register(&self, registry: &mut Registry);
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Metrics that have counted nothing.
    pub fn new() -> Self {
        let registry = Registry::with_prefix("portcullis");
        Self { shared: Arc::new(Mutex::new(Shared { registry, families: Vec::new(), own: OwnMetrics::default() })) }
    }

    /// The families of a library, registered when they are first asked for. Ask once and keep them.
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

    /// All of them as text, as Prometheus reads it (`application/openmetrics-text; version=1.0.0`).
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

    /// Adds a metric of your own, to be read at the same place. An operator adds those that its webhooks count with
    /// `Components::metric`; this is for what a controller knows only when it runs, and for `Routes::metrics` in a process
    /// of your own.
    ///
    /// # Errors
    /// When the name cannot name a metric, is one of ours, or is taken.
    pub fn register(&self, name: &str, help: &str, metric: impl Metric) -> Result<(), MetricNameError> {
        self.lock().own.register(name, help, metric)
    }

    /// Adds those that were collected before there was a place to read them.
    ///
    /// # Errors
    /// When a name is taken.
    pub fn adopt(&self, own: OwnMetrics) -> Result<(), MetricNameError> {
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

/// One label.
pub fn label(name: &'static str, value: &str) -> Labels {
    vec![(name, Cow::Owned(value.to_owned()))]
}
