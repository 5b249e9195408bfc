//! What takes proxy pods away on its author's wish: a restart, a number of replicas. And what a failure leaves.

use mcp_plan::workload::ChildKind;
use serde_json::{Value, json};

use super::world::{Plan, World, child, condition, config, deployment, is_absent, pod, stateful_set};

const RESTARTED_AT: &str = "mcpserver.toolhive.stacklok.dev/restarted-at";
const STRATEGY: &str = "mcpserver.toolhive.stacklok.dev/restart-strategy";

fn server() -> World {
    World::of(json!({"image": "x:1", "transport": "streamable-http"}))
}

fn asked(world: &mut World, annotations: &[(&str, &str)]) {
    let all = annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    world.workload.metadata.annotations = Some(all);
}

fn told(plan: &Plan) -> &Value {
    &deployment(plan)["spec"]["template"]["metadata"]["annotations"][RESTARTED_AT]
}

#[test]
fn a_restart_is_the_annotations_value_on_the_pods_and_nothing_else() {
    let at = "2026-11-21T10:00:00Z";
    for (annotation, expected) in [
        (at, json!(at)),
        ("2026-11-21T12:00:00+02:00", json!("2026-11-21T12:00:00+02:00")),
        ("yesterday", Value::Null),
        ("2026-11-21", Value::Null),
        ("2026-13-41T00:00:00Z", Value::Null),
        ("", Value::Null),
    ] {
        let mut world = server();
        world.applied(&world.plan());
        let quiet = world.plan();
        asked(&mut world, &[(RESTARTED_AT, annotation)]);
        let plan = world.plan();
        assert_eq!(told(&plan), &expected, "{annotation:?}");
        assert!(!is_absent(&plan, ChildKind::Deployment, "fetch"), "{annotation:?}: it rolls");
        assert_eq!(stateful_set(&plan), stateful_set(&quiet), "{annotation:?}: the MCP server goes on");
        // No marker: the same annotation makes the same template, whatever happened before.
        world.applied(&plan);
        assert_eq!(world.plan().children, plan.children, "{annotation:?}");
        let mut fresh = server();
        asked(&mut fresh, &[(RESTARTED_AT, annotation)]);
        assert_eq!(fresh.plan().children, plan.children, "{annotation:?}");
    }
}

#[test]
fn an_immediate_restart_takes_the_proxy_away_first_and_exactly_once() {
    let mut world = server();
    world.applied(&world.plan());
    for at in ["2026-11-21T10:00:00Z", "2026-11-21T11:00:00Z"] {
        asked(&mut world, &[(RESTARTED_AT, at), (STRATEGY, "immediate")]);
        let first = world.plan();
        assert!(is_absent(&first, ChildKind::Deployment, "fetch"), "{at}");
        assert!(child(&first, ChildKind::Deployment, "fetch").is_none(), "{at}");
        assert!(child(&first, ChildKind::StatefulSet, "fetch").is_some(), "{at}: the MCP server goes on");
        assert!(first.events.iter().all(|event| event.reason != "ProxyRemoved"), "{at}: no guard is missing");
        world.applied(&first);
        let second = world.plan();
        assert_eq!(told(&second), &json!(at));
        world.applied(&second);
        for _ in 0..2 {
            let settled = world.plan();
            assert!(!is_absent(&settled, ChildKind::Deployment, "fetch"), "{at}: once");
            assert_eq!(settled.children, second.children, "{at}");
        }
    }
    // Neither a time that was acted upon nor one that cannot be read starts anything.
    for annotations in [
        &[(RESTARTED_AT, "2026-11-21T11:00:00Z"), (STRATEGY, "rolling")][..],
        &[(RESTARTED_AT, "2026-11-21T11:00:00Z")],
        &[(RESTARTED_AT, "soon"), (STRATEGY, "immediate")],
        &[(STRATEGY, "immediate")],
        &[(RESTARTED_AT, "2026-11-21T12:00:00Z"), (STRATEGY, "at once")],
    ] {
        asked(&mut world, annotations);
        assert!(!is_absent(&world.plan(), ChildKind::Deployment, "fetch"), "{annotations:?}");
    }
}

