//! The context of a reconcile.

mod reconciler;
mod validity;

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Resource;
use kube::api::PropagationPolicy;
use kube::core::ApiResource;
use kube::core::object::HasStatus;
use serde::Serialize;
use serde_json::Value;

use super::apply::{DeleteOutcome, Desired, DocumentError, Ensured, Undone, refusal};
use super::children::Children;
use super::kind_scope::full_name;
use super::{Action, Conditions, ControllerError, EventType, Key, Kind, Observed, PlannedEvent, VALID};
use reconciler::LOOK_AGAIN;

pub(super) use reconciler::{CleanUp, OnInvalid, Reconciler};

/// One reconcile of one object: the object as it was observed, and methods to write what it needs. A write that would
/// change nothing is not sent.
#[derive(Clone)]
pub struct Reconcile<K> {
    /// Namespace and name.
    pub key: Key,
    /// The object, without `managedFields`.
    pub object: Arc<K>,
    pub(super) observed: Arc<Observed<K>>,
    pub(super) reconciler: Arc<Reconciler<K>>,
}

/// An object that is being deleted and still has this controller's finalizer.
#[derive(Debug)]
pub struct Deletion<K> {
    /// Namespace and name.
    pub key: Key,
    /// The object and the methods to write, or the error if the object does not decode.
    pub reconcile: Result<Reconcile<K>, String>,
}

/// The outcome of applying a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The child is as desired; nothing was written.
    Unchanged,
    /// The child was written.
    Written,
    /// An existing object of that name is being deleted. The owner is reconciled again when it is gone.
    Terminating,
    /// Another client undoes this write again and again. It is repeated at growing intervals (by the controller's
    /// [`Backoff`](super::Backoff)), and the owner is reconciled again when it is due.
    Delayed,
}

/// The outcome of a cleanup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cleanup {
    /// The cleanup is complete: the finalizer is removed.
    Done,
    /// The cleanup is not complete: it runs again as the action says.
    Pending(Action),
}

impl<K> std::fmt::Debug for Reconcile<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reconcile").field("key", &self.key).finish_non_exhaustive()
    }
}

impl<K: Kind> Reconcile<K> {
    /// Checks that this reconcile may still write. The methods below check it themselves; call it before writes of your
    /// own.
    ///
    /// # Errors
    /// When the namespace was handed over to another operator, or this replica lost leadership, since the reconcile
    /// began.
    pub async fn may_write(&self) -> Result<(), ControllerError> {
        self.reconciler.may_write(&self.observed).await
    }

    /// Returns a client with the operator's ServiceAccount, for other requests of the reconcile. It may `get`, `list`
    /// and `watch` the kinds that the controller owns and watches; [`Controller::rbac`](super::Controller::rbac) grants
    /// more.
    pub fn client(&self) -> kube::Client {
        self.reconciler.writer.client.clone()
    }

    /// Applies `child`. Its owner reference and the owner's namespace are added; a namespaced child of a cluster-scoped
    /// owner states its own namespace. Set only the fields that you want to own, and copy none from a fetched object.
    ///
    /// # Errors
    /// When the API server rejects it, when an object of that name does not belong to this controller, and when
    /// [`Controller::owns`](super::Controller::owns) does not name its kind.
    pub async fn apply<C>(&self, child: &C) -> Result<Applied, ControllerError>
    where
        C: Resource<DynamicType = ()> + Serialize,
    {
        let document = serde_json::to_value(child).map_err(|error| DocumentError::Json(error.to_string()))?;
        self.apply_dynamic(&ApiResource::erase::<C>(&()), document).await
    }

