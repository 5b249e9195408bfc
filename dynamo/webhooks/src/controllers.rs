//! What is done with objects that are stored. The SDK asks the validators while webhooks are off, and says in the condition
//! `Valid` what they answer; all that is left is to note which generation was accepted last.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::predicates;
use portcullis::controller::{Controller, ControllerError, EventType, Next, Pass, PlannedEvent};
use portcullis::operator::{Parts, Switch};

use crate::kinds::{
    DynamoComponentDeployment, DynamoGraphDeployment, DynamoGraphDeploymentRequest, DynamoKind, DynamoModel, Status,
};

/// From these on, a request is immutable.
const PROFILED: [&str; 4] = ["Profiling", "Deploying", "Ready", "DeploymentDeleted"];
/// The event that says so.
const REJECTED: &str = "SpecChangeRejected";

/// Adds a controller for each kind.
pub(crate) fn with_controllers(parts: Parts, webhooks: Switch) -> Parts {
    let parts = with::<DynamoComponentDeployment>(parts, "components", webhooks, |_| None);
    let parts = with::<DynamoGraphDeployment>(parts, "graphs", webhooks, |_| None);
    let parts = with::<DynamoModel>(parts, "models", webhooks, |_| None);
    with::<DynamoGraphDeploymentRequest>(parts, "graph-requests", webhooks, |request| {
        too_late(&request.metadata, request.status.as_ref())
    })
}

/// `rejected` says why the spec of an object is not accepted, although it is valid.
fn with<K: DynamoKind>(parts: Parts, name: &str, webhooks: Switch, rejected: fn(&K) -> Option<String>) -> Parts {
    // A change of the status is nothing to act on: another operator may write it.
    let controller = Controller::<K>::named(name).predicate(predicates::generation);
    parts.controller(controller, move |pass| reconcile(pass, webhooks, rejected))
}

async fn reconcile<K: DynamoKind>(
    pass: Pass<K>,
    webhooks: Switch,
    rejected: fn(&K) -> Option<String>,
) -> Result<Next, ControllerError> {
    // Where webhooks validate, the operator that runs the graphs may be Dynamo's own, and the status is its alone.
    if webhooks.is_on() {
        pass.status(&Status::default()).await?;
        return Ok(Next::Wait);
    }
    let mut accepted = pass.object.meta().generation;
    if let Some(why) = rejected(&pass.object) {
        pass.publish(&[PlannedEvent::new(EventType::Warning, REJECTED, &why)]).await;
        accepted = pass.object.status().and_then(|status| status.observed_generation);
    }
    pass.status(&Status { observed_generation: accepted, ..Status::default() }).await?;
    Ok(Next::Wait)
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
