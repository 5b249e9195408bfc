//! What a reconcile works with.

use std::sync::Arc;

use kube::Resource;
use kube::api::PropagationPolicy;
use kube::core::ApiResource;
use kube::core::object::HasStatus;
use serde::Serialize;
use serde_json::Value;

use super::apply::{DeleteOutcome, Desired, DocumentError, Ensured, refusal};
use super::children::Children;
use super::kind_scope::full_name;
use super::reconciler::{LOOK_AGAIN, Reconciler};
use super::{Action, ControllerError, Key, Kind, Observed, PlannedEvent, VALID};

/// One reconcile of one object: the object as it was seen, and the writes about it. Every write is left out where the
/// cluster already is as it should be.
#[derive(Clone)]
pub struct Reconcile<K> {
    /// Namespace and name.
    pub key: Key,
    /// The object, without `managedFields`.
    pub object: Arc<K>,
    pub(super) observed: Arc<Observed<K>>,
    pub(super) reconciler: Arc<Reconciler<K>>,
}

/// An object that is being deleted and waits for our finalizer.
#[derive(Debug)]
pub struct Deletion<K> {
    /// Namespace and name.
    pub key: Key,
    /// The object; or, when it does not decode, why.
    pub reconcile: Result<Reconcile<K>, String>,
}

/// What became of a child that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// It is as it should be; nothing was written.
    Kept,
    /// It was written.
    Written,
    /// The one that exists, ours or not, is being deleted. The object is reconciled again when that is done.
    Waits,
}

/// What a cleanup came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cleanup {
    /// Nothing holds the object any more: its finalizer is taken off.
    Done,
    /// It has to wait.
    Waits(Action),
}

impl<K> std::fmt::Debug for Reconcile<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reconcile").field("key", &self.key).finish_non_exhaustive()
    }
}

impl<K: Kind> Reconcile<K> {
    /// Whether this reconcile may still write. The writes below ask it themselves; ask it before writes of your own.
    ///
    /// # Errors
    /// When the namespace was handed over to another operator, or another replica leads, since the reconcile began.
    pub fn may_write(&self) -> Result<(), ControllerError> {
        self.reconciler.may_write(&self.observed)
    }

    /// A client under the controller's own account, for what else the reconcile reads: the object that woke it, say. It may
    /// `get`, `list` and `watch` what the controller owns and watches; more is granted by
    /// [`Controller::rbac`](super::Controller::rbac).
    pub fn client(&self) -> kube::Client {
        self.reconciler.writer.client.clone()
    }

    /// Makes `child` what it should be. Its owner reference is added, and the owner's namespace: where that has none, a
    /// child of a kind that lives in namespaces states its own. State in it what you want to own and nothing else, and
    /// nothing taken from a fetched object.
    ///
    /// # Errors
    /// When the API server does not take it, when an object of that name is not ours, and when its kind was not named by
    /// [`Controller::owns`](super::Controller::owns).
    pub async fn apply<C>(&self, child: &C) -> Result<Applied, ControllerError>
    where
        C: Resource<DynamicType = ()> + Serialize,
    {
        let document = serde_json::to_value(child).map_err(|error| DocumentError::Json(error.to_string()))?;
        self.apply_dynamic(&ApiResource::erase::<C>(&()), document).await
    }

    /// The same for a plan that holds children of several kinds: `document` is one of `resource`.
    ///
    /// # Errors
    /// Those of [`apply`](Self::apply).
    pub async fn apply_dynamic(&self, resource: &ApiResource, document: Value) -> Result<Applied, ControllerError> {
        self.may_write()?;
        let children = self.children(resource)?;
        let field_manager = self.reconciler.applier.field_manager();
        let desired = Desired::child_of(&*self.object, resource, document, field_manager, children.namespaced)?;
        let live = children.store.live(desired.namespace(), desired.name());
        let child = Key::new(desired.namespace(), desired.name());
        let queue = &self.reconciler.changes.queue;
        let write = children.writes.as_ref().map(|writes| writes.begin(child, queue, &self.key));
        let begun = children.store.begin();
        match self.reconciler.applier.ensure(live.as_ref(), &desired, &self.observed.uid).await? {
            Ensured::Kept => Ok(Applied::Kept),
            Ensured::Waits => {
                // A change of a child wakes the owner that it names. This one may name none, or another.
                if live.is_none_or(|live| live.controller.as_ref() != Some(&self.observed.uid)) {
                    queue.add_after(self.key.clone(), LOOK_AGAIN);
                }
                Ok(Applied::Waits)
            }
            Ensured::Written(live) => {
                if let Some(write) = write {
                    write.answered(live.version);
                }
                children.store.written(&desired, live, begun);
                Ok(Applied::Written)
            }
            Ensured::Refused(refusal) => {
                let object = format!("{} {}", resource.kind, full_name(desired.namespace(), desired.name()));
                Err(ControllerError::NameTaken { object, refusal })
            }
        }
    }

