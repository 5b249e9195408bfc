//! The plan of a configuration, of whichever kind.

use mcp_api::v1beta1::ConfigStatus;
use mcp_operator::config::{ConfigInputs, ConfigKind, plan_config};
use mcp_plan::reference::Referrer;
use portcullis::controller::PlannedEvent;
use serde_json::json;

use super::world::World;

pub(crate) struct ConfigPlan<K: ConfigKind> {
    pub(crate) may_go: bool,
    pub(crate) status: K::Status,
    pub(crate) events: Vec<PlannedEvent>,
}

pub(crate) fn now() -> jiff::Timestamp {
    "2026-11-21T00:00:00Z".parse().unwrap()
}

/// The plan of `config`, to which these refer: kinds and names.
pub(crate) fn plan<K: ConfigKind>(config: &K, referrers: &[(&str, &str)]) -> ConfigPlan<K> {
    let referrer = |(kind, name): &(&str, &str)| Referrer { kind: (*kind).to_owned(), name: (*name).to_owned() };
    let referrers: Vec<_> = referrers.iter().map(referrer).collect();
    let settings = World::of(json!({"image": "x:1"})).settings;
    let plan = plan_config(&ConfigInputs { config, referrers: &referrers, settings: &settings, now: now() });
    ConfigPlan { may_go: plan.may_go, status: plan.report.into(), events: plan.events }
}

/// Status, reason and message of a condition.
pub(crate) fn says<K: ConfigKind>(plan: &ConfigPlan<K>, type_: &str) -> Option<(String, String, String)> {
    let status: ConfigStatus = plan.status.clone().into();
    let condition = status.conditions.into_iter().flatten().find(|condition| condition.type_ == type_)?;
    Some((condition.status, condition.reason, condition.message))
}
