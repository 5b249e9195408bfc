//! The metrics that every path has.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use portcullis_metrics::{Metrics, label};

use super::RouteFamilies;
use crate::rejected::Rejected;

/// The handles of one path.
pub(crate) struct RouteMetrics {
    families: Arc<RouteFamilies>,
    path: Box<str>,
    in_flight: Gauge,
    /// The counters by reason; a series begins with its first event.
    rejected: [OnceLock<Counter>; Rejected::COUNT],
}

impl RouteMetrics {
    pub(crate) fn new(metrics: &Metrics, path: &str) -> Self {
        let families = metrics.families::<RouteFamilies>();
        Self {
            in_flight: families.in_flight.get_or_create_owned(&label("webhook", path)),
            path: path.into(),
            rejected: Default::default(),
            families,
        }
    }

    /// Counts a review as under way until what is returned is dropped.
    pub(crate) fn begin(&self) -> impl Drop + Send + use<'_> {
        struct UnderWay<'a>(&'a Gauge);
        impl Drop for UnderWay<'_> {
            fn drop(&mut self) {
                self.0.dec();
            }
        }
        self.in_flight.inc();
        UnderWay(&self.in_flight)
    }

    /// Counts a call that got no review for an answer.
    pub(crate) fn rejected(&self, reason: Rejected) {
        let counter = self.rejected[reason as usize].get_or_init(|| {
            let mut labels = label("webhook", &self.path);
            labels.push(("reason", Cow::Borrowed(reason.as_str())));
            self.families.rejected.get_or_create_owned(&labels)
        });
        counter.inc();
    }
}
