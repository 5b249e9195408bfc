//! Decisions of guards: counted, timed, and kept for those who observe the request.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

use crate::metrics::Metrics;
use crate::outcome::Outcome;
use crate::shadows::{Counts, Shadow};

/// The upper bounds of the buckets, in seconds: a check in memory takes microseconds, a webhook up to half a minute.
const BUCKETS: [f64; 11] = [0.000_01, 0.000_1, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0];

/// The decision of one guard about one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The guard's type, such as `auth` or `validating-webhook`.
    pub guard: Arc<str>,
    /// The webhook's name, where it is one.
    pub webhook: Option<Arc<str>>,
    /// The decision itself.
    pub outcome: Outcome,
    /// The time at which it began.
    pub started: Instant,
    /// The time that it took.
    pub took: Duration,
}

/// The counts of decisions of a proxy's guards. The values of their labels come from the proxy's document alone, never from a client.
#[derive(Clone, Debug)]
pub struct Decisions {
    guards: Counted<OfGuard>,
    webhooks: Counted<OfWebhook>,
    shadows: Counts,
}

/// A guard whose decisions are counted.
#[derive(Clone, Debug)]
pub struct Guard {
    kind: Arc<str>,
    webhook: Option<Arc<str>>,
    counts: [(Counter, Histogram); Outcome::ALL.len()],
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfGuard {
    guard: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfWebhook {
    webhook: String,
    r#type: String,
    outcome: &'static str,
}

#[derive(Clone)]
struct Counted<L> {
    count: Family<L, Counter>,
    seconds: Family<L, Histogram, fn() -> Histogram>,
}

// === impl Decisions ===

impl Decisions {
    /// Counts in `metrics`, from nothing.
    pub fn new(metrics: &Metrics) -> Self {
        let (guards, webhooks) = (Counted::new(), Counted::new());
        metrics.register("guard_decisions", "Decisions of guards about requests, by outcome", guards.count.clone());
        let help = "Seconds that guards took for their decisions";
        metrics.register("guard_decision_seconds", help, guards.seconds.clone());
        metrics.register("webhook_calls", "Calls of webhooks, by outcome", webhooks.count.clone());
        metrics.register("webhook_call_seconds", "Seconds that calls of webhooks took", webhooks.seconds.clone());
        Self { guards, webhooks, shadows: Counts::new(metrics) }
    }

    /// The guard of type `kind`.
    pub fn guard(&self, kind: &str) -> Guard {
        let labels = |outcome: Outcome| OfGuard { guard: kind.to_owned(), outcome: outcome.as_str() };
        Guard { kind: kind.into(), webhook: None, counts: Outcome::ALL.map(|it| self.guards.of(&labels(it))) }
    }

    /// The webhook `name` of the middleware `kind`.
    pub fn webhook(&self, kind: &str, name: &str) -> Guard {
        let labels = |outcome: Outcome| OfWebhook {
            webhook: name.to_owned(),
            r#type: kind.to_owned(),
            outcome: outcome.as_str(),
        };
        let counts = Outcome::ALL.map(|it| self.webhooks.of(&labels(it)));
        Guard { kind: kind.into(), webhook: Some(name.into()), counts }
    }

    /// The shadow that the middleware `kind` is, or its webhook of this name.
    pub fn shadow(&self, kind: &str, webhook: Option<&str>) -> Shadow {
        self.shadows.shadow(kind, webhook)
    }
}

impl<L: Clone + std::hash::Hash + Eq> Counted<L> {
    fn new() -> Self {
        let seconds: fn() -> Histogram = || Histogram::new(BUCKETS);
        Self { count: Family::default(), seconds: Family::new_with_constructor(seconds) }
    }

    fn of(&self, labels: &L) -> (Counter, Histogram) {
        (self.count.get_or_create_owned(labels), self.seconds.get_or_create_owned(labels))
    }
}

impl<L: fmt::Debug> fmt::Debug for Counted<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counted")
    }
}

// === impl Guard ===

impl Guard {
    /// The decision that began at `started` and took so long.
    pub(crate) fn decision(&self, outcome: Outcome, started: Instant, took: Duration) -> Decision {
        Decision { guard: Arc::clone(&self.kind), webhook: self.webhook.clone(), outcome, started, took }
    }

    /// Counts a decision that began at `started`, and returns the time that it took. Where the request has a context, call
    /// [`RequestContext::decided`](crate::RequestContext::decided) in its place.
    pub fn count(&self, outcome: Outcome, started: Instant) -> Duration {
        let took = started.elapsed();
        let (count, seconds) = &self.counts[outcome as usize];
        count.inc();
        seconds.observe(took.as_secs_f64());
        took
    }
}
