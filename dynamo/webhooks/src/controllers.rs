//! Controllers for stored objects, while webhooks are off: the SDK evaluates the validators and sets the condition
//! `Valid`. The rest is the status that Dynamo's controllers write for an invalid object, and the generation that was
//! accepted last.

mod requests;

use kube::runtime::predicates;
use portcullis::controller::{Action, ConditionStatus, Controller, ControllerError, Reconcile};
use portcullis::operator::{Components, Switch};

use crate::kinds::{
    DynamoComponentDeployment, DynamoGraphDeployment, DynamoGraphDeploymentRequest, DynamoKind, DynamoModel, Status,
};

/// Why a condition is false.
const VALIDATION_FAILED: &str = "ValidationFailed";

/// Adds a controller for each kind.
pub(crate) fn with_controllers(components: Components, webhooks: Switch) -> Components {
    let deployments = named::<DynamoComponentDeployment>("components");
    let graphs = named::<DynamoGraphDeployment>("graphs");
    let models = named::<DynamoModel>("models");
    let requests = named::<DynamoGraphDeploymentRequest>("graph-requests");
    if webhooks.is_on() {
        return components
            .controller(deployments, withdraw)
            .controller(graphs, withdraw)
            .controller(models, withdraw)
            .controller(requests, withdraw);
    }
    components
        .controller(deployments, accept)
        .controller(graphs.on_invalid(refuse_graph), accept)
        .controller(models, accept)
        .controller(requests::watching(requests), requests::reconcile)
}

/// A change of the status is nothing to act on: another operator may write it.
fn named<K: DynamoKind>(name: &str) -> Controller<K> {
    Controller::new(name).predicate(predicates::generation)
}

/// Takes back what was said while webhooks were off. Where webhooks validate, the operator that runs the graphs may be
/// Dynamo's own, and the status is its alone.
async fn withdraw<K: DynamoKind>(cx: Reconcile<K>) -> Result<Action, ControllerError> {
    cx.apply_status(&Status::default()).await?;
    Ok(Action::await_change())
}

async fn accept<K: DynamoKind>(cx: Reconcile<K>) -> Result<Action, ControllerError> {
    cx.apply_status(&Status { observed_generation: cx.object.meta().generation, ..Status::default() }).await?;
    Ok(Action::await_change())
}

async fn refuse_graph(cx: Reconcile<DynamoGraphDeployment>, problem: String) -> Result<Action, ControllerError> {
    cx.apply_status(&refused(&cx, "failed", "Ready", format!("Validation failed: {problem}"))).await?;
    Ok(Action::await_change())
}

/// The status of an object that is refused, with this state, for what this condition says.
fn refused<K: DynamoKind>(cx: &Reconcile<K>, state: &str, condition: &'static str, message: String) -> Status {
    let mut conditions = cx.conditions(cx.object.status().and_then(|status| status.conditions.as_ref()));
    conditions.set(condition, ConditionStatus::False, VALIDATION_FAILED, message);
    Status { state: Some(state.to_owned()), conditions: conditions.into_list(), ..unchanged(&*cx.object) }
}

/// The status of an object whose spec is not accepted: the generation that was accepted last stays.
fn unchanged<K: DynamoKind>(object: &K) -> Status {
    Status { observed_generation: object.status().and_then(|status| status.observed_generation), ..Status::default() }
}
