//! Ways around a guard that are not open: pods of others, Secrets that cannot be read, pods that are still ending.

use mcp_plan::workload::ChildKind;
use serde_json::json;

use super::world::{World, child, condition, is_absent, pod};

/// A gated server whose proxy is there.
fn running() -> World {
    let mut world = World::gated();
    world.applied(&world.plan());
    world
}

fn guarded() -> String {
    let plan = World::gated().plan();
    let template = &super::world::deployment(&plan)["spec"]["template"]["metadata"];
    template["annotations"]["toolhive.stacklok.dev/guards"].as_str().unwrap().to_owned()
}

// MISSION R5: whoever may make pods may give one the labels and the annotation of a proxy.
#[test]
fn a_pod_that_somebody_else_made_is_never_said_to_enforce_a_guard_and_does_not_make_a_server_ready() {
    let mut world = running();
    let mut foreign = pod("Running", true, None);
    foreign.metadata.annotations = Some([("toolhive.stacklok.dev/guards".to_owned(), guarded())].into());
    for owner in [None, Some("fetch-mine"), Some("other-5b8c"), Some("fetch-extra-5b8c")] {
        foreign.metadata.owner_references = owner.map(|name| {
            serde_json::from_value(json!([
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": "r", "controller": true},
            ]))
            .unwrap()
        });
        world.pods = vec![foreign.clone()];
        let plan = world.plan();
        let (reason, message) = condition(&plan, "GuardsEnforced", "False").unwrap();
        let delete = owner.map_or_else(
            || "nothing controls pod fetch-1: kubectl delete -n team pod fetch-1".to_owned(),
            |name| format!("ReplicaSet {name} controls pod fetch-1: kubectl delete -n team replicaset.apps {name}"),
        );
        let says = format!("1 pods that the proxy's Service would select lack a guard; {delete}");
        assert_eq!((&*reason, &*message), ("GuardMissing", &*says), "{owner:?}");
        assert!(
            plan.status.message.as_deref().is_some_and(|message| message.ends_with(&says)),
            "{:?}",
            plan.status.message
        );
        assert_eq!((plan.status.phase.unwrap().as_str(), plan.status.ready_replicas), ("Failed", Some(0)), "{owner:?}");
        assert!(is_absent(&plan, ChildKind::Service, "mcp-fetch-proxy"), "{owner:?}: it would get calls");
        assert!(!is_absent(&plan, ChildKind::Deployment, "fetch"), "{owner:?}: it would not go with the Deployment");
    }
}

