//! A server never runs without the guard that its author asked for.

use mcp_plan::workload::{ChildKind, ChildRef};
use portcullis::controller::EventType;
use serde_json::{Value, json};

use super::world::{World, child, condition, config, deployment, is_absent, run_config};

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

fn assert_left_alone(world: &World, why: &str) {
    let plan = world.plan();
    assert!(plan.children.is_empty() && plan.absent.is_empty(), "{why}");
    assert_eq!(plan.status.phase.unwrap().as_str(), "Failed", "{why}");
    assert!(plan.status.message.unwrap().ends_with("what runs already is left as it is"), "{why}");
    assert!(plan.status.url.is_some(), "{why}");
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
        assert!(reason.ends_with("NotFound") && message.starts_with("MCPExternalAuthConfig "), "{reason}: {message}");
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

#[test]
fn a_new_server_whose_webhook_config_is_missing_or_broken_gets_no_proxy() {
    let webhook = |change: Value| {
        let mut webhook = json!({"name": "p", "url": "https://p/"});
        webhook.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        Some(config("gates", json!({"validating": [webhook]})))
    };
    let key = json!({"name": "s", "key": "k"});
    let cases = [
        (None, "WebhookConfigNotFound", "MCPWebhookConfig \"gates\" does not exist"),
        (Some(config("gates", json!({}))), "WebhookConfigNotValid", "at least one validating or mutating webhook"),
        (webhook(json!({"url": "http://p/"})), "WebhookConfigNotValid", "spec.validating[0].url: "),
        (webhook(json!({"timeout": "1h"})), "WebhookConfigNotValid", "timeout 1h0m0s is out of range"),
        (webhook(json!({"tlsConfig": {"clientCertSecretRef": key}})), "WebhookConfigNotValid", "set both or neither"),
        (webhook(json!({"hmacSecretRef": key})), "WebhookSecretNotFound", "Secret s/k"),
    ];
    for (found, reason, message) in cases {
        let mut world = World::gated();
        world.configs.clear();
        if let Some(config) = found {
            world.has(config);
        }
        assert_nothing_runs(&world, reason);
        let condition = condition(&world.plan(), "WebhookConfigValidated", "False").unwrap();
        assert!(condition.0 == reason && condition.1.contains(message), "{condition:?}");
    }
    let mut nameless = World::gated();
    nameless.workload.spec.webhook_config_ref.as_mut().unwrap().name = String::new();
    nameless.configs.clear();
    assert_nothing_runs(&nameless, "a reference without a name still asks for a guard");
}

#[test]
fn a_gated_proxy_outlives_its_vanished_config_because_it_keeps_its_gate() {
    let mut world = World::gated();
    world.applied(&world.plan());
    world.configs.clear();
    assert_left_alone(&world, "config deleted by force");
    world.has(config("gates", json!({"validating": [{"name": "p", "url": "ftp://p/"}]})));
    assert_left_alone(&world, "config edited into nonsense");
}

#[test]
fn an_ungated_proxy_does_not_outlive_the_wish_for_a_gate() {
    let gated = World::gated();
    let mut world = World::of(json!({"image": "x:1", "transport": "streamable-http"}));
    world.applied(&world.plan());
    assert!(deployment(&world.plan())["metadata"].get("annotations").is_none());
    world.workload.spec = gated.workload.spec.clone();
    assert_nothing_runs(&world, "the wished-for gate does not exist");

    // It exists: the old pods go before the new ones come, since a rolling update could keep them for ever.
    world.configs = gated.configs.clone();
    let first = world.plan();
    assert!(is_absent(&first, ChildKind::Deployment, "fetch"), "the ungated proxy goes");
    assert!(child(&first, ChildKind::Deployment, "fetch").is_none());
    assert!(child(&first, ChildKind::StatefulSet, "fetch").is_some(), "the MCP server stays");
    world.applied(&first);
    let second = world.plan();
    assert!(!is_absent(&second, ChildKind::Deployment, "fetch"));
    assert!(run_config(&second).contains("validating-webhook") && deployment(&second).is_object());
}

#[test]
fn a_proxy_behind_another_config_does_not_outlive_the_switch() {
    let mut world = World::gated();
    world.applied(&world.plan());
    world.workload.spec.webhook_config_ref.as_mut().unwrap().name = "stricter".into();
    world.configs.clear();
    assert_nothing_runs(&world, "the stricter gate does not exist");
    world.has(config("stricter", json!({"validating": [{"name": "q", "url": "https://q/"}]})));
    assert!(is_absent(&world.plan(), ChildKind::Deployment, "fetch"));
}

#[test]
fn an_edit_of_the_config_rolls_the_proxy_without_a_gap() {
    let mut world = World::gated();
    world.applied(&world.plan());
    world.has(config("gates", json!({"validating": [{"name": "policy", "url": "https://new/"}]})));
    let plan = world.plan();
    assert!(!is_absent(&plan, ChildKind::Deployment, "fetch"));
    assert!(run_config(&plan).contains("https://new/"));

    world.workload.spec.webhook_config_ref = None;
    let plan = world.plan();
    assert!(!is_absent(&plan, ChildKind::Deployment, "fetch"), "a gate that is no longer asked for goes the same way");
    assert!(deployment(&plan)["metadata"].get("annotations").is_none());
}

#[test]
fn a_stricter_config_beside_a_broken_spec_leaves_no_laxer_proxy() {
    let mut world = World::gated();
    world.applied(&world.plan());
    world.workload.spec.image = String::new();
    assert_left_alone(&world, "the guard is the one asked for");
    world.has(config("gates", json!({"validating": [{"name": "policy", "url": "https://new/"}]})));
    let plan = world.plan();
    assert!(plan.children.is_empty(), "the new webhook cannot be put in place");
    assert_eq!(plan.absent, [ChildRef::new(ChildKind::Deployment, "fetch")], "what runs behind it does no wrong");
    world.applied(&plan);
    assert_eq!(world.plan().absent, [], "nor does it later");
}

#[test]
fn users_cannot_forge_the_gate_of_their_proxy() {
    let mut world = World::gated();
    world.workload.spec.resource_overrides = serde_json::from_value(json!({"proxyDeployment": {
        "annotations": {"toolhive.stacklok.dev/webhook-config": "gates/forged"}}}))
    .unwrap();
    let plan = world.plan();
    let annotations = &deployment(&plan)["metadata"]["annotations"];
    let gate = annotations["toolhive.stacklok.dev/webhook-config"].as_str().unwrap();
    assert!(gate.starts_with("gates/") && gate != "gates/forged", "{gate}");

    // Without a gate there is nothing to say, and what the user says there counts for nothing.
    world.workload.spec.webhook_config_ref = None;
    assert!(deployment(&world.plan())["metadata"].get("annotations").is_none());
}

// The rule: the operator never writes ToolHive's call home.
#[test]
fn usage_metrics_are_never_written() {
    assert!(!run_config(&World::gated().plan()).contains("usagemetrics"));
}
