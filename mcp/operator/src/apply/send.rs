//! The writes themselves: one server-side apply, one delete with preconditions. Nothing here reads.

use std::time::Duration;

use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions, PropagationPolicy},
};

use super::{ChildKind, Desired, Live};

/// Deadline of one write, admission webhooks of others included (they get at most 30 s).
const DEADLINE: Duration = Duration::from_secs(40);

/// A write that did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// The API server refused it or could not be reached; retry with backoff.
    #[error("cannot {verb} {kind} {namespace}/{name}: {source}")]
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

// === impl Applier ===

impl std::fmt::Debug for Applier {
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
    pub async fn apply(&self, desired: &Desired) -> Result<Live, ApplyError> {
        let api = self.api(desired.kind(), desired.namespace());
        let params = PatchParams::apply(self.manager).force();
        let patch = Patch::Apply(desired.document());
        let write = api.patch_metadata(desired.name(), &params, &patch);
        let written = within("apply", desired.kind(), desired.namespace(), desired.name(), write).await?;
        Ok(Live::read(&written.metadata, self.manager))
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