    /// Deletes the child of this kind and name, in the object's namespace where the kind lives in namespaces; returns
    /// whether there was one. An object of that name that is not ours is left alone, and so is one that is being deleted
    /// already.
    ///
    /// # Errors
    /// When the API server does not do it, and when its kind was not named by
    /// [`Controller::owns`](super::Controller::owns).
    pub async fn delete<C: Resource<DynamicType = ()>>(
        &self,
        name: &str,
        propagation: PropagationPolicy,
    ) -> Result<bool, ControllerError> {
        self.delete_dynamic(&ApiResource::erase::<C>(&()), name, propagation).await
    }

    /// The same in this namespace, for an object that lives in none itself.
    ///
    /// # Errors
    /// Those of [`delete`](Self::delete).
    pub async fn delete_in<C: Resource<DynamicType = ()>>(
        &self,
        namespace: &str,
        name: &str,
        propagation: PropagationPolicy,
    ) -> Result<bool, ControllerError> {
        self.delete_child(&ApiResource::erase::<C>(&()), namespace, name, propagation).await
    }

    /// The same for a plan that holds children of several kinds.
    ///
    /// # Errors
    /// Those of [`delete`](Self::delete).
    pub async fn delete_dynamic(
        &self,
        resource: &ApiResource,
        name: &str,
        propagation: PropagationPolicy,
    ) -> Result<bool, ControllerError> {
        let namespaced = self.children(resource)?.namespaced;
        if namespaced && self.key.namespace.is_empty() {
            return Err(DocumentError::Missing("a namespace: delete it with Reconcile::delete_in").into());
        }
        self.delete_child(resource, if namespaced { &self.key.namespace } else { "" }, name, propagation).await
    }

    async fn delete_child(
        &self,
        resource: &ApiResource,
        namespace: &str,
        name: &str,
        propagation: PropagationPolicy,
    ) -> Result<bool, ControllerError> {
        self.may_write()?;
        let children = self.children(resource)?;
        let Some(live) = children.store.live(namespace, name) else { return Ok(false) };
        let manager = &self.reconciler.applier.field_manager().name;
        if live.deleting || refusal(&live, &self.observed.uid, manager).is_some() {
            return Ok(false);
        }
        let delete = self.reconciler.applier.delete(resource, namespace, name, &live, propagation);
        match delete.await? {
            DeleteOutcome::Accepted => {
                children.store.deleting(namespace, name, &live);
                Ok(true)
            }
            DeleteOutcome::AlreadyGone => Ok(false),
        }
    }

    /// Publishes events about the object. That each is said once is the caller's business: say one when
    /// [`status`](Self::status) was written. One that cannot be published is logged.
    pub async fn publish(&self, events: &[PlannedEvent]) {
        self.reconciler.events.publish(&*self.object, events).await;
    }

    /// The object as it is now, writes of this pass included.
    fn current(&self) -> Arc<Observed<K>> {
        let current = self.reconciler.store.get(&self.key.namespace, &self.key.name);
        current.filter(|current| current.uid == self.observed.uid).unwrap_or_else(|| self.observed.clone())
    }

    fn children(&self, resource: &ApiResource) -> Result<&Children, DocumentError> {
        let ApiResource { api_version, kind, .. } = resource;
        let children = self.reconciler.children.get(&(api_version.clone(), kind.clone()));
        children.ok_or_else(|| DocumentError::UnknownKind { api_version: api_version.clone(), kind: kind.clone() })
    }
}

