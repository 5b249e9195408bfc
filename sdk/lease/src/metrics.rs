//! The health of leases, computed when `/metrics` is read.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::{LeaseHandle, LeaseHealth, Scopes};
use portcullis_metrics::Families;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

/// The leases of this process, as metrics.
#[derive(Clone, Debug, Default)]
pub struct ScopeMetrics(Arc<Mutex<Watched>>);

#[derive(Debug, Default)]
struct Watched {
    leases: Vec<(String, LeaseHandle)>,
    scopes: Option<Scopes>,
}

impl Families for ScopeMetrics {
    fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(self.clone()));
    }
}

impl ScopeMetrics {
    /// Adds a lease that this process is a candidate for, by its namespace and name.
    pub fn lease(&self, name: &str, lease: LeaseHandle) {
        self.lock().leases.push((name.to_owned(), lease));
    }

    /// Adds the leases of other operators.
    pub fn others(&self, scopes: Scopes) {
        self.lock().scopes = Some(scopes);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Watched> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collector for ScopeMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let watched = self.lock();
        let leases: Vec<([(&str, &str); 1], LeaseHealth)> =
            watched.leases.iter().map(|(lease, handle)| ([("lease", lease.as_str())], handle.health())).collect();
        let mut each = |name: &str, help: &str, metric: &dyn Fn(&LeaseHealth) -> Box<dyn EncodeMetric>| {
            let Some((_, first)) = leases.first() else { return Ok(()) };
            let mut family = encoder.encode_descriptor(name, help, None, metric(first).metric_type())?;
            for (labels, health) in &leases {
                metric(health).encode(family.encode_family(labels)?)?;
            }
            Ok(())
        };
        each("lease_held", "Whether this replica holds the lease.", &|health| {
            Box::new(ConstGauge::new(i64::from(health.held)))
        })?;
        each("lease_renew_failures", "Requests for the lease that failed.", &|health| {
            Box::new(ConstCounter::new(health.failed))
        })?;
        each("lease_transitions", "How often the lease changed hands, as it says.", &|health| {
            Box::new(ConstCounter::new(u64::from(health.transitions)))
        })?;
        each("lease_other_installation", "Whether another installation of the operator holds the lease.", &|health| {
            Box::new(ConstGauge::new(i64::from(health.other_installation.is_some())))
        })?;

        let Some(scopes) = watched.scopes.as_ref().map(Scopes::health) else { return Ok(()) };
        let excluded = ConstGauge::new(i64::try_from(scopes.theirs).unwrap_or(i64::MAX));
        let help = "Namespaces that restricted operators own.";
        excluded.encode(encoder.encode_descriptor(
            "scope_excluded_namespaces",
            help,
            None,
            excluded.metric_type(),
        )?)?;
        let Some(age) = scopes.age else { return Ok(()) };
        let age = ConstGauge::new(age.as_secs_f64());
        let help = "Time since the last list of who owns which namespace.";
        age.encode(encoder.encode_descriptor("scope_age_seconds", help, None, age.metric_type())?)
    }
}
