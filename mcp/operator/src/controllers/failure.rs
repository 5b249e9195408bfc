//! What a status says when a child could not be written.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use mcp_api::{
    names::condition,
    v1beta1::{MCPServer, Phase},
};

use crate::plan::{EventType, Plan, PlannedEvent};

/// Reason of `Ready=False`, and of the event.
const REASON: &str = "ApplyFailed";

/// Makes the plan's status say that `problem` keeps the server from being what it should. The event is told once: while
/// the last status says the same, nothing is added.
pub(super) fn tell(plan: &mut Plan, server: &MCPServer, problem: &str) {
    let message = format!("a child could not be written: {problem}");
    let previous = server
        .status
        .as_ref()
        .and_then(|status| status.conditions.iter().flatten().find(|old| old.type_ == condition::READY));
    let unchanged = previous.filter(|old| old.status == "False");
    let ready = Condition {
        type_: condition::READY.to_owned(),
        status: "False".to_owned(),
        reason: REASON.to_owned(),
        message: message.clone(),
        observed_generation: server.metadata.generation,
        last_transition_time: unchanged.map_or(Time(Timestamp::now()), |old| old.last_transition_time.clone()),
    };
    let told = previous.is_some_and(|old| old.reason == REASON && old.message == message);
    let conditions = plan.status.conditions.get_or_insert_default();
    conditions.retain(|old| old.type_ != condition::READY);
    conditions.push(ready);
    conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
    plan.status.message = Some(message.clone());
    plan.status.phase = Some(Phase::Failed);
    plan.events = if told {
        Vec::new()
    } else {
        vec![PlannedEvent { type_: EventType::Warning, reason: REASON.to_owned(), note: message }]
    };
}
