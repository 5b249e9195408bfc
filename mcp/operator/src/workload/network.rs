//! The condition that tells of ways around the proxy.

use std::collections::{BTreeMap, BTreeSet};

use mcp_plan::workload::{Child, ChildKind, ChildRef, Opened, Ways};
use portcullis::controller::ConditionStatus;

use super::{Findings, Workload};

/// Condition: nothing leads around the proxy, as far as the operator can see. Present only while something does.
pub const NETWORK_RESTRICTED: &str = "NetworkRestricted";

/// Says which ways lead around the proxy: those of the children that are planned, and those of `live` ones that were
/// `opened`.
pub(super) fn check<W: Workload>(
    workload: &W,
    children: &[Child],
    live: &BTreeSet<ChildRef>,
    opened: &BTreeMap<ChildRef, Opened>,
    findings: &mut Findings<'_>,
) {
    let runs = workload.backend().is_some_and(|backend| live.contains(&backend));
    let mut found = Vec::new();
    for child in workload.all_children() {
        let (kind, name) = (child.kind.as_str(), &child.name);
        if child.kind == ChildKind::NetworkPolicy && runs && !live.contains(&child) {
            found.push((0, "NetworkPolicyMissing", format!("{kind} {name} does not exist")));
        }
        let planned = children.iter().find(|planned| planned.reference == child);
        let opened = opened.get(&child).copied().unwrap_or_default();
        let ours = planned.map_or(opened.ours, |planned| Ways::of_document(&planned.object));
        let Ways { host_network, host_port, ingress } = opened.others.and(ours);
        if ingress {
            found.push((1, "NetworkPolicyChanged", format!("another client added ingress rules to {kind} {name}")));
        }
        if host_network {
            let message = format!("pods of {kind} {name} have hostNetwork, so no NetworkPolicy applies to them");
            found.push((2, "HostNetwork", message));
        }
        if host_port {
            found.push((
                3,
                "HostPort",
                format!("pods of {kind} {name} have a hostPort, which opens a port of their node"),
            ));
        }
    }
    found.sort();
    let Some((_, reason, _)) = found.first() else { return };
    let messages: Vec<_> = found.iter().map(|(.., message)| message.as_str()).collect();
    findings.conditions.set(NETWORK_RESTRICTED, ConditionStatus::False, reason, messages.join("; "));
}
