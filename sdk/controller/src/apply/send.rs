//! The writes themselves: one server-side apply, one delete with preconditions. Nothing is read, unless another client
//! undoes a write again and again.

use std::{fmt::Debug, sync::Arc, time::Duration};

use json_patch::{
    PatchOperation, RemoveOperation, TestOperation,
    jsonptr::{PointerBuf, Token},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, Preconditions, PropagationPolicy},
};
use serde::Serialize;

use super::decide::{Decision, Reason, decide};
use super::repairs::{Repairs, Undone, is_fight};
use super::{Desired, FieldManager, Live, Refusal};
use crate::backoff::Backoff;
use crate::kind_scope::full_name;
use portcullis_client::error_message;

/// Deadline of one write, admission webhooks of others included (they get at most 30 s).
const DEADLINE: Duration = Duration::from_secs(40);

/// The reason why a child could not be written or deleted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// The API server refused it or could not be reached; retry with backoff.
    #[error("cannot {verb} {kind} {}: {}", full_name(namespace, name), error_message(&**source))]
    Refused {
        /// `apply` or `delete`.
        verb: &'static str,
        /// The kind written.
        kind: String,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// The API server's answer.
        source: Box<kube::Error>,
    },
    /// No answer within the timeout; retry with backoff.
    #[error("no answer within {seconds} s to {verb} {kind} {}", full_name(namespace, name))]
    Timeout {
        /// `apply` or `delete`.
        verb: &'static str,
        /// The kind written.
        kind: String,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// The timeout, in seconds.
        seconds: u64,
    },
}

/// The result of a delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeleteOutcome {
    /// The API server accepted it.
    Accepted,
    /// It was gone, or another object has its name now.
    AlreadyGone,
}

/// The result of applying a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ensured {
    /// It is as desired; nothing was written.
    Kept,
    /// It was applied; this is the result, and what undoes such writes again and again, if anything does.
    Written(Live, Option<Undone>),
    /// Another client keeps undoing such a write: the next one is due after this time.
    Delayed(Duration),
    /// The one that exists is being deleted.
    Waits,
    /// An object of that name is not ours to change.
    Refused(Refusal),
}

/// Writes children under one field manager.
#[derive(Clone)]
pub(crate) struct Applier {
    client: Client,
    field_manager: FieldManager,
    /// Field manager of the merge that makes way for an apply which others' list elements would make invalid.
    merge: String,
    repairs: Arc<Repairs>,
}

impl ApplyError {
    /// The API server says that the object would not be valid.
    fn is_invalid(&self) -> bool {
        matches!(self, Self::Refused { source, .. } if matches!(&**source, kube::Error::Api(status) if status.code == 422))
    }
}

impl Debug for Applier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Applier").field("field_manager", &self.field_manager).finish_non_exhaustive()
    }
}

impl Applier {
    /// Creates an applier for the children of one controller. `backoff` has the delays between writes that others undo.
    pub(crate) fn new(client: Client, field_manager: FieldManager, backoff: Backoff) -> Self {
        let merge = format!("{}-merge", field_manager.name);
        Self { client, field_manager, merge, repairs: Arc::new(Repairs::new(backoff)) }
    }

    /// The field manager that it applies with.
    pub(crate) fn field_manager(&self) -> &FieldManager {
        &self.field_manager
    }

    /// Makes `desired`, a child of the object with uid `owner`, as desired: applies it where it is absent, differs or
    /// has lost fields to others, and otherwise writes nothing. `live` is its state in the store. Equal writes for the
    /// same reason are repeated at growing intervals.
    ///
    /// # Errors
    /// When the API server rejects it.
    pub(crate) async fn ensure(
        &self,
        live: Option<&Live>,
        desired: &Desired,
        owner: &str,
    ) -> Result<Ensured, ApplyError> {
        match decide(live, desired, owner, &self.field_manager.name) {
            Decision::Keep => Ok(Ensured::Kept),
            Decision::Wait => Ok(Ensured::Waits),
            Decision::Refuse(refusal) => Ok(Ensured::Refused(refusal)),
            Decision::Apply(reason) => {
                let (namespace, name, kind) = (desired.namespace(), desired.name(), &desired.resource().kind);
                let count = match self.repairs.turn(desired, &reason) {
                    Ok(count) => count,
                    Err(rest) => return Ok(Ensured::Delayed(rest)),
                };
                tracing::debug!(namespace, name, kind, ?reason, count, "apply");
                let undone = if is_fight(count) { Some(self.undone(desired, &reason, count).await) } else { None };
                let live = self.apply(desired, live.is_some()).await?;
                self.repairs.wrote(desired, reason, count);
                Ok(Ensured::Written(live, undone))
            }
        }
    }

    /// Says who undoes the writes of `desired`, from the live object. A right to watch it includes one to list it.
    async fn undone(&self, desired: &Desired, reason: &Reason, count: u32) -> Undone {
        let api = self.api(desired.resource(), desired.namespace());
        let one = ListParams::default().fields(&format!("metadata.name={}", desired.name()));
        let read =
            within("list", desired.resource(), desired.namespace(), desired.name(), api.list_metadata(&one)).await;
        let found = read.ok().and_then(|mut list| list.items.pop());
        let metadata = found.as_ref().map(|found| &found.metadata);
        self.repairs.undone(desired, reason, count, metadata, &self.field_manager)
    }

