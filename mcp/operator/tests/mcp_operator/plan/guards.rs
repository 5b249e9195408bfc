//! A server never runs without the guard that its author asked for.

use mcp_plan::workload::ChildKind;
use portcullis::controller::EventType;
use serde_json::json;

use super::world::{World, condition, is_absent, run_config};

const RUNS: [(ChildKind, &str); 6] = [
    (ChildKind::Deployment, "fetch"),
    (ChildKind::StatefulSet, "fetch"),
    (ChildKind::Service, "mcp-fetch-proxy"),
    (ChildKind::Service, "mcp-fetch"),
    (ChildKind::Service, "mcp-fetch-headless"),
    (ChildKind::ConfigMap, "fetch-runconfig"),
];

fn assert_nothing_runs(world: &World, why: &str) {
    let plan = world.plan();
    assert!(plan.children.is_empty(), "{why}: {:?}", plan.children);
    for (kind, name) in RUNS {
        assert!(is_absent(&plan, kind, name), "{why}: {kind:?} {name} goes");
    }
    assert_eq!(plan.status.phase.unwrap().as_str(), "Failed", "{why}");
    assert_eq!(plan.status.url, None, "{why}");
}

#[test]
fn a_server_whose_guard_is_not_built_never_runs_without_it() {
    let guards = [
        ("externalAuthConfigRef", json!({"name": "e"}), "ExternalAuthConfigValidated"),
        ("externalAuthConfigRef", json!({"name": ""}), "ExternalAuthConfigValidated"),
        ("authServerRef", json!({"name": "s", "kind": "MCPExternalAuthConfig"}), "AuthServerRefValidated"),
    ];
    for (field, value, type_) in guards {
        let mut spec = json!({"image": "x:1", "transport": "streamable-http"});
        let mut running = World::of(spec.clone());
        running.applied(&running.plan());
        spec[field] = value;

        let fresh = World::of(spec.clone());
        assert_nothing_runs(&fresh, field);
        let (reason, message) = condition(&fresh.plan(), type_, "False").unwrap();
        let start = format!("spec.{field}: MCPExternalAuthConfig ");
        assert!(reason.ends_with("NotFound") && message.starts_with(&start), "{reason}: {message}");
        assert_eq!(fresh.plan().status.message.unwrap(), message);

        running.workload.spec = World::of(spec).workload.spec;
        assert_nothing_runs(&running, field);
        let events = running.plan().events;
        assert!(
            events.iter().any(|event| event.reason == "ProxyRemoved" && event.type_ == EventType::Warning),
            "{events:?}"
        );
    }
}

// The rule: the operator never writes ToolHive's call home.
#[test]
fn usage_metrics_are_never_written() {
    assert!(!run_config(&World::gated().plan()).contains("usagemetrics"));
}