impl<K> Reconcile<K>
where
    K: Kind + HasStatus<Status: Serialize>,
{
    /// Applies the status, complete: what the last one had and this one has not is taken away. What others wrote beside
    /// it stays. Returns whether anything had to be written. While validators run in the controller, the condition
    /// `Valid` is theirs.
    ///
    /// It is the status of this kind, and of this object: a controller has no way to name another's.
    ///
    /// ```compile_fail,E0308
    /// use kube::CustomResource;
    /// use portcullis_controller::{ControllerError, Reconcile};
    /// use schemars::JsonSchema;
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    /// #[kube(group = "shop.example", version = "v1", kind = "Order", namespaced, status = "OrderStatus")]
    /// struct OrderSpec {}
    ///
    /// #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
    /// struct OrderStatus {}
    ///
    /// #[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
    /// struct BillStatus {}
    ///
    /// async fn report(cx: &Reconcile<Order>) -> Result<bool, ControllerError> {
    ///     cx.status(&BillStatus {}).await // with OrderStatus {} it compiles
    /// }
    /// ```
    ///
    /// # Errors
    /// When the API server does not take it.
    pub async fn status(&self, status: &K::Status) -> Result<bool, ControllerError> {
        self.may_write()?;
        let status = serde_json::to_value(status);
        let mut status =
            status.map_err(|source| ControllerError::Status { object: self.observed.describe(), source })?;
        if self.reconciler.validators.is_some()
            && let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut)
        {
            conditions.retain(|condition| condition["type"] != VALID);
        }
        let live = self.current();
        let manager = &self.reconciler.writer.managers.status;
        self.reconciler
            .written(&live, None, self.reconciler.writer.status(&live, manager, live.held_status.as_deref(), status))
            .await
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response};
    use kube::CustomResource;
    use kube::client::Body;
    use kube::core::DeserializeGuard;
    use schemars::JsonSchema;
    use serde::Deserialize;
    use serde_json::json;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::Controller;
    use crate::Runtime;
    use crate::observed::Managers;

    #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    #[kube(group = "reconciler.example", version = "v1", kind = "Part", namespaced, status = "PartStatus")]
    struct PartSpec {
        size: u32,
    }

    #[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
    struct PartStatus {
        size: u32,
    }

    fn part(version: u32, size: u32) -> Value {
        json!({
            "apiVersion": "reconciler.example/v1", "kind": "Part", "spec": {"size": size},
            "metadata": {"name": "a", "namespace": "team", "uid": "u", "resourceVersion": version.to_string()},
        })
    }

    fn observed(part: &Value) -> Observed<Part> {
        let part: DeserializeGuard<Part> = serde_json::from_value(part.clone()).unwrap();
        Observed::of(part, &Managers::of("parts"), |_| Vec::new())
    }

    /// The watch has put the change into the store and tells of it while the status is written.
    #[tokio::test]
    async fn a_change_after_the_reconcile_began_is_not_taken_for_seen_because_the_store_has_it() {
        let answers = tower::service_fn(|_: Request<Body>| async {
            let mut answer = part(7, 2);
            answer["status"] = json!({"size": 1});
            answer["metadata"]["managedFields"] = json!([{"manager": "parts-status", "operation": "Apply",
                "subresource": "status", "fieldsType": "FieldsV1", "fieldsV1": {"f:status": {"f:size": {}}}}]);
            Ok::<_, Infallible>(Response::new(Body::from(answer.to_string().into_bytes())))
        });
        let controller = Controller::<Part>::named("parts");
        let runtime = Runtime::new(kube::Client::new(answers, "default"), "default", CancellationToken::new());
        let reconciler = Arc::new(controller.reconciler(&runtime));
        reconciler.store.delivered("", observed(&part(5, 1)));
        let queue = reconciler.changes.queue.clone();
        let reconcile = async |cx: Reconcile<Part>| {
            let change = cx.reconciler.store.delivered("", observed(&part(6, 2)));
            cx.status(&PartStatus { size: cx.object.spec.size }).await?;
            cx.reconciler.changes.delivered(&change);
            Ok::<_, ControllerError>(Action::await_change())
        };
        let next = reconciler.reconcile(Key::new("team", "a"), &reconcile).await.map_err(|error| error.to_string());
        assert_eq!(next, Ok(Action::await_change()));
        assert_eq!(queue.asked(), [Key::new("team", "a")]);
    }
}
