//! What a reconcile works with.

use std::sync::Arc;

use kube::Resource;
use kube::api::PropagationPolicy;
use kube::core::ApiResource;
use serde::Serialize;
use serde_json::Value;

use super::apply::{DeleteOutcome, Desired, DocumentError, Ensured};
use super::observed::Child;
use super::work::Kit;
use super::{ControllerError, Key, Kind, Next, Observed, PlannedEvent, Store, VALID};

/// One reconcile of one object: the object as it was seen, and the writes about it. Every write is left out where the
/// cluster already is as it should be.
#[derive(Clone)]
pub struct Pass<K> {
    /// Namespace and name.
    pub key: Key,
    /// The object, without `managedFields`.
    pub object: Arc<K>,
    pub(super) observed: Arc<Observed<K>>,
    pub(super) kit: Arc<Kit<K>>,
}

/// An object that is being deleted and waits for our finalizer.
#[derive(Debug)]
pub struct Leaving<K> {
    /// Namespace and name.
    pub key: Key,
    /// The object; or, when it does not decode, why.
    pub pass: Result<Pass<K>, String>,
}

/// What a cleanup came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cleanup {
    /// Nothing holds the object any more: its finalizer is taken off.
    Done,
    /// It has to wait.
    Waits(Next),
}

impl<K> std::fmt::Debug for Pass<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pass").field("key", &self.key).finish_non_exhaustive()
    }
}

impl<K: Kind> Pass<K> {
    /// Whether this reconcile may still write. The writes below ask it themselves; ask it before writes of your own.
    ///
    /// # Errors
    /// When the namespace was handed over to another operator, or another replica leads, since the reconcile began.
    pub fn may_write(&self) -> Result<(), ControllerError> {
        self.kit.may_write(&self.observed)
    }

    /// Makes `child` what it should be. Its namespace and owner reference are added; state in it what you want to own and
    /// nothing else, and nothing taken from a fetched object. [`Ensured::Waits`] says that the one that exists is being
    /// deleted: its removal wakes the controller.
    ///
    /// # Errors
    /// When the API server does not take it, when an object of that name is not ours, and when its kind was not named by
    /// [`Controller::owns`](super::Controller::owns).
    pub async fn apply<C>(&self, child: &C) -> Result<Ensured, ControllerError>
    where
        C: Resource<DynamicType = ()> + Serialize,
    {
        self.may_write()?;
        let (resource, store) = self.children::<C>()?;
        let document = serde_json::to_value(child).map_err(|error| DocumentError::Json(error.to_string()))?;
        let desired = Desired::child_of(&*self.object, &resource, document, self.kit.applier.marks())?;
        let live = store.get(desired.namespace(), desired.name());
        let ensured = self.kit.applier.ensure(live.as_ref().map(|child| &child.live), &desired, &self.observed.uid);
        let ensured = ensured.await?;
        match &ensured {
            Ensured::Written(live) => {
                store.written(Child::written(desired.namespace(), desired.name(), live.clone(), &self.key.name));
            }
            Ensured::Refused(refusal) => {
                let object = format!("{} {}/{}", resource.kind, desired.namespace(), desired.name());
                return Err(ControllerError::NameTaken { object, refusal: refusal.clone() });
            }
            Ensured::Kept | Ensured::Waits => {}
        }
        Ok(ensured)
    }

    /// Deletes the child of this kind and name, if it exists and is this object's.
    ///
    /// # Errors
    /// When the API server does not do it, and when its kind was not named by
    /// [`Controller::owns`](super::Controller::owns).
    pub async fn delete<C: Resource<DynamicType = ()>>(
        &self,
        name: &str,
        propagation: PropagationPolicy,
    ) -> Result<(), ControllerError> {
        self.may_write()?;
        let (resource, store) = self.children::<C>()?;
        let Some(child) = store.get(&self.key.namespace, name) else { return Ok(()) };
        if child.live.deleting || child.live.controller.as_deref() != Some(&*self.observed.uid) {
            return Ok(());
        }
        let delete = self.kit.applier.delete(&resource, &self.key.namespace, name, &child.live, propagation);
        if delete.await? == DeleteOutcome::Accepted {
            store.amended(child.deleting());
        }
        Ok(())
    }

    /// Applies the status, complete: what the last one had and this one has not is taken away. What others wrote beside
    /// it stays. Returns whether anything had to be written. While validators run in the controller, the condition
    /// `Valid` is theirs.
    ///
    /// # Errors
    /// When the API server does not take it.
    pub async fn status(&self, status: &impl Serialize) -> Result<bool, ControllerError> {
        self.may_write()?;
        let status = serde_json::to_value(status);
        let mut status =
            status.map_err(|source| ControllerError::Status { object: self.observed.describe(), source })?;
        if self.kit.validators.is_some()
            && let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut)
        {
            conditions.retain(|condition| condition["type"] != VALID);
        }
        let live = self.current();
        let manager = &self.kit.writer.managers.status;
        let written = self.kit.writer.status(&live, manager, live.held_status.as_deref(), status).await?;
        Ok(written.map(|written| self.kit.store.written(written)).is_some())
    }

    /// Publishes events about the object. That each is said once is the caller's business: say one when
    /// [`status`](Self::status) was written. One that cannot be published is logged.
    pub async fn publish(&self, events: &[PlannedEvent]) {
        self.kit.events.publish(&*self.object, events).await;
    }

    /// The object as it is now, writes of this pass included.
    fn current(&self) -> Arc<Observed<K>> {
        let current = self.kit.store.get(&self.key.namespace, &self.key.name);
        current.filter(|current| current.uid == self.observed.uid).unwrap_or_else(|| self.observed.clone())
    }

    fn children<C: Resource<DynamicType = ()>>(&self) -> Result<(ApiResource, Arc<Store<Child>>), DocumentError> {
        let resource = ApiResource::erase::<C>(&());
        match self.kit.children.get(&(resource.api_version.clone(), resource.kind.clone())) {
            Some(store) => Ok((resource, store.clone())),
            None => Err(DocumentError::UnknownKind { api_version: resource.api_version, kind: resource.kind }),
        }
    }
}
