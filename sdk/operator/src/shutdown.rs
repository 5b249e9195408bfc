//! The shutdown of an operator: its deadlines and its phases.

use std::time::Duration;

use futures::future::join;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::error::RunError;
use super::health::Health;
use super::tasks::Tasks;

/// The deadline of the whole shutdown after SIGTERM. Kubernetes' own is 30 s.
pub(super) const SHUTDOWN: Duration = Duration::from_secs(27);
/// The deadline of controllers: it leaves time to release the Lease.
pub(super) const CONTROLLERS: Duration = Duration::from_secs(22);
/// The longest time for which a listener accepts after SIGTERM: calls in flight need time to end after it.
pub(super) const LONGEST_DRAIN: Duration = Duration::from_secs(15);

/// The phases of a shutdown: the token of each, and what ends when it is cancelled.
///
/// | token | is cancelled | what ends |
/// |---|---|---|
/// | `controllers` | at once | controllers, after their reconciles, and then the hold of the Lease; connections to the webhooks, each with its next response, so that callers connect to another replica |
/// | `serving` | after the drain delay | the webhook server, after the calls in flight; its certificates; the views of Leases and CRDs, which calls ask |
/// | `caches` | after the last call; with `serving` where nothing is served | the caches and tasks of every replica, which calls read |
pub(super) struct Shutdown {
    pub(super) controllers: CancellationToken,
    pub(super) serving: CancellationToken,
    pub(super) caches: CancellationToken,
    /// Endpoints learn of the end later than this process, so calls still come.
    drain_delay: Duration,
}

impl Shutdown {
    /// The phases of an operator that serves webhooks for `drain_delay` more; `None` for one that serves none.
    pub(super) fn new(drain_delay: Option<Duration>) -> Self {
        let serving = CancellationToken::new();
        let caches = if drain_delay.is_some() { CancellationToken::new() } else { serving.clone() };
        Self { controllers: CancellationToken::new(), serving, caches, drain_delay: drain_delay.unwrap_or_default() }
    }

    /// Ends all tasks, phase after phase, within [`SHUTDOWN`]. Returns the first error, beginning with `result`.
    pub(super) async fn perform(
        self,
        mut result: Result<(), RunError>,
        mut tasks: Tasks,
        health: &Health,
    ) -> Result<(), RunError> {
        // An operator that was never ready is not called.
        let drain_delay = if health.is_ready() { self.drain_delay } else { Duration::ZERO };
        self.controllers.cancel();
        health.waiting_for("the process to end");
        let drain = async {
            sleep(drain_delay).await;
            self.serving.cancel();
        };
        let rest = async {
            while let Some(ended) = tasks.next().await {
                result = std::mem::replace(&mut result, Ok(())).and(ended);
            }
        };
        if timeout(SHUTDOWN, join(drain, rest)).await.is_err() {
            warn!(
                seconds = SHUTDOWN.as_secs(),
                "shutdown did not finish in time: aborting the listeners, controllers and watches that still run"
            );
        }
        result
    }
}
