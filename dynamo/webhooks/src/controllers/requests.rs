//! Requests. The spec of a request can be corrected until profiling starts; after that it is immutable.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::PartialObjectMeta;
use kube::{Api, ResourceExt as _};
use portcullis::controller::{
    Action, ConditionStatus, Controller, ControllerError, EventType, Key, PlannedEvent, Reconcile,
};
use tracing::info;

use super::{VALIDATION_FAILED, accept, refused, unchanged};
use crate::kinds::{DynamoGraphDeploymentRequest, Status};

/// The states from which on a request is immutable.
const PROFILED: [&str; 4] = ["Profiling", "Deploying", "Ready", "DeploymentDeleted"];
/// The reason of the event and of the condition that say so.
const REJECTED: &str = "SpecChangeRejected";
/// The state of a request that is refused, and the condition that says why.
const FAILED: &str = "Failed";
const VALIDATION: &str = "Validation";

type Request = DynamoGraphDeploymentRequest;

/// Lets the controller read the ConfigMaps that requests name, too: it watches their metadata.
pub(super) fn watching(requests: Controller<Request>) -> Controller<Request> {
    requests
        .index_by(|request| request.spec.profiling_config.config_map_ref.iter().map(|map| map.name.clone()).collect())
        .watches::<PartialObjectMeta<ConfigMap>>(|map, requests| {
            let namespace = map.namespace().unwrap_or_default();
            let named = requests.find(&namespace, &map.name_any());
            named.iter().map(|request| Key::from_object(&**request)).collect()
        })
        .on_invalid(on_invalid)
}

pub(super) async fn reconcile(cx: Reconcile<Request>) -> Result<Action, Box<dyn std::error::Error + Send + Sync>> {
    if let Some(why) = too_late(&cx.object) {
        return Ok(reject(&cx, &why).await?);
    }
    if !is_new(cx.object.status.as_ref()) {
        return Ok(accept(cx).await?);
    }
    let Some(problem) = missing_config_map(&cx).await? else { return Ok(accept(cx).await?) };
    // The SDK reports a problem that validators find, in the log and in an event.
    if cx.apply_status(&refused(&cx, FAILED, VALIDATION, problem.clone())).await? {
        info!(namespace = cx.key.namespace, name = cx.key.name, problem, "DynamoGraphDeploymentRequest is refused");
        cx.publish_events(&[PlannedEvent::new(EventType::Warning, VALIDATION_FAILED, &problem)]).await;
    }
    Ok(Action::await_change())
}

async fn on_invalid(cx: Reconcile<Request>, problem: String) -> Result<Action, ControllerError> {
    if let Some(why) = too_late(&cx.object) {
        return reject(&cx, &why).await;
    }
    let is_new = is_new(cx.object.status.as_ref());
    cx.apply_status(&if is_new { refused(&cx, FAILED, VALIDATION, problem) } else { unchanged(&*cx.object) }).await?;
    Ok(Action::await_change())
}

/// Reports that the change of the spec is not accepted. The condition keeps the event from being published again by the
/// next process.
async fn reject(cx: &Reconcile<Request>, why: &str) -> Result<Action, ControllerError> {
    let mut conditions = cx.conditions(cx.object.status.as_ref().and_then(|status| status.conditions.as_ref()));
    conditions.set(VALIDATION, ConditionStatus::False, REJECTED, why);
    if cx.apply_status(&Status { conditions: conditions.into_list(), ..unchanged(&*cx.object) }).await? {
        cx.publish_events(&[PlannedEvent::new(EventType::Warning, REJECTED, why)]).await;
    }
    Ok(Action::await_change())
}

/// The reason to reject a request whose spec changed during or after profiling.
fn too_late(request: &Request) -> Option<String> {
    let status = request.status.as_ref()?;
    let state = status.state.as_deref().filter(|state| PROFILED.contains(state))?;
    let changed = status.observed_generation.is_some() && status.observed_generation != request.metadata.generation;
    changed.then(|| {
        format!(
            "Cannot modify spec in state '{state}'. DynamoGraphDeploymentRequest is immutable once profiling starts. Create \
             a new resource with a different name instead."
        )
    })
}

/// Whether nothing was begun for the request: it has no state, or the one that it gets here. Dynamo never looks again
/// at one that it refused.
fn is_new(status: Option<&Status>) -> bool {
    let refused = |status: &Status| {
        status.conditions.iter().flatten().any(|it| it.type_ == VALIDATION && it.reason == VALIDATION_FAILED)
    };
    status.is_none_or(|status| match status.state.as_deref() {
        None | Some("") => true,
        Some(state) => state == FAILED && refused(status),
    })
}

/// Says what is missing: the ConfigMap that the request names, or its key.
async fn missing_config_map(cx: &Reconcile<Request>) -> Result<Option<String>, kube::Error> {
    let Some(named) = &cx.object.spec.profiling_config.config_map_ref else { return Ok(None) };
    let (namespace, name, key) = (&cx.key.namespace, &named.name, &named.key);
    let Some(map) = Api::<ConfigMap>::namespaced(cx.client(), namespace).get_opt(name).await? else {
        return Ok(Some(format!("ConfigMap {name} not found in namespace {namespace}")));
    };
    let has_key = map.data.is_some_and(|data| data.contains_key(key));
    Ok((!has_key).then(|| format!("key {key} not found in ConfigMap {name}")))
}
