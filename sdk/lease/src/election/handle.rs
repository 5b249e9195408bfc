use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt as _;
use portcullis_client::error_chain;

use crate::changes::{Changes, Hub};
use crate::decide::Hold;
use crate::elector::Elector;
use crate::time::{Clock, Moment};
use crate::{LeaseError, Ownership};

/// A handle to a lease election: whether this process holds the lease, and who else does. Cheap to clone; every answer
/// is as of now.
#[derive(Clone)]
pub struct LeaseHandle(Arc<Shared>);

/// The state of a lease, for metrics.
#[derive(Debug)]
#[non_exhaustive]
pub struct LeaseHealth {
    /// Whether this process holds it and may act.
    pub(crate) held: bool,
    /// The holder when the Lease was last seen; `None` if it was free or never seen.
    pub holder: Option<String>,
    /// The installation of that holder, where it is not this one
    /// ([`LeaseElection::installation`](crate::LeaseElection::installation)).
    pub other_installation: Option<String>,
    /// The number of changes of its holder, from `leaseTransitions`.
    pub(crate) transitions: u32,
    /// The number of failed requests.
    pub(crate) failed: u64,
    /// Whether a request ever succeeded: the API server answers, and the account has the rights.
    pub answered: bool,
    /// Why the last hold of this process ended, as in `Late`.
    pub ended: Option<String>,
    /// The error of the last failed request.
    pub last_error: Option<String>,
}

pub(super) struct Shared {
    pub(super) clock: Arc<dyn Clock>,
    namespace: String,
    installation: Option<String>,
    state: Mutex<State>,
    hub: Hub,
}

struct State {
    elector: Elector,
    notified: Option<u32>,
    stopped: bool,
    failed: u64,
    answered: bool,
    last_error: Option<String>,
    /// The last error that was logged since the last success.
    logged: Option<String>,
}

impl LeaseHandle {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self(shared)
    }

    /// The epoch of the hold, if this process may act now: its number, greater than that of every hold before. Check it
    /// at the start of every action, which then has the margin between deadline and duration to finish.
    pub fn held(&self) -> Option<u32> {
        let now = self.0.clock.now();
        self.0.acting(now).map(|hold| hold.epoch)
    }

    /// The owner of this namespace, for a restricted operator with this lease as its scope: it owns the lease's
    /// namespace while it holds the lease, and never another.
    pub(crate) fn owns(&self, namespace: &str) -> Ownership {
        if namespace != self.0.namespace {
            return Ownership::Theirs;
        }
        if self.held().is_some() { Ownership::Mine } else { Ownership::Unknown }
    }

    /// Yields the lease's namespace whenever this process becomes allowed to act, or no longer is.
    pub(crate) fn changes(&self) -> Changes {
        self.0.hub.listen()
    }

    /// Waits until this process may act, and returns the epoch of the hold; `None` if the driver ends first.
    pub async fn acquired(&self) -> Option<u32> {
        let mut changes = self.changes();
        loop {
            if let Some(epoch) = self.held() {
                return Some(epoch);
            }
            changes.next().await?;
        }
    }

    /// Waits until this process may no longer act in this epoch: select on it beside long work.
    pub async fn lost(&self, epoch: u32) {
        let mut changes = self.changes();
        while self.held() == Some(epoch) {
            if changes.next().await.is_none() {
                return;
            }
        }
    }

    /// The current state.
    pub fn health(&self) -> LeaseHealth {
        let now = self.0.clock.now();
        let held = self.0.acting(now).is_some();
        let state = self.0.lock();
        let record = state.elector.observation().present();
        LeaseHealth {
            held,
            holder: record.and_then(|record| record.holder.clone()),
            other_installation: record
                .filter(|record| record.holder.is_some())
                .and_then(|record| record.installation.clone())
                .filter(|holding| self.0.installation.as_ref().is_some_and(|own| own != holding)),
            transitions: state.elector.observation().last().map_or(0, |record| record.transitions),
            failed: state.failed,
            answered: state.answered,
            ended: state.elector.ended().map(|reason| format!("{reason:?}")),
            last_error: state.last_error.clone(),
        }
    }
}

impl fmt::Debug for LeaseHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LeaseHandle").field(&self.0).finish()
    }
}

impl Shared {
    pub(super) fn new(
        clock: Arc<dyn Clock>,
        namespace: String,
        installation: Option<String>,
        elector: Elector,
    ) -> Self {
        let state = State {
            elector,
            notified: None,
            stopped: false,
            failed: 0,
            answered: false,
            last_error: None,
            logged: None,
        };
        Self { clock, namespace, installation, state: Mutex::new(state), hub: Hub::default() }
    }

    /// Runs `act` on the elector, and notifies the listeners when that changed whether the holder may act.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut Elector) -> T) -> T {
        let now = self.clock.now();
        let mut state = self.lock();
        let result = act(&mut state.elector);
        let acting = if state.stopped { None } else { state.elector.acting(now).map(|hold| hold.epoch) };
        let changed = std::mem::replace(&mut state.notified, acting) != acting;
        drop(state);
        if changed {
            self.hub.notify([Some(self.namespace.clone())]);
        }
        result
    }

    /// Records a failed request. Returns the error to log: once in an outage, and again when the reason changes.
    pub(super) fn note(&self, error: &LeaseError) -> Option<String> {
        let error = error_chain(error);
        let mut state = self.lock();
        state.failed = state.failed.saturating_add(1);
        state.last_error = Some(error.clone());
        let before = state.logged.replace(error.clone());
        (before.as_ref() != Some(&error)).then_some(error)
    }

    pub(super) fn answered(&self) {
        let mut state = self.lock();
        (state.answered, state.logged) = (true, None);
    }

    /// Ends the hold and all notifications.
    pub(super) fn stop(&self) {
        self.lock().stopped = true;
        self.with(|_| ());
        self.hub.end();
    }

    fn acting(&self, now: Moment) -> Option<Hold> {
        let state = self.lock();
        if state.stopped { None } else { state.elector.acting(now) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timing;
    use crate::time::SystemClock;

    #[test]
    fn a_failure_is_logged_once_until_it_changes_or_succeeds() {
        let elector = Elector::new("me", Timing::LEADER, 7);
        let shared = Shared::new(Arc::new(SystemClock::new()), "team".to_owned(), None, elector);
        let error = |said: &str| LeaseError::Request {
            action: "read",
            what: "the Lease team/scope".to_owned(),
            source: Box::new(kube::Error::Service(said.to_owned().into())),
        };
        let logged_error = shared.note(&error("connection refused")).unwrap();
        assert!(
            logged_error.starts_with("cannot read the Lease team/scope: ")
                && logged_error.ends_with("connection refused"),
            "{logged_error}"
        );
        assert_eq!(logged_error.matches("refused").count(), 1, "{logged_error}");
        assert_eq!(shared.note(&error("connection refused")), None);
        assert!(shared.note(&error("timed out")).is_some());
        assert!(shared.note(&error("connection refused")).is_some());
        shared.answered();
        assert!(shared.note(&error("connection refused")).is_some());
        assert_eq!(shared.lock().failed, 5);
    }
}