    /// Like [`apply`](Self::apply), for children of several kinds: `document` is an object of `resource`.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub async fn apply_dynamic(&self, resource: &ApiResource, document: Value) -> Result<Applied, ControllerError> {
        self.may_write().await?;
        let children = self.children(resource)?;
        let field_manager = self.reconciler.applier.field_manager();
        let desired = Desired::child_of(&*self.object, resource, document, field_manager, children.namespaced)?;
        let live = children.store.live(desired.namespace(), desired.name());
        let begun = children.store.begin();
        match self.reconciler.applier.ensure(live.as_ref(), &desired, &self.observed.uid).await? {
            Ensured::Kept => Ok(Applied::Unchanged),
            Ensured::Waits => {
                // A change of a child enqueues the owner that it names. This one may name none, or another.
                if live.is_none_or(|live| live.controller.as_ref() != Some(&self.observed.uid)) {
                    self.reconciler.changes.queue.add_after(self.key.clone(), LOOK_AGAIN);
                }
                Ok(Applied::Terminating)
            }
            Ensured::Written(live, undone) => {
                children.store.written(&desired, live, begun);
                if let Some(undone) = undone {
                    self.report(&undone).await;
                }
                Ok(Applied::Written)
            }
            Ensured::Delayed(rest) => {
                self.reconciler.changes.queue.add_after(self.key.clone(), rest);
                Ok(Applied::Delayed)
            }
            Ensured::Refused(refusal) => {
                let object = format!("{} {}", resource.kind, full_name(desired.namespace(), desired.name()));
                Err(ControllerError::NameTaken { object, refusal })
            }
        }
    }

    /// Reports a write that others undo again and again: in the log each time, in an event once.
    async fn report(&self, Undone { problem, is_known }: &Undone) {
        let Key { namespace, name } = &self.key;
        let kind = K::kind(&());
        tracing::warn!(%kind, namespace, name, problem, "a child is changed after each apply; repairing it at growing intervals");
        if !is_known {
            self.publish_events(&[PlannedEvent::new(EventType::Warning, "RepairUndone", problem)]).await;
        }
    }

    /// Deletes the child of this kind and name, in the object's namespace if the kind is namespaced; returns whether
    /// there was one. An object of that name that does not belong to this controller, or is already being deleted, is
    /// left alone.
    ///
    /// # Errors
    /// When the API server rejects it, and when [`Controller::owns`](super::Controller::owns) does not name its kind.
    pub async fn delete<C: Resource<DynamicType = ()>>(
        &self,
        name: &str,
        propagation: PropagationPolicy,
    ) -> Result<bool, ControllerError> {
        self.delete_dynamic(&ApiResource::erase::<C>(&()), name, propagation).await
    }

    /// Like [`delete`](Self::delete), in this namespace, for a cluster-scoped owner.
    ///
    /// # Errors
    /// As [`delete`](Self::delete).
    pub async fn delete_in<C: Resource<DynamicType = ()>>(
        &self,
        namespace: &str,
        name: &str,
        propagation: PropagationPolicy,
    ) -> Result<bool, ControllerError> {
        self.delete_child(&ApiResource::erase::<C>(&()), namespace, name, propagation).await
    }

    /// Like [`delete`](Self::delete), for children of several kinds.
    ///
    /// # Errors
    /// As [`delete`](Self::delete).
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
        self.may_write().await?;
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

    /// Publishes events about the object. To publish each one once, do so only when
    /// [`apply_status`](Self::apply_status) has written something. A failure is only logged.
    pub async fn publish_events(&self, events: &[PlannedEvent]) {
        self.reconciler.events.publish(&*self.object, events).await;
    }

    /// Returns empty conditions, to build those of the status; `previous` are those of the last status.
    pub fn conditions<'a>(&self, previous: Option<&'a Vec<Condition>>) -> Conditions<'a> {
        Conditions::new(previous, self.object.meta().generation, Timestamp::now())
    }

    /// The object as it is now, writes of this reconcile included.
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
    /// Applies the complete status: fields that the last one had and this one lacks are removed, fields of other
    /// managers stay. Returns whether anything was written. While validators run in the controller, they own the
    /// condition `Valid`.
    ///
    /// Only this object's status can be written, and only with the status type of its kind.
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
    ///     cx.apply_status(&BillStatus {}).await // with OrderStatus {} it compiles
    /// }
    /// ```
    ///
    /// # Errors
    /// When the API server rejects it.
    pub async fn apply_status(&self, status: &K::Status) -> Result<bool, ControllerError> {
        self.may_write().await?;
        let status = serde_json::to_value(status);
        let mut status =
            status.map_err(|source| ControllerError::Status { object: self.observed.describe(), source })?;
        if self.reconciler.offline.is_some()
            && let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut)
        {
            conditions.retain(|condition| condition["type"] != VALID);
        }
        let live = self.current();
        let manager = &self.reconciler.writer.managers.status;
        self.reconciler
            .written(self.reconciler.writer.status(&live, manager, live.held_status.as_deref(), status))
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

    /// The watch has put the change into the store and delivers it while the status is written.
    #[tokio::test]
    async fn a_change_during_a_reconcile_is_not_taken_for_seen() {
        let answers = tower::service_fn(|_: Request<Body>| async {
            let mut answer = part(7, 2);
            answer["status"] = json!({"size": 1});
            answer["metadata"]["managedFields"] = json!([{"manager": "parts-status", "operation": "Apply",
                "subresource": "status", "fieldsType": "FieldsV1", "fieldsV1": {"f:status": {"f:size": {}}}}]);
            Ok::<_, Infallible>(Response::new(Body::from(answer.to_string().into_bytes())))
        });
        let controller = Controller::<Part>::new("parts");
        let runtime = Runtime::new(kube::Client::new(answers, "default"), "default", CancellationToken::new());
        let reconciler = Arc::new(controller.reconciler(&runtime));
        reconciler.store.delivered("", observed(&part(5, 1)));
        let queue = reconciler.changes.queue.clone();
        let reconcile = async |cx: Reconcile<Part>| {
            let change = cx.reconciler.store.delivered("", observed(&part(6, 2)));
            cx.apply_status(&PartStatus { size: cx.object.spec.size }).await?;
            cx.reconciler.changes.delivered(&change);
            Ok::<_, ControllerError>(Action::await_change())
        };
        let next = reconciler.reconcile(Key::new("team", "a"), &reconcile).await.map_err(|error| error.to_string());
        assert_eq!(next, Ok(Action::await_change()));
        assert_eq!(queue.asked(), [Key::new("team", "a")]);
    }
}