    /// Applies `desired` with force (fields that others took come back) and returns what matters of the result.
    ///
    /// Then takes away what others hold of it and [must not](FieldManager::exclusive).
    ///
    /// `over` says that the object exists. Then a result that would be invalid is taken for what others put beside our
    /// elements in a list (a Service's port under a new number and our name), which an apply cannot remove: a merge,
    /// which replaces lists, does, and the apply is repeated.
    ///
    /// # Errors
    /// When the API server rejects it.
    pub(crate) async fn apply(&self, desired: &Desired, over: bool) -> Result<Live, ApplyError> {
        let metadata = match self.send(desired).await {
            Err(error) if over && error.is_invalid() => {
                self.merge(desired).await.map_err(|_| error)?;
                let metadata = self.send(desired).await?;
                self.forget_merge(desired, metadata).await?
            }
            result => result?,
        };
        let kind = &desired.resource().kind;
        let mut live = self.field_manager.read(kind, &metadata);
        for patch in std::mem::take(&mut live.foreign) {
            let metadata = self.patch(desired, &self.merging(), &Patch::Strategic(patch)).await?;
            live = self.field_manager.read(kind, &metadata);
        }
        Ok(live)
    }

    async fn send(&self, desired: &Desired) -> Result<ObjectMeta, ApplyError> {
        let params = PatchParams::apply(&self.field_manager.name).force();
        self.patch(desired, &params, &Patch::Apply(desired.document())).await
    }

    async fn merge(&self, desired: &Desired) -> Result<ObjectMeta, ApplyError> {
        self.patch(desired, &self.merging(), &Patch::Merge(desired.document())).await
    }

    /// Takes the merge's own entry out of `managedFields`: what two entries hold cannot be dropped by one.
    async fn forget_merge(&self, desired: &Desired, metadata: ObjectMeta) -> Result<ObjectMeta, ApplyError> {
        let entries = metadata.managed_fields.as_deref().unwrap_or_default();
        let Some(at) = entries.iter().position(|entry| entry.manager.as_ref() == Some(&self.merge)) else {
            return Ok(metadata);
        };
        let entry = PointerBuf::from_tokens(["metadata".into(), "managedFields".into(), Token::from(at)]);
        let mut manager = entry.clone();
        manager.push_back("manager");
        let patch = json_patch::Patch(vec![
            PatchOperation::Test(TestOperation { path: manager, value: self.merge.clone().into() }),
            PatchOperation::Remove(RemoveOperation { path: entry }),
        ]);
        self.patch(desired, &self.merging(), &Patch::Json::<()>(patch)).await
    }

    fn merging(&self) -> PatchParams {
        PatchParams { field_manager: Some(self.merge.clone()), ..PatchParams::default() }
    }

    async fn patch<P: Serialize + Debug>(
        &self,
        desired: &Desired,
        params: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<ObjectMeta, ApplyError> {
        let resource = desired.resource();
        let api = self.api(resource, desired.namespace());
        let write = api.patch_metadata(desired.name(), params, patch);
        Ok(within("apply", resource, desired.namespace(), desired.name(), write).await?.metadata)
    }

    /// Deletes exactly the object that `live` was read from: another one of the same name is left alone. `propagation`
    /// says what becomes of its own children, and whether it stays until they are gone.
    ///
    /// # Errors
    /// When the API server rejects it.
    pub(crate) async fn delete(
        &self,
        resource: &ApiResource,
        namespace: &str,
        name: &str,
        live: &Live,
        propagation: PropagationPolicy,
    ) -> Result<DeleteOutcome, ApplyError> {
        let api = self.api(resource, namespace);
        let params = DeleteParams {
            propagation_policy: Some(propagation),
            preconditions: Some(Preconditions { uid: Some(live.uid.clone()), resource_version: None }),
            ..DeleteParams::default()
        };
        match within("delete", resource, namespace, name, api.delete(name, &params)).await {
            Ok(_) => {
                self.repairs.forget(&resource.kind, namespace, name);
                Ok(DeleteOutcome::Accepted)
            }
            Err(ApplyError::Refused { source, .. }) if is_gone(&source) => Ok(DeleteOutcome::AlreadyGone),
            Err(error) => Err(error),
        }
    }

    fn api(&self, resource: &ApiResource, namespace: &str) -> Api<DynamicObject> {
        if namespace.is_empty() {
            return Api::all_with(self.client.clone(), resource);
        }
        Api::namespaced_with(self.client.clone(), namespace, resource)
    }
}

/// 404: gone. 409: the uid in the preconditions is another one's.
fn is_gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404 || status.code == 409)
}

async fn within<T>(
    verb: &'static str,
    resource: &ApiResource,
    namespace: &str,
    name: &str,
    write: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, ApplyError> {
    let (kind, namespace, name) = (resource.kind.clone(), namespace.to_owned(), name.to_owned());
    match tokio::time::timeout(DEADLINE, write).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(source)) => Err(ApplyError::Refused { verb, kind, namespace, name, source: Box::new(source) }),
        Err(_) => Err(ApplyError::Timeout { verb, kind, namespace, name, seconds: DEADLINE.as_secs() }),
    }
}