#[test]
fn a_restart_cannot_be_overridden_nor_bring_back_a_server_that_may_not_run() {
    let mut world = server();
    asked(&mut world, &[(RESTARTED_AT, "2026-11-21T10:00:00Z")]);
    world.workload.spec.resource_overrides = serde_json::from_value(json!({"proxyDeployment": {
        "podTemplateMetadataOverrides": {"annotations": {RESTARTED_AT: "mine", "kubectl.kubernetes.io/restartedAt": "x"}}}}))
    .unwrap();
    let plan = world.plan();
    assert_eq!(told(&plan), "2026-11-21T10:00:00Z");

    let mut broken = server();
    broken.applied(&broken.plan());
    broken.workload.spec.image = String::new();
    asked(&mut broken, &[(RESTARTED_AT, "2026-11-21T10:00:00Z"), (STRATEGY, "immediate")]);
    let plan = broken.plan();
    assert!(plan.children.is_empty() && plan.absent.is_empty(), "what runs is left, and would not come back");
}

#[test]
fn a_stdio_server_has_one_proxy_at_most_whatever_an_autoscaler_wants() {
    for (wanted, proxies) in [(Value::Null, 1), (json!(0), 0), (json!(1), 1), (json!(2), 1), (json!(50), 1)] {
        let plan = World::of(json!({"image": "x", "transport": "stdio", "replicas": wanted})).plan();
        assert_eq!(deployment(&plan)["spec"]["replicas"], proxies, "{wanted}");
        let capped = condition(&plan, "StdioReplicaCapped", "True").is_some();
        assert_eq!(capped, wanted.as_i64().unwrap_or(1) > 1, "{wanted}");
    }
    let plan = World::of(json!({"image": "x", "transport": "streamable-http"})).plan();
    assert_eq!(deployment(&plan)["spec"].get("replicas"), None, "others may scale this one");
}

#[test]
fn a_failed_server_without_pods_stays_failed_until_pods_come() {
    let mut world = server();
    world.applied(&world.plan());
    world.pods = vec![pod("Running", false, Some("CrashLoopBackOff"))];
    world.applied(&world.plan());
    world.pods.clear();
    for _ in 0..2 {
        let plan = world.plan();
        assert_eq!(plan.status.phase.unwrap().as_str(), "Failed");
        assert_eq!(plan.status.message.as_deref(), Some("MCP server pod failed: CrashLoopBackOff"));
        assert!(plan.events.is_empty(), "{:?}", plan.events);
        world.applied(&plan);
    }
    let mut stopped = world.clone();
    stopped.workload.spec.replicas = Some(0);
    assert_eq!(stopped.plan().status.phase.unwrap().as_str(), "Stopped");
    world.pods = vec![pod("Pending", false, None)];
    assert_eq!(world.plan().status.phase.unwrap().as_str(), "Pending");
    world.applied(&world.plan());
    world.pods.clear();
    assert_eq!(world.plan().status.phase.unwrap().as_str(), "Pending");
}

#[test]
fn a_server_that_failed_for_another_reason_is_pending_once_that_is_mended() {
    let breaks: [fn(&mut World); 2] =
        [|world| world.workload.spec.image = String::new(), |world| world.has(config("gates", json!({})))];
    for make_broken in breaks {
        for ran in [false, true] {
            let whole = World::gated();
            let mut world = whole.clone();
            if ran {
                world.applied(&world.plan());
            }
            make_broken(&mut world);
            world.applied(&world.plan());
            assert_eq!(world.plan().status.phase.unwrap().as_str(), "Failed");
            world.workload.spec = whole.workload.spec.clone();
            world.configs = whole.configs.clone();
            world.applied(&world.plan());
            let status = world.plan().status;
            assert_eq!(status.phase.unwrap().as_str(), "Pending", "{ran}");
            assert_eq!(status.message.as_deref(), Some("MCP server is being created"), "{ran}");
        }
    }
}
