//! Status, conditions and events of a server.

use std::time::Duration;

use mcp_plan::workload::ChildKind;
use portcullis::controller::EventType;
use serde_json::{Value, json};

use super::world::{World, backend_pod, condition, deployment, is_absent, pod};

fn streamable() -> World {
    World::of(json!({"image": "x:1", "transport": "streamable-http"}))
}

#[test]
fn the_phase_is_what_the_pods_say() {
    let cases = [
        (vec![], "Pending", "MCP server is being created", 0),
        (vec![pod("Pending", false, None)], "Pending", "MCP server is starting", 0),
        (vec![pod("Running", false, None)], "Pending", "MCP server is starting", 0),
        (vec![pod("Running", true, None)], "Ready", "MCP server is running", 1),
        (
            vec![pod("Running", true, None), pod("Running", false, Some("CrashLoopBackOff"))],
            "Ready",
            "MCP server is running",
            1,
        ),
        (vec![pod("Running", false, Some("CrashLoopBackOff"))], "Failed", "MCP server pod failed: CrashLoopBackOff", 0),
        (vec![pod("Pending", false, Some("ContainerCreating"))], "Pending", "MCP server is starting", 0),
        (vec![pod("Pending", false, Some("InvalidImageName"))], "Failed", "MCP server pod failed: InvalidImageName", 0),
    ];
    for (pods, phase, message, ready) in cases {
        let mut world = streamable();
        world.applied(&world.plan());
        world.pods = pods;
        let status = world.plan().status;
        assert_eq!(
            (status.phase.unwrap().as_str(), status.message.as_deref(), status.ready_replicas),
            (phase, Some(message), Some(ready))
        );
        let expected = if phase == "Ready" { "True" } else { "False" };
        assert!(condition(&world.plan(), "Ready", expected).is_some());
    }
}

#[test]
fn a_server_whose_pod_does_not_run_is_not_ready_whatever_its_proxy_says() {
    for (status, phase, reason) in [
        (json!({"state": {"waiting": {"reason": "ImagePullBackOff"}}}), "Failed", "ErrImagePull"),
        (json!({"state": {"waiting": {"reason": "ContainerCreating"}}}), "Pending", "Starting"),
    ] {
        let mut world = streamable();
        world.applied(&world.plan());
        world.pods = vec![pod("Running", true, None)];
        world.applied(&world.plan());
        world.backend_pods = vec![backend_pod("Pending", status)];
        let plan = world.plan();
        assert_eq!(plan.status.phase.unwrap().as_str(), phase);
        assert_eq!(condition(&plan, "BackendReady", "False").unwrap().0, reason);
        assert!(condition(&plan, "Ready", "False").is_some());
        let told = if phase == "Failed" { (EventType::Warning, reason) } else { (EventType::Normal, "Pending") };
        let events: Vec<_> = plan.events.iter().map(|event| (event.type_, &*event.reason)).collect();
        assert_eq!(events, [told]);
        world.applied(&plan);
        assert!(world.plan().events.is_empty(), "it is told once");
    }
}

#[test]
fn a_server_that_does_not_answer_its_proxy_is_not_ready_and_the_plan_is_made_anew_in_time() {
    let alone = json!({"image": "x:1", "transport": "streamable-http", "mcpPort": 3999});
    let mut sharing = alone.clone();
    sharing["sessionStorage"] = json!({"provider": "redis", "address": "redis:6379"});
    answers_no_proxy(alone, "the MCP server does not answer on port 3999: ");
    answers_no_proxy(
        sharing,
        "no proxy is ready: the MCP server does not answer on port 3999, or Redis does not answer",
    );
}

fn answers_no_proxy(spec: Value, message: &str) {
    let mut world = World::of(spec);
    world.applied(&world.plan());
    let container = |started: &str| {
        json!({
            "name": "toolhive", "ready": false, "started": true, "image": "", "imageID": "", "restartCount": 0,
            "state": {"running": {"startedAt": started}},
        })
    };
    let mut proxy = pod("Running", false, None);
    for (started, phase, again) in
        [("2026-11-20T23:59:58Z", "Pending", Some(5)), ("2026-11-20T23:59:53Z", "Failed", None)]
    {
        let status = proxy.status.as_mut().unwrap();
        status.container_statuses = serde_json::from_value(json!([container(started)])).unwrap();
        world.pods = vec![proxy.clone()];
        let plan = world.plan();
        assert_eq!((plan.status.phase.unwrap().as_str(), plan.again), (phase, again.map(Duration::from_secs)));
        let told = plan.status.message.unwrap().starts_with(message);
        assert_eq!(told, phase == "Failed");
    }
}

