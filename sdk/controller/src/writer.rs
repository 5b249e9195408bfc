//! The writes to the objects that a controller is for: status by server-side apply, finalizers by a JSON patch that
//! tests what it replaces.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, TestOperation};
use kube::api::{Patch, PatchParams};
use kube::core::DeserializeGuard;
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tracing::warn;

use super::apply::{
    Reason, Repairs, StatusState, apply_empties_status, digest_of, is_fight, prune, status_needs_apply,
};
use super::observed::Managers;
use super::{ControllerError, Key, KindScope, Observed, Queue, Stored as _};

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
    pub(super) repairs: Arc<Repairs>,
    pub(super) queue: Arc<Queue>,
}

impl<K: Kind> Writer<K> {
    /// Applies `status` under `manager`, which holds `held`, when that differs from what `live` has; returns what the API
    /// server made of it, `None` when there was nothing to do or nothing is left to write to. A write that others undo again
    /// and again waits for its turn: then it is `None` as well, and the object is reconciled again.
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
        let (object, digest) = (format!("{manager} of {}", live.describe()), timeless(&status));
        let count = match self.repairs.turn(&object, &digest, &Reason::Changed) {
            Ok(count) => count,
            Err(rest) => {
                self.queue.add_after(Key::of(live), rest);
                return Ok(None);
            }
        };
        let written = self.apply(live, manager, state, status).await?;
        if written.is_some() {
            self.repairs.wrote(&object, &digest, Reason::Changed, count);
            if is_fight(count) {
                let (object, others, next) =
                    (live.describe(), live.status_writers.join(", "), self.repairs.next(count));
                warn!(
                    object,
                    field_managers = others,
                    writes = count,
                    ?next,
                    "the status does not stay as it is written; writing it ever more slowly"
                );
            }
        }
        Ok(written)
    }

    async fn apply(
        &self,
        live: &Observed<K>,
        manager: &str,
        state: StatusState,
        status: Value,
    ) -> Result<Option<Observed<K>>, ControllerError> {
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
                // Nobody has added one since: otherwise this would erase it.
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
            Err(_) => Err(ControllerError::Deadline { verb, object: object(), seconds: DEADLINE.as_secs() }),
        }
    }
}

/// The digest of a status but for the times of its conditions: a repair of a condition is a transition each time.
fn timeless(status: &Value) -> String {
    let mut status = status.clone();
    for condition in status.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten() {
        condition.as_object_mut().map(|condition| condition.remove("lastTransitionTime"));
    }
    digest_of(&status)
}

fn test<const N: usize>(path: [&str; N], value: Value) -> PatchOperation {
    PatchOperation::Test(TestOperation { path: PointerBuf::from_tokens(path), value })
}

/// In an object, that replaces what is there.
fn add<const N: usize>(path: [&str; N], value: Value) -> PatchOperation {
    PatchOperation::Add(AddOperation { path: PointerBuf::from_tokens(path), value })
}
