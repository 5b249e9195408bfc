//! The metrics of certificates.

use portcullis_metrics::Families;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Certificate {
    certificate: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Object {
    object: String,
}

/// Metrics of the certificates. Clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct CertificateMetrics {
    not_after: Family<Certificate, Gauge>,
    phase: Gauge,
    bundle_writes: Family<Object, Counter>,
    reload_failures: Counter,
}

impl Families for CertificateMetrics {
    fn register(&self, registry: &mut Registry) {
        registry.register(
            "certificate_not_after_seconds",
            "End of validity, in seconds since 1970",
            self.not_after.clone(),
        );
        registry.register(
            "certificate_rotation_phase",
            "0: no rotation, 1: a new CA is being published, 2: the CA before it is still trusted",
            self.phase.clone(),
        );
        registry.register("ca_bundle_writes", "Writes of a CA bundle, by object", self.bundle_writes.clone());
        registry.register(
            "certificate_reload_failures",
            "Rounds in which the stored certificates could not be read, repaired or served",
            self.reload_failures.clone(),
        );
    }
}

impl CertificateMetrics {
    /// The end of the leaf that is served, or of the CA that issues.
    pub(crate) fn ends(&self, certificate: &'static str, not_after: jiff::Timestamp) {
        self.not_after.get_or_create(&Certificate { certificate }).set(not_after.as_second());
    }

    pub(crate) fn in_phase(&self, phase: i64) {
        self.phase.set(phase);
    }

    pub(crate) fn wrote_bundle(&self, object: String) {
        self.bundle_writes.get_or_create(&Object { object }).inc();
    }

    pub(crate) fn reload_failed(&self) {
        self.reload_failures.inc();
    }
}
