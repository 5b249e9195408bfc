//! The retries of a watch that fails, and its log lines: one when it starts to fail, one when it works again.

use std::time::Duration;

use backon::ExponentialBuilder;
use kube::core::Status;
use kube::runtime::utils::Backoff as _;
use kube::runtime::watcher::{self, ExponentialBackoff};
use portcullis_client::error_message;

/// The first pause. Jitter adds up to as much again to each, so that replicas do not come all at once.
const FIRST: Duration = Duration::from_millis(800);
/// The longest pause, for an API server that is down or a kind that it does not have yet.
const LONGEST: Duration = Duration::from_secs(15);
/// The longest delay where the API server refuses: a person has to grant a right first.
pub(super) const LONGEST_REFUSED: Duration = Duration::from_mins(1);

/// One watch that is tried again when it fails.
pub(super) struct Retries {
    /// The watched kind, for the log.
    pub(super) kind: String,
    /// `plural.group`, as `kubectl` takes it.
    pub(super) resource: String,
    /// The namespace; empty for all.
    pub(super) namespace: String,
    failing: Option<Failing>,
    pauses: ExponentialBackoff,
    pauses_refused: ExponentialBackoff,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Failing {
    /// The account lacks this verb.
    Refused(&'static str),
    Interrupted,
}

impl Retries {
    pub(super) fn new(kind: String, resource: String, namespace: String) -> Self {
        let (pauses, pauses_refused) = (up_to(LONGEST), up_to(LONGEST_REFUSED));
        Self { kind, resource, namespace, failing: None, pauses, pauses_refused }
    }

    /// Takes a failure: logs it when it is the first of its kind, and returns the pause before the next attempt.
    pub(super) fn failed(&mut self, error: &watcher::Error) -> Duration {
        let Self { kind, resource, namespace, .. } = self;
        let now = Failing::of(error);
        let error = error_message(error);
        match now {
            _ if self.failing == Some(now) => {
                tracing::debug!(kind, namespace, error, "the watch still fails");
            }
            Failing::Refused(verb) => {
                let longest = LONGEST_REFUSED.as_secs() * 2;
                tracing::warn!(
                    kind,
                    namespace,
                    verb,
                    resource,
                    error,
                    "watch refused: grant this account the verb on this resource; retrying after pauses of up to \
                     {longest} s"
                );
            }
            Failing::Interrupted => tracing::warn!(kind, namespace, error, "watch interrupted; retrying"),
        }
        self.failing = Some(now);
        let pauses = if now == Failing::Interrupted { &mut self.pauses } else { &mut self.pauses_refused };
        pauses.next().unwrap_or(LONGEST)
    }

    /// Whether it has failed since it last worked.
    pub(super) fn is_failing(&self) -> bool {
        self.failing.is_some()
    }

    /// Records that the watch works, and logs that once after a failure.
    pub(super) fn recovered(&mut self) {
        if self.failing.take().is_some() {
            let Self { kind, namespace, .. } = self;
            tracing::info!(kind, namespace, "the watch works again");
            self.pauses.reset();
            self.pauses_refused.reset();
        }
    }
}

impl Failing {
    fn of(error: &watcher::Error) -> Self {
        let (verb, status): (_, &Status) = match error {
            watcher::Error::InitialListFailed(kube::Error::Api(status)) => ("list", status),
            watcher::Error::WatchStartFailed(kube::Error::Api(status))
            | watcher::Error::WatchFailed(kube::Error::Api(status))
            | watcher::Error::WatchError(status) => ("watch", status),
            _ => return Self::Interrupted,
        };
        if status.code == 403 { Self::Refused(verb) } else { Self::Interrupted }
    }
}

fn up_to(longest: Duration) -> ExponentialBackoff {
    let growing = ExponentialBuilder::default().with_min_delay(FIRST).with_max_delay(longest).with_factor(2.0);
    growing.with_jitter().without_max_times().into()
}
