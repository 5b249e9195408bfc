//! The writes themselves: one server-side apply, one delete with preconditions. Nothing here reads.

use std::{fmt::Debug, time::Duration};

use json_patch::{
    PatchOperation, RemoveOperation, TestOperation,
    jsonptr::{PointerBuf, Token},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions, PropagationPolicy},
};

use serde::Serialize;

use super::{ChildKind, Desired, Live, names::MERGE};

/// Deadline of one write, admission webhooks of others included (they get at most 30 s).
const DEADLINE: Duration = Duration::from_secs(40);

/// A write that did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// The API server refused it or could not be reached; retry with backoff.
    #[error("cannot {verb} {kind} {namespace}/{name}: {}", said(source))]
    Refused {
        /// `apply` or `delete`.
        verb: &'static str,
        /// The kind written.
        kind: String,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// What the API server said.
        source: Box<kube::Error>,
    },
    /// No answer within the deadline; retry with backoff.
    #[error("no answer within {seconds} s to {verb} {kind} {namespace}/{name}")]
    Deadline {
        /// `apply` or `delete`.
        verb: &'static str,
        /// The kind written.
        kind: String,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// The deadline, in seconds.
        seconds: u64,
    },
}

/// What became of a delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteOutcome {
    /// The API server accepted it.
    Accepted,
    /// It was gone, or another object has its name now.
    AlreadyGone,
}

/// Writes children under one field manager.
#[derive(Clone)]
pub struct Applier {
    client: Client,
    manager: &'static str,
}

// === impl ApplyError ===

impl ApplyError {
    /// The API server says that the object would not be valid.
    fn is_invalid(&self) -> bool {
        matches!(self, Self::Refused { source, .. } if matches!(&**source, kube::Error::Api(status) if status.code == 422))
    }
}

// === impl Applier ===

impl Debug for Applier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Applier").field("manager", &self.manager).finish_non_exhaustive()
    }
}

impl Applier {
    /// An applier for the children of one controller.
    pub fn new(client: Client, manager: &'static str) -> Self {
        Self { client, manager }
    }

    /// The field manager of its writes.
    pub fn manager(&self) -> &'static str {
        self.manager
    }

    /// Applies `desired` with force (fields that others took come back) and returns the traces of the result.
    ///
    /// `over` says that the object exists. Then a result that would be invalid is taken for what others put beside our
    /// elements in a list (a Service's port under a new number and our name), which an apply cannot remove: a merge,
    /// which replaces lists, does, and the apply is repeated.
    pub async fn apply(&self, desired: &Desired, over: bool) -> Result<Live, ApplyError> {
        let metadata = match self.send(desired).await {
            Err(error) if over && error.is_invalid() => {
                self.merge(desired).await.map_err(|_| error)?;
                let metadata = self.send(desired).await?;
                self.forget_merge(desired, metadata).await?
            }
            result => result?,
        };
        Ok(Live::read(&metadata, self.manager))
    }

    async fn send(&self, desired: &Desired) -> Result<ObjectMeta, ApplyError> {
        let params = PatchParams::apply(self.manager).force();
        self.patch(desired, &params, &Patch::Apply(desired.document())).await
    }

    async fn merge(&self, desired: &Desired) -> Result<ObjectMeta, ApplyError> {
        let params = PatchParams { field_manager: Some(MERGE.to_owned()), ..PatchParams::default() };
        self.patch(desired, &params, &Patch::Merge(desired.document())).await
    }

    /// Takes the merge's own entry out of `managedFields`: what two entries hold cannot be dropped by one.
    async fn forget_merge(&self, desired: &Desired, metadata: ObjectMeta) -> Result<ObjectMeta, ApplyError> {
        let entries = metadata.managed_fields.as_deref().unwrap_or_default();
        let Some(at) = entries.iter().position(|entry| entry.manager.as_deref() == Some(MERGE)) else {
            return Ok(metadata);
        };
        let entry = PointerBuf::from_tokens(["metadata".into(), "managedFields".into(), Token::from(at)]);
        let mut manager = entry.clone();
        manager.push_back("manager");
        let patch = json_patch::Patch(vec![
            PatchOperation::Test(TestOperation { path: manager, value: MERGE.into() }),
            PatchOperation::Remove(RemoveOperation { path: entry }),
        ]);
        let params = PatchParams { field_manager: Some(MERGE.to_owned()), ..PatchParams::default() };
        self.patch(desired, &params, &Patch::Json::<()>(patch)).await
    }

    async fn patch<P: Serialize + Debug>(
        &self,
        desired: &Desired,
        params: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<ObjectMeta, ApplyError> {
        let api = self.api(desired.kind(), desired.namespace());
        let write = api.patch_metadata(desired.name(), params, patch);
        Ok(within("apply", desired.kind(), desired.namespace(), desired.name(), write).await?.metadata)
    }

    /// Deletes exactly the object that `live` was read from: another one of the same name is left alone.
    pub async fn delete(
        &self,
        kind: ChildKind,
        namespace: &str,
        name: &str,
        live: &Live,
    ) -> Result<DeleteOutcome, ApplyError> {
        let api = self.api(kind, namespace);
        // A Deployment stays until its pods are gone: the one that follows must not serve beside them.
        let propagation = match kind {
            ChildKind::Deployment => PropagationPolicy::Foreground,
            _ => PropagationPolicy::Background,
        };
        let params = DeleteParams {
            propagation_policy: Some(propagation),
            preconditions: Some(Preconditions { uid: Some(live.uid.clone()), resource_version: None }),
            ..DeleteParams::default()
        };
        match within("delete", kind, namespace, name, api.delete(name, &params)).await {
            Ok(_) => Ok(DeleteOutcome::Accepted),
            Err(ApplyError::Refused { source, .. }) if is_gone(&source) => Ok(DeleteOutcome::AlreadyGone),
            Err(error) => Err(error),
        }
    }

    fn api(&self, kind: ChildKind, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &kind.api_resource())
    }
}

/// The API server's own sentence; what else its answer holds repeats that.
pub fn said(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        other => other.to_string(),
    }
}

/// 404: gone. 409: the uid in the preconditions is another one's.
fn is_gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404 || status.code == 409)
}

async fn within<T>(
    verb: &'static str,
    kind: ChildKind,
    namespace: &str,
    name: &str,
    write: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, ApplyError> {
    let (kind, namespace, name) = (format!("{kind:?}"), namespace.to_owned(), name.to_owned());
    match tokio::time::timeout(DEADLINE, write).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(source)) => Err(ApplyError::Refused { verb, kind, namespace, name, source: Box::new(source) }),
        Err(_) => Err(ApplyError::Deadline { verb, kind, namespace, name, seconds: DEADLINE.as_secs() }),
    }
}
