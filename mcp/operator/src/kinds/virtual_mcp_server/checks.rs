//! The checks of a VirtualMCPServer, for its conditions.

use std::collections::{BTreeMap, BTreeSet};

use mcp_api::{
    names::{condition, reason},
    v1beta1::VirtualMCPServer,
};
use mcp_plan::{
    problem::sentences,
    reference::{Content, Data},
};
use portcullis::controller::ConditionStatus;

use super::{references, rules};
use crate::workload::Findings;

pub(super) fn check(server: &VirtualMCPServer, data: &Data, findings: &mut Findings<'_>) {
    let problems = rules::problems(&server.spec);
    if problems.is_empty() {
        findings.conditions.set(
            condition::VALID,
            ConditionStatus::True,
            reason::VALIDATION_SUCCEEDED,
            "Spec validation passed",
        );
    } else {
        findings.block(condition::VALID, reason::VALIDATION_FAILED, sentences(&problems));
    }
    check_policies(server, data, findings);
    report_unbuilt(server, findings);
}

fn check_policies(server: &VirtualMCPServer, data: &Data, findings: &mut Findings<'_>) {
    let Some(policies) = references::policies(server) else { return };
    let [missing, _] = data.faults(policies.reference().value(Content::Bytes));
    let (good, reason, message) = if missing.is_empty() {
        let message = format!("ConfigMap {:?} has policies under {:?}", policies.config_map, policies.key);
        (true, reason::AUTH_VALID, message)
    } else {
        (false, reason::AUTHZ_CONFIG_MAP_NOT_FOUND, sentences(&missing))
    };
    findings.conditions.set(condition::AUTH_CONFIGURED, good, reason, message);
}

/// That objects of other kinds cannot be looked up is no fault of the author's, so it blocks nothing.
fn report_unbuilt(server: &VirtualMCPServer, findings: &mut Findings<'_>) {
    let mut by_condition: BTreeMap<&'static str, BTreeSet<String>> = BTreeMap::new();
    for (condition, reference) in references::unbuilt(server) {
        let said = format!("{}: {} {:?}", reference.field, reference.kind, reference.name);
        by_condition.entry(condition).or_default().insert(said);
    }
    for (condition, said) in by_condition {
        let said: Vec<String> = said.into_iter().collect();
        let message = format!("this version cannot look up {}: it does not have that kind", said.join(", "));
        findings.conditions.set(condition, ConditionStatus::False, reason::KIND_NOT_BUILT, message);
    }
}