// `kubectl delete deployment --cascade=orphan`, or the same of its ReplicaSet, and then a guard: nobody takes these pods
// away, so nothing may lead calls to them.
#[test]
fn open_pods_that_outlive_what_made_them_get_no_service_and_are_named_with_what_to_delete() {
    let service = |world: &World, why: &str| {
        let plan = world.plan();
        let made = child(&plan, ChildKind::Service, "mcp-fetch-proxy").is_some();
        assert_eq!(made, !is_absent(&plan, ChildKind::Service, "mcp-fetch-proxy"), "{why}");
        made
    };
    let orphaned = "ReplicaSet fetch-5b8c controls pod fetch-1: kubectl delete -n team replicaset.apps fetch-5b8c";
    let alone = "nothing controls pod fetch-1: kubectl delete -n team pod fetch-1";
    for login in [false, true] {
        for (of_set, delete) in [(true, orphaned), (false, alone)] {
            for ready in [true, false] {
                let why = format!("{delete} {ready}");
                let mut world = if login { World::login() } else { World::gated() };
                let mut open = pod("Running", ready, None);
                if !of_set {
                    open.metadata.owner_references = None;
                }
                world.pods = vec![open];
                let plan = world.plan();
                // One that is made now would adopt those of a ReplicaSet.
                assert_eq!(child(&plan, ChildKind::Deployment, "fetch").is_none(), of_set, "{why}");
                assert!(!service(&world, &why), "{why}");
                assert!(child(&plan, ChildKind::StatefulSet, "fetch").is_some(), "{why}: the MCP server stays");
                let says = format!("1 pods that the proxy's Service would select lack a guard; {delete}");
                assert_eq!(
                    condition(&plan, "GuardsEnforced", "False"),
                    Some(("GuardMissing".to_owned(), says.clone()))
                );
                let status = &plan.status;
                assert_eq!((status.phase.unwrap().as_str(), &status.url), ("Failed", &None), "{why}");
                let message = format!("the proxy has no Service; {says}");
                assert_eq!(status.message.as_ref(), Some(&message));
                assert_eq!(condition(&plan, "Ready", "False"), Some(("NotReady".to_owned(), message)));
                assert!(plan.events.iter().any(|event| event.reason == "GuardMissing"), "{:?}", plan.events);

                // A broken reference beside them opens nothing.
                let mut broken = world.clone();
                broken.configs.clear();
                broken.configs.clear();
                assert!(!service(&broken, &why), "{why}");
                // Those that are ending go by themselves, and once they are gone all is as ever.
                let asked = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(world.now);
                world.pods[0].metadata.deletion_timestamp = Some(asked);
                let message = condition(&world.plan(), "GuardsEnforced", "False").unwrap().1;
                assert!(!message.contains("delete"), "{message}");
                world.pods.clear();
                assert!(service(&world, &why), "{why}");
                assert!(child(&world.plan(), ChildKind::Deployment, "fetch").is_some(), "{why}");
            }
        }
    }
}

