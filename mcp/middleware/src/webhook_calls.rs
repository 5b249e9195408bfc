//! The count of webhook calls, which one crate counts and another reports.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The outcome of a call of a webhook, whatever became of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebhookOutcome {
    /// The webhook allowed the request.
    Allowed,
    /// The webhook denied it.
    Denied,
    /// The webhook answered that the request cannot be read: HTTP 400, 413, 414, 415 or 431.
    Blamed,
    /// There was no usable answer.
    Failed,
}

impl WebhookOutcome {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Allowed, Self::Denied, Self::Blamed, Self::Failed];

    /// Its name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Blamed => "blamed",
            Self::Failed => "failed",
        }
    }
}

/// Counts the calls of a proxy's webhooks by their outcome. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct WebhookCalls(Arc<[AtomicU64; WebhookOutcome::ALL.len()]>);

impl WebhookCalls {
    /// Counts one call.
    pub fn count(&self, outcome: WebhookOutcome) {
        self.of(outcome).fetch_add(1, Relaxed);
    }

    /// The number of calls that ended so.
    pub fn get(&self, outcome: WebhookOutcome) -> u64 {
        self.of(outcome).load(Relaxed)
    }

    fn of(&self, outcome: WebhookOutcome) -> &AtomicU64 {
        let [allowed, denied, blamed, failed] = &*self.0;
        match outcome {
            WebhookOutcome::Allowed => allowed,
            WebhookOutcome::Denied => denied,
            WebhookOutcome::Blamed => blamed,
            WebhookOutcome::Failed => failed,
        }
    }
}
