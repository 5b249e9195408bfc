//! Metrics of webhooks and controllers, in the text format of Prometheus (OpenMetrics).
//!
//! [`Webhooks::routes`](crate::webhooks::Webhooks::routes) makes a set of its own; [`Routes::metrics`] gives it out, and
//! `run` serves it at `/metrics` of the health listener.
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
//!
//! Your own are beside them: [`Parts::metric`](crate::operator::Parts::metric).
//!
//! [`Routes::metrics`]: crate::webhooks::Routes::metrics

mod admission;
mod conversion;
mod own;
mod reconcile;
mod route;
mod tokens;

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

use crate::certificates::CertificateMetrics;
use crate::scopes::ScopeMetrics;
pub(crate) use admission::{AdmissionMetrics, Decided};
pub(crate) use conversion::{ConversionMetrics, ObjectOutcome};
pub use own::MetricNameError;
pub(crate) use own::OwnMetrics;
use reconcile::ReconcileFamilies;
pub(crate) use reconcile::{ReconcileMetrics, Reconciled};
pub(crate) use route::RouteMetrics;
use tokens::TokenFamilies;
pub(crate) use tokens::TokenMetrics;

/// Bounds of the duration histograms in seconds, from 100 µs to 10 s.
const SECONDS: [f64; 16] =
    [1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Names and values of labels.
type Labels = Vec<(&'static str, Cow<'static, str>)>;
/// Histograms of durations.
type Durations = Family<Labels, Histogram, fn() -> Histogram>;

/// The metrics of one set of webhooks, and of what runs beside them. Cheap to clone; clones count together.
#[derive(Clone)]
pub struct Metrics {
    families: Arc<Families>,
    own: Arc<Mutex<OwnMetrics>>,
}

struct Families {
    registry: Registry,
    admission_requests: Family<Labels, Counter>,
    admission_duration: Durations,
    admission_patch_bytes: Family<Labels, Counter>,
    in_flight: Family<Labels, Gauge>,
    rejected: Family<Labels, Counter>,
    conversion_objects: Family<Labels, Counter>,
    conversion_duration: Durations,
    watch_panics: Family<Labels, Counter>,
    reconciles: ReconcileFamilies,
    tokens: TokenFamilies,
    certificates: CertificateMetrics,
    scopes: ScopeMetrics,
}

impl Metrics {
    /// Metrics that have counted nothing.
    pub(crate) fn new() -> Self {
        let durations = || Durations::new_with_constructor(|| Histogram::new(SECONDS));
        let mut families = Families {
            registry: Registry::with_prefix("portcullis"),
            admission_requests: Family::default(),
            admission_duration: durations(),
            admission_patch_bytes: Family::default(),
            in_flight: Family::default(),
            rejected: Family::default(),
            conversion_objects: Family::default(),
            conversion_duration: durations(),
            watch_panics: Family::default(),
            reconciles: ReconcileFamilies::default(),
            tokens: TokenFamilies::default(),
            certificates: CertificateMetrics::default(),
            scopes: ScopeMetrics::default(),
        };
        let registry = &mut families.registry;
        registry.register("admission_requests", "Admission reviews answered", families.admission_requests.clone());
        registry.register(
            "admission_duration_seconds",
            "Time from the head of an admission request to its answer",
            families.admission_duration.clone(),
        );
        registry.register(
            "admission_patch_bytes",
            "Bytes of JSON patches sent, before base64",
            families.admission_patch_bytes.clone(),
        );
        registry.register("webhook_in_flight", "Reviews under way", families.in_flight.clone());
        registry.register(
            "webhook_rejected",
            "Webhook calls that got no review for an answer, by reason",
            families.rejected.clone(),
        );
        registry.register(
            "conversion_objects",
            "Objects in conversion reviews, by outcome",
            families.conversion_objects.clone(),
        );
        registry.register(
            "conversion_duration_seconds",
            "Time from the head of a conversion request to its answer",
            families.conversion_duration.clone(),
        );
        let help = "Panics in callbacks of watches; the watch goes on";
        registry.register("watch_panics", help, families.watch_panics.clone());
        families.reconciles.register(registry);
        families.tokens.register(registry);
        families.certificates.register(registry);
        families.scopes.register(registry);
        Self { families: Arc::new(families), own: Arc::default() }
    }

    /// All of them as text, as Prometheus reads it (`application/openmetrics-text; version=1.0.0`).
    pub fn encode(&self) -> String {
        let mut text = String::new();
        let own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        for registry in [&self.families.registry].into_iter().chain(&own.registries) {
            // Writing to a string does not fail.
            _ = encode_registry(&mut text, registry);
        }
        _ = encode_eof(&mut text);
        text
    }

    /// Adds a metric of your own, to be read at the same place. An operator adds those that its webhooks count with
    /// [`Parts::metric`](crate::operator::Parts::metric); this is for what a controller knows only when it runs, and for
    /// [`Routes::metrics`](crate::webhooks::Routes::metrics) in a process of your own.
    ///
    /// # Errors
    /// When the name cannot name a metric, is one of ours, or is taken.
    pub fn register(&self, name: &str, help: &str, metric: impl Metric) -> Result<(), MetricNameError> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner).register(name, help, metric)
    }

    /// Adds those of an operator's parts.
    pub(crate) fn adopt(&self, own: OwnMetrics) -> Result<(), MetricNameError> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner).adopt(own)
    }

    /// What the certificates count.
    pub(crate) fn certificates(&self) -> CertificateMetrics {
        self.families.certificates.clone()
    }

    /// Counts panics in callbacks of the watches of a kind.
    pub(crate) fn watch_panics(&self, kind: &str) -> Counter {
        self.families.watch_panics.get_or_create_owned(&label("kind", kind))
    }

    /// What the queue of a controller counts; `depth` says how many objects are due, as long as there is a queue.
    pub(crate) fn reconciles(
        &self,
        controller: &str,
        depth: impl Fn() -> Option<usize> + Send + Sync + 'static,
    ) -> ReconcileMetrics {
        self.families.reconciles.of(controller, Box::new(depth))
    }

    /// Counts requests for tokens of a controller's account.
    pub(crate) fn tokens(&self, controller: &str) -> TokenMetrics {
        self.families.tokens.of(controller)
    }

    /// What leases tell.
    pub(crate) fn scopes(&self) -> &ScopeMetrics {
        &self.families.scopes
    }

    /// The handles of the webhook at a path.
    pub(crate) fn admission(&self, path: &str) -> AdmissionMetrics {
        AdmissionMetrics::new(self, path)
    }

    /// The handles of a kind's conversions.
    pub(crate) fn conversion(&self, kind: &str) -> ConversionMetrics {
        ConversionMetrics::new(self, kind)
    }

    /// The handles of whatever is served at a path.
    pub(crate) fn route(&self, path: &str) -> RouteMetrics {
        RouteMetrics::new(self, path)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// One label.
fn label(name: &'static str, value: &str) -> Labels {
    vec![(name, Cow::Owned(value.to_owned()))]
}
