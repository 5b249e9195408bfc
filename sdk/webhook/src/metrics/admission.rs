//! The metrics of one admission webhook. Every handle is looked up once, so that counting allocates nothing.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use portcullis_review::Operation;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;

use portcullis_metrics::{Metrics, label};

use super::{AdmissionFamilies, RouteMetrics};
use crate::rejected::Rejected;

/// The outcome of a review, in metrics and in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decided {
    Allow,
    Deny,
    Patch,
    /// No decision: the failure policy decides.
    Error,
}

impl Decided {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Patch => "patch",
            Self::Error => "error",
        }
    }
}

/// The handles of one webhook.
pub(crate) struct AdmissionMetrics {
    families: Arc<AdmissionFamilies>,
    path: Box<str>,
    duration: Histogram,
    patch_bytes: Counter,
    rejected: RouteMetrics,
    /// The counters by operation, decision and dry run; a series begins with its first event.
    requests: [[[OnceLock<Counter>; 2]; 4]; 4],
}

impl AdmissionMetrics {
    pub(crate) fn new(metrics: &Metrics, path: &str) -> Self {
        let families = metrics.families::<AdmissionFamilies>();
        let webhook = label("webhook", path);
        Self {
            duration: families.duration.get_or_create_owned(&webhook),
            patch_bytes: families.patch_bytes.get_or_create_owned(&webhook),
            rejected: RouteMetrics::new(metrics, path),
            path: path.into(),
            requests: Default::default(),
            families,
        }
    }

    /// Counts one review.
    pub(crate) fn count(&self, operation: Operation, decided: Decided, dry_run: bool, took: Duration) {
        let counter = &self.requests[operation as usize][decided as usize][usize::from(dry_run)];
        let counter = counter.get_or_init(|| {
            let mut labels = label("webhook", &self.path);
            labels.push(("operation", Cow::Borrowed(operation.as_str())));
            labels.push(("decision", Cow::Borrowed(decided.as_str())));
            labels.push(("dry_run", Cow::Borrowed(if dry_run { "true" } else { "false" })));
            self.families.requests.get_or_create_owned(&labels)
        });
        counter.inc();
        self.duration.observe(took.as_secs_f64());
    }

    /// Counts the bytes of a patch.
    pub(crate) fn patched(&self, bytes: usize) {
        self.patch_bytes.inc_by(bytes as u64);
    }

    /// Counts a failure that became a denial, which HTTP does not distinguish from a handler's own.
    pub(crate) fn denied_for(&self, reason: Rejected) {
        self.rejected.rejected(reason);
    }
}
