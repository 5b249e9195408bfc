//! The metrics of one kind's conversions.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;

use portcullis_metrics::{Metrics, label};

use super::ConversionFamilies;

/// The outcome of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectOutcome {
    /// It was converted.
    Converted,
    /// It was converted in part, and has an annotation.
    Flagged,
    /// It failed its review.
    Failed,
    /// It would have been stored without data.
    Refused,
}

impl ObjectOutcome {
    fn as_str(self) -> &'static str {
        match self {
            Self::Converted => "converted",
            Self::Flagged => "flagged",
            Self::Failed => "failed",
            Self::Refused => "refused",
        }
    }
}

/// The handles of one kind.
pub(crate) struct ConversionMetrics {
    families: Arc<ConversionFamilies>,
    kind: Box<str>,
    duration: Histogram,
}

impl ConversionMetrics {
    pub(crate) fn new(metrics: &Metrics, kind: &str) -> Self {
        let families = metrics.families::<ConversionFamilies>();
        let duration = families.duration.get_or_create_owned(&label("kind", kind));
        Self { duration, families, kind: kind.into() }
    }

    /// The counter of objects that go from one version to another. Keep it: finding it takes a look-up. `from` and `to`
    /// must be versions that the engine knows, not whatever a review says, or a client could fill the memory with
    /// series.
    pub(crate) fn objects(&self, from: &str, to: &str, outcome: ObjectOutcome) -> Counter {
        let mut labels = label("kind", &self.kind);
        labels.push(("from", Cow::Owned(from.to_owned())));
        labels.push(("to", Cow::Owned(to.to_owned())));
        labels.push(("outcome", Cow::Borrowed(outcome.as_str())));
        self.families.objects.get_or_create_owned(&labels)
    }

    /// Counts one review.
    pub(crate) fn took(&self, time: Duration) {
        self.duration.observe(time.as_secs_f64());
    }
}
