//! The writes to the objects that a controller is for: status by server-side apply, finalizers by a JSON patch that
//! tests what it replaces.

use std::fmt::Debug;
use std::time::Duration;

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, TestOperation};
use kube::api::{Patch, PatchParams};
use kube::core::DeserializeGuard;
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::apply::{apply_empties_status, prune, status_needs_apply};
use super::observed::Managers;
use super::{ControllerError, KindScope, Observed, Stored as _};

/// Deadline of one request.
const DEADLINE: Duration = Duration::from_secs(40);

/// Kinds that a controller can reconcile: those of k8s-openapi and all that kube derives, namespaced or cluster-scoped.
pub trait Kind:
    Resource<DynamicType = (), Scope: KindScope> + Clone + Debug + DeserializeOwned + Serialize + Send + Sync + 'static
{
}

impl<K> Kind for K where
    K: Resource<DynamicType = (), Scope: KindScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize
        + Send
        + Sync
        + 'static
{
}

/// Writes to objects of one kind.
pub(super) struct Writer<K> {
    pub(super) client: Client,
    pub(super) managers: Managers,
    pub(super) tokens: fn(&K) -> Vec<String>,
}

impl<K: Kind> Writer<K> {
    /// Applies `status` under `manager`, which holds `held`, when that differs from what `live` has; returns what the API
    /// server made of it, `None` when there was nothing to do or nothing is left to write to.
    pub(super) async fn status(
        &self,
        live: &Observed<K>,
        manager: &str,
        held: Option<&str>,
        mut status: Value,
    ) -> Result<Option<Observed<K>>, ControllerError> {
        prune(&mut status);
        let state = live.status(held);
        if !status_needs_apply(&state, &status) {
            return Ok(None);
        }
        if apply_empties_status(&state, &status) {
            let empty = json_patch::Patch(vec![
                test(["metadata", "uid"], json!(live.uid)),
                test(["status"], state.value),
                add(["status"], json!({})),
            ]);
            let params = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
            let (api, patch) = (self.api(live.namespace()), Patch::Json::<()>(empty));
            return self.answer("empty the status of", live, api.patch_status(live.name(), &params, &patch)).await;
        }
        // The uid keeps the status of a deleted object off its successor.
        let mut document = json!({
            "apiVersion": K::api_version(&()),
            "kind": K::kind(&()),
            "metadata": {"name": live.name(), "uid": live.uid},
            "status": status,
        });
        if K::Scope::NAMESPACED {
            document["metadata"]["namespace"] = json!(live.namespace());
        }
        let params = PatchParams::apply(manager).force();
        let (api, patch) = (self.api(live.namespace()), Patch::Apply(&document));
        self.answer("apply the status of", live, api.patch_status(live.name(), &params, &patch)).await
    }

    /// Puts the finalizer `name` on or takes it off; returns what the API server made of it, `None` when there was
    /// nothing to do or the object is gone. A successor of the same name is left alone.
    pub(super) async fn finalizer(
        &self,
        live: &Observed<K>,
        name: &str,
        wanted: bool,
    ) -> Result<Option<Observed<K>>, ControllerError> {
        let held = live.finalizers.iter().any(|finalizer| finalizer == name);
        let finalizers = ["metadata", "finalizers"];
        let (known, change) = match (wanted, held) {
            (true, false) if live.finalizers.is_empty() => {
                // The patch fails if another client has added a finalizer since, which it would erase.
                (Value::Null, add(finalizers, json!([name])))
            }
            (true, false) => (json!(live.finalizers), add(["metadata", "finalizers", "-"], json!(name))),
            (false, true) => {
                let rest: Vec<&String> = live.finalizers.iter().filter(|finalizer| *finalizer != name).collect();
                (json!(live.finalizers), add(finalizers, json!(rest)))
            }
            _ => return Ok(None),
        };
        let patch =
            json_patch::Patch(vec![test(["metadata", "uid"], json!(live.uid)), test(finalizers, known), change]);
        let params = PatchParams { field_manager: Some(self.managers.finalizers.clone()), ..PatchParams::default() };
        let (api, patch) = (self.api(live.namespace()), Patch::Json::<()>(patch));
        self.answer("patch the finalizers of", live, api.patch(live.name(), &params, &patch)).await
    }

    fn api(&self, namespace: &str) -> Api<DeserializeGuard<K>> {
        K::Scope::api(self.client.clone(), namespace)
    }

    async fn answer(
        &self,
        verb: &'static str,
        live: &Observed<K>,
        write: impl Future<Output = Result<DeserializeGuard<K>, kube::Error>>,
    ) -> Result<Option<Observed<K>>, ControllerError> {
        let object = || live.describe();
        match tokio::time::timeout(DEADLINE, write).await {
            Ok(Ok(written)) => Ok(Some(Observed::of(written, &self.managers, self.tokens))),
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => Ok(None),
            Ok(Err(source)) => Err(ControllerError::Request { verb, object: object(), source: Box::new(source) }),
            Err(_) => Err(ControllerError::Timeout { verb, object: object(), seconds: DEADLINE.as_secs() }),
        }
    }
}

fn test<const N: usize>(path: [&str; N], value: Value) -> PatchOperation {
    PatchOperation::Test(TestOperation { path: PointerBuf::from_tokens(path), value })
}

/// The operation `add` replaces a member that exists.
fn add<const N: usize>(path: [&str; N], value: Value) -> PatchOperation {
    PatchOperation::Add(AddOperation { path: PointerBuf::from_tokens(path), value })
}
