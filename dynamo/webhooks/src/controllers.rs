//! What is done with objects that are stored. The SDK asks the validators while webhooks are off, and says in the condition
//! `Valid` what they answer; all that is left is to note which generation was accepted last.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::predicates;
use portcullis::controller::{Action, Controller, ControllerError, EventType, PlannedEvent, Reconcile};
use portcullis::operator::{Components, Switch};

use crate::kinds::{
    DynamoComponentDeployment, DynamoGraphDeployment, DynamoGraphDeploymentRequest, DynamoKind, DynamoModel, Status,
};

/// From these on, a request is immutable.
const PROFILED: [&str; 4] = ["Profiling", "Deploying", "Ready", "DeploymentDeleted"];
/// The event that says so.
const REJECTED: &str = "SpecChangeRejected";

/// Adds a controller for each kind.
pub(crate) fn with_controllers(components: Components, webhooks: Switch) -> Components {
    let components = with::<DynamoComponentDeployment>(components, "components", webhooks, |_| None);
    let components = with::<DynamoGraphDeployment>(components, "graphs", webhooks, |_| None);
    let components = with::<DynamoModel>(components, "models", webhooks, |_| None);
    with::<DynamoGraphDeploymentRequest>(components, "graph-requests", webhooks, |request| {
        too_late(&request.metadata, request.status.as_ref())
    })
}

/// `rejected` says why the spec of an object is not accepted, although it is valid.
fn with<K: DynamoKind>(
    components: Components,
    name: &str,
    webhooks: Switch,
    rejected: fn(&K) -> Option<String>,
) -> Components {
    // A change of the status is nothing to act on: another operator may write it.
    let controller = Controller::<K>::named(name).predicate(predicates::generation);
    components.controller(controller, move |pass| reconcile(pass, webhooks, rejected))
}

async fn reconcile<K: DynamoKind>(
    cx: Reconcile<K>,
    webhooks: Switch,
    rejected: fn(&K) -> Option<String>,
) -> Result<Action, ControllerError> {
    // Where webhooks validate, the operator that runs the graphs may be Dynamo's own, and the status is its alone.
    if webhooks.is_on() {
        cx.status(&Status::default()).await?;
        return Ok(Action::await_change());
    }
    let mut accepted = cx.object.meta().generation;
    if let Some(why) = rejected(&cx.object) {
        cx.publish(&[PlannedEvent::new(EventType::Warning, REJECTED, &why)]).await;
        accepted = cx.object.status().and_then(|status| status.observed_generation);
    }
    cx.status(&Status { observed_generation: accepted, ..Status::default() }).await?;
    Ok(Action::await_change())
}

/// Of a request whose spec changed although it is profiled, or was.
fn too_late(metadata: &ObjectMeta, status: Option<&Status>) -> Option<String> {
    let status = status?;
    let state = status.state.as_deref().filter(|state| PROFILED.contains(state))?;
    let changed = status.observed_generation.is_some() && status.observed_generation != metadata.generation;
    changed.then(|| {
        format!(
            "Cannot modify spec in state '{state}'. DynamoGraphDeploymentRequest is immutable once profiling starts. Create \
             a new resource with a different name instead."
        )
    })
}
