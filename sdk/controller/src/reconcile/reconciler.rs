//! One reconcile from the queue to its end: ownership of the namespace, finalizers, validators, and then the
//! controller's own function.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use prometheus_client::metrics::counter::Counter;
use tracing::warn;

use super::{Cleanup, Deletion, Reconcile};
use crate::apply::Applier;
use crate::changes::Changes;
use crate::children::Children;
use crate::events::Events;
use crate::validators::OfflineValidation;
use crate::writer::Writer;
use crate::{Action, BoxError, ControllerError, Key, Kind, Observed, Store, Stored as _};
use portcullis_lease::{Ownership, Scope};

/// The delay before another look at what no watch reports: who owns a namespace, and a child that is being deleted and
/// does not name its owner.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// Cleans up before an object with our finalizer is deleted.
pub(crate) type CleanUp<K> = Arc<dyn Fn(Deletion<K>) -> BoxFuture<'static, Result<Cleanup, BoxError>> + Send + Sync>;

/// Handles an object that the validators deny; the text is the problem.
pub(crate) type OnInvalid<K> =
    Arc<dyn Fn(Reconcile<K>, String) -> BoxFuture<'static, Result<Action, BoxError>> + Send + Sync>;

/// The state that all reconciles of one controller share.
pub(crate) struct Reconciler<K> {
    /// The namespaces that are ours.
    pub(crate) scope: Scope,
    pub(crate) store: Arc<Store<Observed<K>>>,
    pub(crate) changes: Changes<K>,
    /// Panics in callbacks of changes.
    pub(crate) panics: Counter,
    /// The stores of owned kinds, by `apiVersion` and `kind`.
    pub(crate) children: BTreeMap<(String, String), Children>,
    pub(crate) writer: Writer<K>,
    pub(crate) applier: Applier,
    pub(crate) events: Events,
    pub(crate) finalizer: Option<(String, CleanUp<K>)>,
    /// Present while webhooks are off.
    pub(crate) offline: Option<OfflineValidation>,
    pub(crate) on_invalid: Option<OnInvalid<K>>,
    pub(crate) timeout: Duration,
}

impl<K: Kind> Reconciler<K> {
    /// Reconciles the object of this name.
    pub(crate) async fn reconcile<F, R, E>(self: &Arc<Self>, key: Key, reconcile: &F) -> Result<Action, BoxError>
    where
        F: Fn(Reconcile<K>) -> R,
        R: Future<Output = Result<Action, E>>,
        E: Into<BoxError> + Send + 'static,
    {
        let Some(live) = self.store.get(&key.namespace, &key.name) else {
            self.forget(&key);
            return Ok(Action::await_change());
        };
        match self.scope.confirm(&key.namespace).await {
            owner if owner.may_write() => {}
            // It will be known in a moment, and its change enqueues the object.
            Ownership::Unknown => return Ok(Action::requeue(LOOK_AGAIN)),
            // Its owner reconciles it; a change of ownership enqueues it.
            _ => return Ok(Action::await_change()),
        }
        if live.deleting {
            return self.leave(key, live).await;
        }
        if live.object.clone().inspect_err(|error| undecoded::<K>(error)).is_err() {
            return Ok(Action::await_change());
        }
        // The watch enqueues an object that was deleted or replaced meanwhile.
        let Some(live) = self.hold(live).await? else { return Ok(Action::await_change()) };
        let Ok(object) = live.object.clone() else { return Ok(Action::await_change()) };
        let problem = self.problem(&key, &live, &object).await?;
        let request = Reconcile { key, object, observed: live, reconciler: Arc::clone(self) };
        let reconciled = async {
            match (problem, &self.on_invalid) {
                (None, _) => reconcile(request).await.map_err(Into::into),
                (Some(problem), Some(on_invalid)) => on_invalid(request, problem).await,
                (Some(_), None) => Ok(Action::await_change()),
            }
        };
        tokio::time::timeout(self.timeout, reconciled).await.unwrap_or_else(|_| Err(self.too_slow()))
    }

    /// Adds the finalizer before the first reconcile. Returns the object with it: none when it is gone
    /// or being deleted: what is created for such an object would never be cleaned up.
    async fn hold(&self, live: Arc<Observed<K>>) -> Result<Option<Arc<Observed<K>>>, ControllerError> {
        let Some((name, _)) = &self.finalizer else { return Ok(Some(live)) };
        if live.finalizers.contains(name) {
            return Ok(Some(live));
        }
        if !self.written(self.writer.finalizer(&live, name, true)).await? {
            return Ok(None);
        }
        let held = self.store.get(live.namespace(), live.name());
        Ok(held.filter(|held| held.uid == live.uid && !held.deleting && held.finalizers.contains(name)))
    }

    /// An object that is being deleted is not validated and not reconciled: only its cleanup may delay its deletion.
    async fn leave(self: &Arc<Self>, key: Key, live: Arc<Observed<K>>) -> Result<Action, BoxError> {
        self.forget(&key);
        let Some((name, cleanup)) = &self.finalizer else { return Ok(Action::await_change()) };
        if !live.finalizers.contains(name) {
            return Ok(Action::await_change());
        }
        let reconcile = live.object.clone().inspect_err(|error| undecoded::<K>(error));
        let reconcile = reconcile.map(|object| Reconcile {
            key: key.clone(),
            object,
            observed: live.clone(),
            reconciler: Arc::clone(self),
        });
        let cleaned = tokio::time::timeout(self.timeout, cleanup(Deletion { key, reconcile })).await;
        match cleaned.map_err(|_| self.too_slow())?? {
            Cleanup::Pending(next) => Ok(next),
            Cleanup::Done => {
                self.may_write(&live).await?;
                let write = self.writer.finalizer(&live, name, false);
                self.written(write).await?;
                Ok(Action::await_change())
            }
        }
    }

    /// Waits for the answer to a write to an object, and takes it. Returns whether anything was written.
    pub(crate) async fn written(
        &self,
        write: impl Future<Output = Result<Option<Observed<K>>, ControllerError>>,
    ) -> Result<bool, ControllerError> {
        let begun = self.store.begin();
        let Some(answer) = write.await? else { return Ok(false) };
        self.changes.answered(answer, begun, &self.store, &self.panics);
        Ok(true)
    }

    /// Nothing is kept of deleted objects, whose number has no limit.
    fn forget(&self, key: &Key) {
        if let Some(offline) = &self.offline {
            offline.forget(key);
        }
    }

    /// Whether this reconcile may still write: it may take minutes, and the handover of a namespace does not wait for
    /// it.
    pub(crate) async fn may_write(&self, live: &Observed<K>) -> Result<(), ControllerError> {
        match self.scope.confirm(live.namespace()).await {
            owner if owner.may_write() => Ok(()),
            _ => Err(ControllerError::HandedOver { object: live.describe() }),
        }
    }

    fn too_slow(&self) -> BoxError {
        format!("the reconcile did not finish within {} s", self.timeout.as_secs()).into()
    }
}

/// Logs an object that does not decode, in the span of its reconcile.
fn undecoded<K: Kind>(error: &str) {
    warn!(error, "{} does not decode: only its deletion is reconciled until it is fixed", K::kind(&()));
}
