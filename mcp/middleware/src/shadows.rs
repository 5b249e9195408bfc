//! Shadows: guards that are tried on live requests, decide nothing, and count what they would have refused.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use tokio::sync::watch;

use crate::metrics::Metrics;
use crate::outcome::Outcome;

/// The most findings of one request that are kept. A stream may bring any number, and all are counted.
const KEPT: usize = 64;

/// The label of a shadow's call that was not made, since too many are under way.
const DROPPED: &str = "dropped";

/// The counts of a proxy's shadows. The values of their labels come from the proxy's document alone.
#[derive(Clone, Debug)]
pub(crate) struct Counts {
    decisions: Family<OfDecision, Counter>,
    refused: Family<OfRefusal, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfDecision {
    guard: String,
    webhook: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRefusal {
    guard: String,
    webhook: String,
    subject: &'static str,
}

/// A guard that is tried.
#[derive(Clone, Debug)]
pub struct Shadow {
    guard: Arc<str>,
    webhook: Option<Arc<str>>,
    decisions: [Counter; Outcome::ALL.len()],
    dropped: Counter,
    calls: Counter,
    entries: Counter,
}

/// The part of a request that its shadows have.
#[derive(Debug, Default)]
pub struct Shadows {
    findings: Mutex<Vec<Finding>>,
    running: Running,
}

/// A finding of one shadow in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The type of the middleware.
    pub guard: Arc<str>,
    /// The webhook's name, where it is one.
    pub webhook: Option<Arc<str>>,
    /// The finding itself.
    pub found: Found,
}

/// The contents of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Its decision about the call, the time at which that began, and the time that it took.
    Decision(Outcome, Instant, Duration),
    /// So many entries of a list that it would hide.
    Hidden(usize),
}

/// Counts what is under way, for those who wait for its end. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Running(Arc<watch::Sender<usize>>);

/// Something that is under way until this is dropped.
#[derive(Debug)]
pub struct Run(Running);

// === impl Counts ===

impl Counts {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let counts = Self { decisions: Family::default(), refused: Family::default() };
        let help = "Decisions of shadows, which decide nothing, by outcome";
        metrics.register("shadow_decisions", help, counts.decisions.clone());
        let help = "Calls that shadows would refuse, and entries of lists that they would hide";
        metrics.register("would_refuse", help, counts.refused.clone());
        counts
    }

    pub(crate) fn shadow(&self, guard: &str, webhook: Option<&str>) -> Shadow {
        let name = webhook.unwrap_or_default();
        let decision = |outcome| {
            let labels = OfDecision { guard: guard.to_owned(), webhook: name.to_owned(), outcome };
            self.decisions.get_or_create_owned(&labels)
        };
        let refusal = |subject| {
            let labels = OfRefusal { guard: guard.to_owned(), webhook: name.to_owned(), subject };
            self.refused.get_or_create_owned(&labels)
        };
        Shadow {
            guard: guard.into(),
            webhook: webhook.map(Into::into),
            decisions: Outcome::ALL.map(|outcome| decision(outcome.as_str())),
            dropped: decision(DROPPED),
            calls: refusal("call"),
            entries: refusal("entry"),
        }
    }
}

// === impl Shadow ===

impl Shadow {
    /// Counts a call that it was not asked about, since too many are under way.
    pub fn drop_call(&self) {
        self.dropped.inc();
    }

    /// Counts its decision about a call, which began at `started`.
    pub(crate) fn decided(&self, outcome: Outcome, started: Instant) -> Finding {
        self.decisions[outcome as usize].inc();
        if outcome.refuses() {
            self.calls.inc();
        }
        self.finding(Found::Decision(outcome, started, started.elapsed()))
    }

    /// Counts entries of a list that it would hide.
    pub(crate) fn hides(&self, entries: usize) -> Finding {
        self.entries.inc_by(entries as u64);
        self.finding(Found::Hidden(entries))
    }

    fn finding(&self, found: Found) -> Finding {
        Finding { guard: Arc::clone(&self.guard), webhook: self.webhook.clone(), found }
    }
}

// === impl Shadows ===

impl Shadows {
    /// Lists what they have found so far.
    pub fn findings(&self) -> Vec<Finding> {
        self.lock().clone()
    }

    /// Whether none of them is at work.
    pub fn are_done(&self) -> bool {
        self.running.is_none()
    }

    /// Waits until none of them is at work: a webhook's timeout at most.
    pub async fn done(&self) {
        self.running.none().await;
    }

    /// Counts the decision of a shadow, which began at `started`, and keeps it for those who observe the request.
    pub fn decide(&self, shadow: &Shadow, outcome: Outcome, started: Instant) {
        self.add(shadow.decided(outcome, started));
    }

    /// Counts entries of a list in the answer that a shadow would hide, and keeps their number for those who observe the request.
    pub fn hide(&self, shadow: &Shadow, entries: usize) {
        if entries > 0 {
            self.add(shadow.hides(entries));
        }
    }

    pub(crate) fn run(&self) -> Run {
        self.running.begin()
    }

    pub(crate) fn add(&self, finding: Finding) {
        let mut findings = self.lock();
        if let Found::Hidden(more) = finding.found {
            let same = findings.iter_mut().filter(|other| other.guard == finding.guard);
            let found = same.map(|other| &mut other.found).find_map(|found| match found {
                Found::Hidden(entries) => Some(entries),
                Found::Decision(..) => None,
            });
            if let Some(entries) = found {
                *entries += more;
                return;
            }
        }
        if findings.len() < KEPT {
            findings.push(finding);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Finding>> {
        self.findings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Finding ===

impl Finding {
    /// Whether the shadow would have refused the call, or hidden an entry.
    pub fn refuses(&self) -> bool {
        match self.found {
            Found::Decision(outcome, ..) => outcome.refuses(),
            Found::Hidden(entries) => entries > 0,
        }
    }

    /// The webhook's name, or the guard's type.
    pub fn name(&self) -> &Arc<str> {
        self.webhook.as_ref().unwrap_or(&self.guard)
    }
}

// === impl Running ===

impl Running {
    /// Begins something.
    pub fn begin(&self) -> Run {
        self.0.send_modify(|count| *count += 1);
        Run(self.clone())
    }

    /// Whether nothing is under way.
    pub fn is_none(&self) -> bool {
        *self.0.borrow() == 0
    }

    /// Waits until nothing is under way.
    pub async fn none(&self) {
        // The sender is here, so that it is not closed.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}
