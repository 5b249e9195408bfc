//! The status of a workload whose child could not be written.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use mcp_api::names::condition;
use mcp_plan::workload::{ChildKind, Phase};
use portcullis::controller::{EventType, PlannedEvent, truncate_message};

use crate::workload::{Plan, Workload};

/// A reason why a child is not written, as a sentence or the end of one.
pub(super) enum ApplyFailure {
    /// The API server refused it, or did not answer.
    Failed(String),
    /// An object that is not ours has its name.
    NameTaken(String),
    /// The one that exists has to be gone first.
    BeingDeleted(String),
    /// The one that exists gets another owner first.
    TakenOver(String),
}

// === impl ApplyFailure ===

impl ApplyFailure {
    /// The one that exists is being deleted, and a finalizer may hold it.
    pub(super) fn being_deleted(kind: ChildKind, name: &str) -> Self {
        Self::BeingDeleted(format!("{} {name} is being deleted; it is created again once it is gone", kind.as_str()))
    }

    pub(super) fn phase(&self) -> Phase {
        if matches!(self, Self::Failed(_) | Self::NameTaken(_)) { Phase::Failed } else { Phase::Pending }
    }

    /// Reason of `Ready=False`, and of the event.
    fn reason(&self) -> &'static str {
        match self {
            Self::Failed(_) => "ApplyFailed",
            Self::NameTaken(_) => "NameTaken",
            Self::BeingDeleted(_) => "ChildBeingDeleted",
            Self::TakenOver(_) => "ChildTakenOver",
        }
    }

    fn message(&self) -> String {
        match self {
            Self::Failed(problem) | Self::NameTaken(problem) => format!("a child could not be written: {problem}"),
            Self::BeingDeleted(why) | Self::TakenOver(why) => why.clone(),
        }
    }
}

/// Makes the plan's status say that `failure` keeps the workload from being what it should. The event is published once:
/// while the last status says the same, nothing is added.
pub(super) fn report<W: Workload>(plan: &mut Plan, workload: &W, failure: &ApplyFailure) {
    let (reason, message) = (failure.reason(), truncate_message(failure.message()));
    let previous = workload.previous().conditions.into_iter().flatten().find(|old| old.type_ == condition::READY);
    let unchanged = previous.filter(|old| old.status == "False");
    let ready = Condition {
        type_: condition::READY.to_owned(),
        status: "False".to_owned(),
        reason: reason.to_owned(),
        message: message.clone(),
        observed_generation: workload.meta().generation,
        last_transition_time: unchanged.map_or(Time(Timestamp::now()), |old| old.last_transition_time.clone()),
    };
    let published = previous.is_some_and(|old| old.reason == reason && old.message == message);
    let conditions = plan.report.conditions.get_or_insert_default();
    conditions.retain(|old| old.type_ != condition::READY);
    conditions.push(ready);
    conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
    plan.events = if published { Vec::new() } else { vec![PlannedEvent::new(EventType::Warning, reason, &message)] };
    plan.report.message = message;
    plan.report.phase = failure.phase();
    // The name may be that of the proxy's Service: the address would lead to another workload.
    plan.report.url = plan.report.url.take().filter(|_| !matches!(failure, ApplyFailure::NameTaken(_)));
}