#[test]
fn a_static_pod_is_told_to_be_removed_from_its_node_and_no_node_to_be_deleted() {
    let mut world = World::gated();
    let mut static_pod = pod("Running", true, None);
    static_pod.metadata.owner_references = serde_json::from_value(
        json!([{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u", "controller": true}]),
    )
    .unwrap();
    world.pods = vec![static_pod];
    let message = condition(&world.plan(), "GuardsEnforced", "False").unwrap().1;
    assert!(message.ends_with("Node n controls pod fetch-1: remove the pod's manifest from that node"), "{message}");
}

// An evicted pod stays in its old ReplicaSet until somebody collects it.
#[test]
fn a_pod_that_has_ended_does_not_make_a_guarded_proxy_outdated() {
    let mut world = running();
    let serving = world.pod_of_now("Running", true, None);
    let mut evicted = pod("Failed", false, None);
    let old = "MCPWebhookConfig/gates/0000000000000000".to_owned();
    evicted.metadata.annotations = Some([("toolhive.stacklok.dev/guards".to_owned(), old)].into());
    world.pods = vec![serving, evicted];
    assert!(condition(&world.plan(), "GuardsEnforced", "True").is_some());
    world.workload.spec.image = String::new();
    let plan = world.plan();
    assert!(plan.absent.is_empty(), "a typo beside it takes nothing down: {:?}", plan.absent);
}

#[test]
fn a_secret_that_cannot_be_read_keeps_no_unguarded_proxy_serving() {
    let gated = World::gated();
    let mut world = World::of(json!({"image": "x:1", "transport": "streamable-http"}));
    world.applied(&world.plan());
    world.workload.spec = gated.workload.spec.clone();
    world.has(super::world::config(
        "gates",
        json!({"validating": [{"name": "p", "url": "https://p/", "hmacSecretRef": {"name": "s", "key": "k"}}]}),
    ));
    world.unreadable = Some("cannot read Secret team/s: forbidden".to_owned());
    let plan = world.plan();
    assert!(plan.children.is_empty() && is_absent(&plan, ChildKind::Deployment, "fetch"));
    assert_eq!(plan.status.message.as_deref(), world.unreadable.as_deref());

    // A guarded one goes on, and nothing is rendered from what is not known.
    let mut world = running();
    world.unreadable = Some("cannot read Secret team/s: forbidden".to_owned());
    let plan = world.plan();
    assert!(plan.children.is_empty() && plan.absent.is_empty());
    assert_eq!(condition(&plan, "ReferencesReadable", "False").unwrap().0, "ReferenceNotReadable");
}

// One `kubectl apply` of a configuration and an edit that refers to it: the watch of the first may lag behind that of the second.
#[test]
fn a_guard_that_is_about_to_be_seen_costs_the_open_proxy_and_not_its_service_or_server() {
    let mut world = World::of(json!({"image": "x:1", "transport": "streamable-http"}));
    world.applied(&world.plan());
    world.workload.spec = World::gated().workload.spec;
    world.unseen = true;
    let gone = |world: &mut World| {
        let plan = world.plan();
        assert!(plan.children.is_empty(), "{:?}", plan.children);
        world.applied(&plan);
        [(ChildKind::Deployment, "fetch"), (ChildKind::Service, "mcp-fetch-proxy"), (ChildKind::StatefulSet, "fetch")]
            .map(|(kind, name)| is_absent(&plan, kind, name))
    };
    assert_eq!(gone(&mut world), [true, false, false]);
    assert_eq!(gone(&mut world), [false, false, false]);
    world.unseen = false;
    assert_eq!(gone(&mut world), [true, true, true], "it is missing indeed");
}

// MISSION P6.
#[test]
fn the_network_policy_does_not_go_before_the_pods_it_closes() {
    let mut world = running();
    world.workload.spec.webhook_config_ref.as_mut().unwrap().name = "absent".into();
    world.configs.clear();
    let blocked = world.plan();
    assert!(is_absent(&blocked, ChildKind::StatefulSet, "fetch"));
    assert!(!is_absent(&blocked, ChildKind::NetworkPolicy, "mcp-fetch"));

    let mut world = running();
    world.workload.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(world.now));
    let first = world.plan();
    assert!(is_absent(&first, ChildKind::StatefulSet, "fetch"));
    assert!(!is_absent(&first, ChildKind::NetworkPolicy, "mcp-fetch"), "the pods are still ending");
    world.applied(&first);
    assert!(is_absent(&world.plan(), ChildKind::NetworkPolicy, "mcp-fetch"));
}

#[test]
fn the_pods_of_a_server_called_mcpserver_cannot_be_labelled_into_its_proxys_service() {
    let mut world = World::of(json!({"image": "x:1", "transport": "streamable-http", "podTemplateSpec": {"metadata": {
        "labels": {"app.kubernetes.io/name": "mcpserver", "app.kubernetes.io/instance": "mcpserver", "team": "a"}}}}));
    world.workload.metadata.name = Some("mcpserver".into());
    let plan = world.plan();
    let labels = |kind, name: &str, at: &str| {
        let child = child(&plan, kind, name).unwrap();
        child.pointer(at).unwrap().as_object().unwrap().clone()
    };
    let pods = labels(ChildKind::StatefulSet, "mcpserver", "/spec/template/metadata/labels");
    let selector = labels(ChildKind::Service, "mcp-mcpserver-proxy", "/spec/selector");
    assert!(!selector.iter().all(|(key, value)| pods.get(key) == Some(value)), "{pods:?}");
    assert_eq!(pods["team"], "a");
}

// Security S4: an older version made this proxy.
#[test]
fn a_proxy_with_a_users_option_does_not_go_on() {
    for image in ["--allow-endpoint-cidr=0.0.0.0/0", "--debug"] {
        for unreadable in [None, Some("Secret s: forbidden".to_owned())] {
            let mut world = World::of(json!({"image": "x:1", "transport": "streamable-http"}));
            world.applied(&world.plan());
            world.workload.spec.image = image.to_owned();
            world.unreadable = unreadable;
            let plan = world.plan();
            assert_eq!(plan.children.len(), 0, "{image}");
            assert!(is_absent(&plan, ChildKind::Deployment, "fetch"), "{image}");
            let told = plan.events.iter().any(|event| event.note.contains("spec.image as an option"));
            assert!(told, "{:?}", plan.events);
        }
    }
}