#[test]
fn a_runner_that_has_no_readyz_is_not_asked_there() {
    let mut world = streamable();
    let path = |world: &World| {
        let plan = world.plan();
        let container = &deployment(&plan)["spec"]["template"]["spec"]["containers"][0];
        container["readinessProbe"]["httpGet"]["path"].clone()
    };
    assert_eq!(path(&world), "/readyz");
    world.settings.runner_middleware.retain(|ability| ability != "readyz");
    assert_eq!(path(&world), "/health");
}

#[test]
fn a_terminating_pod_counts_as_nothing_and_zero_replicas_as_stopped() {
    let mut world = streamable();
    let mut going = pod("Running", true, None);
    going.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(world.now));
    world.pods = vec![going];
    assert_eq!(world.plan().status.message.unwrap(), "MCP server is being created");
    world.applied(&world.plan());
    world.deployment.as_mut().unwrap().spec.as_mut().unwrap().replicas = Some(0);
    assert_eq!(world.plan().status.phase.unwrap().as_str(), "Stopped", "by who scales the Deployment");
    world.deployment = None;
    world.workload.spec.replicas = Some(0);
    assert_eq!(world.plan().status.phase.unwrap().as_str(), "Stopped");
}

#[test]
fn a_proxy_without_its_workload_is_not_ready() {
    let mut world = streamable();
    world.pods = vec![pod("Running", true, None)];
    assert_eq!(world.plan().status.phase.unwrap().as_str(), "Pending");
}

#[test]
fn the_url_follows_port_and_transport() {
    for (spec, url) in [
        (json!({"image": "x"}), "http://mcp-fetch-proxy.team.svc.cluster.local:8080/mcp"),
        (json!({"image": "x", "proxyMode": "sse"}), "http://mcp-fetch-proxy.team.svc.cluster.local:8080/sse#fetch"),
        (
            json!({"image": "x", "transport": "sse", "proxyPort": 9}),
            "http://mcp-fetch-proxy.team.svc.cluster.local:9/sse#fetch",
        ),
    ] {
        let mut world = World::of(spec.clone());
        world.workload.status = serde_json::from_value(json!({"url": "http://stale"})).unwrap();
        assert_eq!(world.plan().status.url.as_deref(), Some(url), "{spec}");
    }
}

// MISSION R3: at rest the plan says the same again, to the byte.
#[test]
fn a_settled_server_plans_the_same_status_and_no_events_at_any_later_time() {
    for mut world in
        [streamable(), World::gated(), World::of(json!({"image": "x", "replicas": 2, "toolConfigRef": {"name": "t"}}))]
    {
        world.applied(&world.plan());
        let settled = world.plan();
        world.applied(&settled);
        world.now = "2027-01-01T00:00:00Z".parse().unwrap();
        let later = world.plan();
        assert_eq!(later.status, settled.status);
        assert_eq!(later.children, settled.children);
        assert!(later.events.is_empty(), "{:?}", later.events);
    }
}

#[test]
fn the_time_of_a_condition_moves_only_when_its_status_does() {
    let mut world = streamable();
    world.applied(&world.plan());
    let first = world.now;
    world.now = "2027-01-01T00:00:00Z".parse().unwrap();
    world.pods = vec![pod("Running", false, None)];
    let ready = |world: &World| {
        let conditions = world.plan().status.conditions.unwrap();
        conditions.into_iter().find(|condition| condition.type_ == "Ready").unwrap()
    };
    let starting = ready(&world);
    assert_eq!((starting.last_transition_time.0, &*starting.message), (first, "MCP server is starting"));
    world.pods = vec![pod("Running", true, None)];
    assert_eq!(ready(&world).last_transition_time.0, world.now);
    assert_eq!(ready(&world).observed_generation, Some(3));
}

