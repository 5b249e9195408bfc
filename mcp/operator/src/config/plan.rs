//! The plan of one configuration.

use std::collections::BTreeMap;

use jiff::Timestamp;
use mcp_api::{
    names::{condition, reason},
    v1beta1::{ConfigStatus, WorkloadRef},
};
use mcp_plan::{problem::sentences, reference::Referrer, settings::Settings};
use portcullis::controller::{ConditionStatus, Conditions, EventType, PlannedEvent};

use super::{ConfigKind, refused_secrets};

/// Everything [`plan_config`] looks at.
#[derive(Clone, Copy, Debug)]
pub struct ConfigInputs<'a, K> {
    /// The configuration.
    pub config: &'a K,
    /// The objects of its namespace that refer to it now, in any order.
    pub referrers: &'a [Referrer],
    /// The operator's settings.
    pub settings: &'a Settings,
    /// The time, for conditions that change.
    pub now: Timestamp,
}

/// The plan for one configuration.
#[derive(Clone, Debug)]
pub struct ConfigPlan {
    /// It is being deleted and nobody refers to it any more.
    pub may_go: bool,
    /// The desired status.
    pub report: ConfigStatus,
    /// The events to publish: only what the last status does not say yet.
    pub events: Vec<PlannedEvent>,
}

/// Decides what should become of one configuration.
pub fn plan_config<K: ConfigKind>(inputs: &ConfigInputs<'_, K>) -> ConfigPlan {
    let (config, metadata) = (inputs.config, inputs.config.meta());
    let previous: ConfigStatus = config.status().cloned().map(Into::into).unwrap_or_default();
    let mut conditions = Conditions::new(previous.conditions.as_ref(), metadata.generation, inputs.now);

    let mut problems = config.every_problem(inputs.settings);
    problems.extend(refused_secrets(config, inputs.settings));
    let valid = problems.is_empty();
    if valid {
        conditions.set(condition::VALID, ConditionStatus::True, K::VALIDITY.0, "Spec validation passed");
    } else {
        conditions.set(condition::VALID, ConditionStatus::False, config.invalid(), sentences(&problems));
    }

    let mut referrers = inputs.referrers.to_vec();
    referrers.sort();
    referrers.dedup();
    let deleting = metadata.deletion_timestamp.is_some();
    if deleting && !referrers.is_empty() {
        let message = format!("Cannot delete: referenced by {}", list(&referrers));
        conditions.set(condition::DELETION_BLOCKED, ConditionStatus::True, reason::REFERENCED_BY_WORKLOADS, message);
    }
    let may_go = deleting && referrers.is_empty();

    let said = previous.conditions.iter().flatten();
    let said: Vec<_> = said.map(|it| (&*it.type_, &*it.status, &*it.reason)).collect();
    let events = conditions
        .changed()
        // One referrer less is news for the status; an event tells once that the deletion is blocked.
        .filter(|new| new.type_ == condition::VALID || !said.contains(&(&*new.type_, &*new.status, &*new.reason)))
        .map(|new| match (new.type_.as_str(), new.status.as_str()) {
            (condition::VALID, "True") => PlannedEvent::new(EventType::Normal, &new.reason, &new.message),
            (condition::DELETION_BLOCKED, _) => {
                PlannedEvent::new(EventType::Warning, condition::DELETION_BLOCKED, &new.message)
            }
            _ => PlannedEvent::new(EventType::Warning, &new.reason, &new.message),
        })
        .collect();
    let referrers = referrers.into_iter().map(|Referrer { kind, name }| WorkloadRef { kind, name });
    let report = ConfigStatus {
        conditions: conditions.into_list(),
        // The hash of the last spec that could be used.
        config_hash: if valid { Some(config.hash()) } else { previous.config_hash.clone() },
        observed_generation: metadata.generation,
        referencing_workloads: Some(referrers.collect()).filter(|all: &Vec<_>| !all.is_empty()),
    };
    ConfigPlan { may_go, report, events }
}

/// The names of each kind after its plural: `Foos: a, b; Bars: c`.
fn list(referrers: &[Referrer]) -> String {
    let mut by_kind: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for Referrer { kind, name } in referrers {
        by_kind.entry(kind).or_default().push(name);
    }
    let lists: Vec<_> = by_kind.iter().map(|(kind, names)| format!("{}: {}", plural(kind), names.join(", "))).collect();
    lists.join("; ")
}

fn plural(kind: &str) -> String {
    match kind.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None => format!("{kind}s"),
    }
}