#[test]
fn events_tell_what_is_new_and_nothing_twice() {
    let mut world = streamable();
    world.applied(&world.plan());
    world.pods = vec![pod("Running", true, None)];
    let events = world.plan().events;
    assert_eq!(events.len(), 1);
    assert_eq!(
        (events[0].type_, &*events[0].reason, &*events[0].note),
        (EventType::Normal, "Ready", "MCP server is running")
    );
    world.applied(&world.plan());
    assert!(world.plan().events.is_empty());
    world.pods = vec![pod("Running", false, Some("CrashLoopBackOff"))];
    let events = world.plan().events;
    assert_eq!((events[0].type_, &*events[0].reason), (EventType::Warning, "PodFailed"));
    world.applied(&world.plan());
    world.workload.spec.webhook_config_ref = Some(mcp_api::v1beta1::LenientNameRef { name: "gates".into() });
    let reasons: Vec<_> = world.plan().events.into_iter().map(|event| event.reason).collect();
    assert_eq!(reasons, ["WebhookConfigNotFound", "ProxyRemoved"]);
}

#[test]
fn fields_without_effect_are_said_and_stop_nothing() {
    let world = World::of(json!({"image": "x", "groupRef": {"name": "g"}}));
    let plan = world.plan();
    let (_, message) = condition(&plan, "UnsupportedFields", "True").unwrap();
    assert_eq!(message, "spec.groupRef has no effect in this version");
    assert!(!plan.children.is_empty());
    assert!(plan.events.iter().any(|event| event.reason == "FieldsHaveNoEffect"));

    for spec in [
        json!({"image": "x", "transport": "sse"}),
        json!({"image": "x", "transport": "stdio"}),
        json!({"image": "x", "proxyMode": "sse"}),
        json!({"image": "x", "transport": "streamable-http", "audit": {"enabled": false}}),
    ] {
        assert_eq!(condition(&World::of(spec).plan(), "UnsupportedFields", "True"), None);
    }
}

#[test]
fn a_missing_environment_secret_is_said_and_stops_nothing() {
    let mut world =
        World::of(json!({"image": "x", "transport": "streamable-http", "secrets": [{"name": "s", "key": "k"}]}));
    let plan = world.plan();
    let (reason, message) = condition(&plan, "SecretRefsValidated", "False").unwrap();
    assert_eq!(
        (&*reason, message.contains("spec.secrets[0]: Secret \"s\" does not exist; create it with the key \"k\"")),
        ("SecretNotFound", true)
    );
    assert!(!plan.children.is_empty());
    world.secret("s", "k", "v");
    assert_eq!(condition(&world.plan(), "SecretRefsValidated", "False"), None);
}

#[test]
fn of_a_server_that_is_being_deleted_nothing_is_to_be_left() {
    let mut world = streamable();
    world.workload.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(world.now));
    let plan = world.plan();
    assert_eq!(plan.status.phase.unwrap().as_str(), "Terminating");
    assert!(plan.children.is_empty());
    for (kind, name) in [
        (ChildKind::Deployment, "fetch"),
        (ChildKind::StatefulSet, "fetch"),
        (ChildKind::Service, "mcp-fetch-headless"),
        (ChildKind::ServiceAccount, "fetch-sa"),
        (ChildKind::Role, "fetch-proxy-runner"),
    ] {
        assert!(is_absent(&plan, kind, name), "{kind:?} {name}");
    }
}

/// A server whose spec is wrong in thousands of places says so in a status that a reader and etcd can take.
#[test]
fn a_status_stays_small_however_much_is_wrong() {
    let many: Vec<_> = (0..5000).map(|at| json!({"name": format!("a={at}"), "value": ""})).collect();
    let long = json!([{"name": format!("=é{}", "x".repeat(100_000)), "value": ""}]);
    for env in [json!(many), long] {
        let plan = World::of(json!({"image": "x:1", "transport": "streamable-http", "env": env})).plan();
        let message = plan.status.message.clone().unwrap();
        assert!(message.starts_with("spec.env[0].name:"), "{message:.200}");
        let bytes = serde_json::to_string(&plan.status).unwrap().len();
        assert!(bytes < 128 << 10, "{bytes} bytes");
    }
}
