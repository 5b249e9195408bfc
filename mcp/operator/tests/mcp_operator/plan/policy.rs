//! Which policy is in force: the guards on the pod template, and what the status says of the pods that serve.

use k8s_openapi::api::core::v1::Pod;
use mcp_plan::workload::ChildKind;
use portcullis::controller::EventType;
use serde_json::{Value, json};

use super::world::{Plan, World, child, condition, config, deployment, guards, is_absent, pod, tool_config};

const GUARDS: &str = "toolhive.stacklok.dev/guards";
const WEBHOOK_CONFIG: &str = "toolhive.stacklok.dev/webhook-config";

fn hash(world: &World) -> String {
    world.hash("MCPWebhookConfig", "gates")
}

/// A gated server whose proxy serves.
fn serving() -> World {
    let mut world = World::gated();
    world.applied(&world.plan());
    world.pods = vec![world.pod_of_now("Running", true, None)];
    world.applied(&world.plan());
    world
}

fn edit(world: &mut World, url: &str) {
    world.has(config("gates", json!({"validating": [{"name": "policy", "url": url}]})));
}

fn enforced(plan: &Plan) -> (String, String, String) {
    let conditions = plan.status.conditions.as_deref().unwrap();
    let found = conditions.iter().find(|it| it.type_ == "GuardsEnforced").expect("it is said");
    (found.status.clone(), found.reason.clone(), found.message.clone())
}

/// As the version before the guards' digest left it: only the Deployment names the configuration.
fn before_the_digest(world: &mut World) {
    let strip = |annotations: Option<&mut std::collections::BTreeMap<String, String>>| {
        annotations.map(|all| all.remove(GUARDS)).expect("it was there");
    };
    let live = world.deployment.as_mut().unwrap();
    assert!(live.metadata.annotations.as_ref().unwrap().contains_key(WEBHOOK_CONFIG));
    let template = &mut live.spec.as_mut().unwrap().template;
    strip(template.metadata.as_mut().unwrap().annotations.as_mut());
    for pod in &mut world.pods {
        strip(pod.metadata.annotations.as_mut());
    }
}

#[test]
fn the_guards_on_the_pod_template_are_the_operators_to_say() {
    let overrides = json!({"proxyDeployment": {
        "annotations": {GUARDS: "forged", WEBHOOK_CONFIG: "forged", "team": "core"},
        "podTemplateMetadataOverrides": {
            "annotations": {GUARDS: "forged", WEBHOOK_CONFIG: "forged", "vault.hashicorp.com/agent-inject": "true"}},
    }});
    for gated in [true, false] {
        let mut world = World::gated();
        if !gated {
            world.workload.spec.webhook_config_ref = None;
        }
        let own = world.plan();
        world.workload.spec.resource_overrides = serde_json::from_value(overrides.clone()).unwrap();
        let plan = world.plan();
        let expected = if gated { json!(format!("MCPWebhookConfig/gates/{}", hash(&world))) } else { Value::Null };
        assert_eq!(guards(&plan), &expected);
        assert_eq!(guards(&plan), guards(&own));
        let (at, template) = (&deployment(&plan)["metadata"], &deployment(&plan)["spec"]["template"]["metadata"]);
        assert_eq!(at["annotations"][WEBHOOK_CONFIG], deployment(&own)["metadata"]["annotations"][WEBHOOK_CONFIG]);
        assert_eq!(
            (&at["annotations"][GUARDS], &template["annotations"][WEBHOOK_CONFIG]),
            (&Value::Null, &Value::Null)
        );
        assert_eq!(template["annotations"]["vault.hashicorp.com/agent-inject"], "true");
        assert_eq!(at["annotations"]["team"], "core");
        assert_eq!(template["annotations"].get("team"), None);
    }
}

#[test]
fn the_digest_names_every_guard_in_one_order() {
    let mut world = World::gated();
    let tools = World::tooled();
    world.workload.spec.tool_config_ref = tools.workload.spec.tool_config_ref;
    world.configs.extend(tools.configs);
    let tools = world.hash("MCPToolConfig", "tools");
    let expected = format!("MCPToolConfig/tools/{tools},MCPWebhookConfig/gates/{}", hash(&world));
    assert_eq!(guards(&world.plan()), &json!(expected));
}

#[test]
fn the_status_calls_enforced_what_every_serving_pod_enforces() {
    let world = serving();
    let plan = world.plan();
    let message = "every proxy pod that serves enforces MCPWebhookConfig \"gates\"";
    assert_eq!(enforced(&plan), ("True".into(), "Enforced".into(), message.into()));
    assert_eq!(plan.status.webhook_config_hash, Some(hash(&world)));
    assert_eq!(plan.status.message.as_deref(), Some("MCP server is running"));
    assert!(plan.events.is_empty(), "{:?}", plan.events);

    // Without a guard there is nothing to say.
    let mut free = World::of(json!({"image": "x:1", "transport": "streamable-http"}));
    free.applied(&free.plan());
    free.pods = vec![free.pod_of_now("Running", true, None)];
    assert!(free.plan().status.conditions.unwrap().iter().all(|it| it.type_ != "GuardsEnforced"));
}

#[test]
fn a_policy_that_new_pods_cannot_start_with_is_not_called_enforced() {
    let cases = [
        (None, "new pods are not ready yet"),
        (Some(("Pending", None)), "new pods are not ready yet"),
        (Some(("Running", Some("CrashLoopBackOff"))), "new pods fail: CrashLoopBackOff"),
        (Some(("Pending", Some("CreateContainerError"))), "new pods fail: CreateContainerError"),
    ];
    for (new, why) in cases {
        let mut world = serving();
        let before = hash(&world);
        edit(&mut world, "https://new/");
        let plan = world.plan();
        assert!(!is_absent(&plan, ChildKind::Deployment, "fetch"), "changed: it rolls");
        world.applied(&plan);
        world.pods.extend(new.map(|(phase, waiting)| world.pod_of_now(phase, false, waiting)));
        let plan = world.plan();
        let (status, reason, message) = enforced(&plan);
        assert_eq!((&*status, &*reason), ("False", "PolicyOutdated"), "{why}: {message}");
        assert_eq!(message, "1 of 1 proxy pods that serve enforce an older policy");
        assert_eq!(plan.status.webhook_config_hash.as_ref(), Some(&before), "{why}: what serves");
        assert_eq!(plan.status.phase.unwrap().as_str(), "Ready", "{why}: something serves");
        let told = plan.status.message.clone().unwrap();
        assert!(told.contains(&message) && told.ends_with(why), "{told}");

        let failed = new.and_then(|(_, waiting)| waiting).is_some();
        let warnings = |plan: &Plan| {
            let found = plan.events.iter().filter(|event| event.reason == "RolloutFailed");
            found.filter(|event| event.type_ == EventType::Warning && event.note == told).count()
        };
        assert_eq!(warnings(&plan), usize::from(failed), "{:?}", plan.events);
        world.applied(&plan);
        assert!(world.plan().events.is_empty(), "{why}: nothing is said twice");

        // Once only the new pods serve, it is.
        world.pods = vec![world.pod_of_now("Running", true, None)];
        let plan = world.plan();
        assert_eq!(enforced(&plan).0, "True");
        assert_eq!(plan.status.webhook_config_hash, Some(hash(&world)));
        assert_eq!(plan.status.message.as_deref(), Some("MCP server is running"));
    }
}

#[test]
fn while_old_and_new_pods_serve_the_old_policy_counts() {
    let mut world = serving();
    let before = hash(&world);
    edit(&mut world, "https://new/");
    world.applied(&world.plan());
    for _ in 0..2 {
        world.pods.push(world.pod_of_now("Running", true, None));
        world.pods.reverse();
        let plan = world.plan();
        let (status, _, message) = enforced(&plan);
        let of = world.pods.len();
        assert_eq!((&*status, message), ("False", format!("1 of {of} proxy pods that serve enforce an older policy")));
        assert_eq!(plan.status.webhook_config_hash.as_ref(), Some(&before));
    }
}

#[test]
fn where_no_pod_serves_nothing_is_called_enforced() {
    let mut world = World::gated();
    for pods in [vec![], vec![("Pending", false, None)], vec![("Running", false, Some("CrashLoopBackOff"))]] {
        world.applied(&world.plan());
        world.pods = pods.iter().map(|(phase, ready, waiting)| world.pod_of_now(phase, *ready, *waiting)).collect();
        let plan = world.plan();
        assert_eq!(enforced(&plan), ("False".into(), "NoPodServes".into(), "no proxy pod serves".into()));
        assert_eq!(plan.status.webhook_config_hash, Some(hash(&world)), "what new pods will enforce");
    }
    let mut ending = serving();
    ending.pods[0].metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(ending.now));
    assert_eq!(enforced(&ending.plan()).1, "NoPodServes");
}

#[test]
fn a_config_that_cannot_be_used_any_more_leaves_the_old_policy_in_force_and_says_so() {
    for broken in [None, Some(config("gates", json!({"validating": [{"name": "policy", "url": "ftp://x/"}]})))] {
        let mut world = serving();
        let before = hash(&world);
        world.configs.clear();
        if let Some(config) = broken {
            world.has(config);
        }
        let plan = world.plan();
        let (status, reason, message) = enforced(&plan);
        assert_eq!((&*status, &*reason), ("False", "GuardNotUsable"));
        let said = message.strip_prefix("proxy pods enforce what was asked for before: ").unwrap();
        assert!(said.contains("MCPWebhookConfig \"gates\" "), "{said}");
        assert_eq!(plan.status.webhook_config_hash, Some(before));
        assert!(plan.children.is_empty() && plan.absent.is_empty(), "what runs is left");
    }
}

/// A guard that is missing, changed or removed.
#[test]
fn an_added_guard_comes_after_the_old_pods_and_another_change_rolls() {
    let tools = json!({"name": "tools"});
    let gates = json!({"name": "gates"});
    let spec = |webhooks: Option<&Value>, tools: Option<&Value>| {
        let mut spec = json!({"image": "x:1", "transport": "streamable-http"});
        spec["webhookConfigRef"] = webhooks.cloned().unwrap_or_default();
        spec["toolConfigRef"] = tools.cloned().unwrap_or_default();
        spec
    };
    let cases = [
        ("a first guard", spec(None, None), spec(Some(&gates), None), true),
        ("a second one", spec(Some(&gates), None), spec(Some(&gates), Some(&tools)), true),
        ("one for another", spec(Some(&gates), None), spec(None, Some(&tools)), true),
        ("another of the kind", spec(Some(&gates), None), spec(Some(&json!({"name": "other"})), None), true),
        ("the last one goes", spec(Some(&gates), None), spec(None, None), false),
        ("one of two goes", spec(Some(&gates), Some(&tools)), spec(Some(&gates), None), false),
        ("nothing", spec(Some(&gates), Some(&tools)), spec(Some(&gates), Some(&tools)), false),
    ];
    for (what, before, after, first_absent) in cases {
        for pods in [false, true] {
            let mut world = World::of(before.clone());
            world.configs = World::gated().configs;
            world.has(tool_config("tools", json!({"toolsFilter": ["a"]})));
            world.applied(&world.plan());
            if pods {
                world.pods = vec![world.pod_of_now("Running", true, None)];
            }
            world.workload.spec = World::of(after.clone()).workload.spec;
            if after["webhookConfigRef"]["name"] == "other" {
                world.has(config("other", json!({"validating": [{"name": "policy", "url": "https://policy/"}]})));
            }
            let plan = world.plan();
            assert_eq!(is_absent(&plan, ChildKind::Deployment, "fetch"), first_absent, "{what}");
            assert_eq!(child(&plan, ChildKind::Deployment, "fetch").is_none(), first_absent, "{what}");
            assert!(child(&plan, ChildKind::StatefulSet, "fetch").is_some(), "{what}: the MCP server stays");
            let removed = plan.events.iter().any(|event| event.reason == "ProxyRemoved");
            assert_eq!(removed, first_absent, "{what}: {:?}", plan.events);
            if pods && first_absent {
                assert_eq!(enforced(&plan).1, "GuardMissing", "{what}");
            }
            // Once they are gone it comes with all that is asked for.
            if first_absent {
                world.applied(&plan);
                world.pods.clear();
            }
            let plan = world.plan();
            let asked = World { children: [].into(), deployment: None, pods: Vec::new(), ..world.clone() }.plan();
            assert!(!is_absent(&plan, ChildKind::Deployment, "fetch"), "{what}");
            assert_eq!(deployment(&plan), deployment(&asked), "{what}");
            assert_eq!(guards(&plan).is_null(), what == "the last one goes", "{what}");
        }
    }
}

#[test]
fn where_a_guard_is_added_pods_that_outlive_their_deployment_are_waited_for() {
    let mut world = World::of(json!({"image": "x:1", "transport": "streamable-http"}));
    world.applied(&world.plan());
    world.pods = vec![world.pod_of_now("Running", true, None)];
    world.workload.spec = World::gated().workload.spec;
    world.configs = World::gated().configs;
    // Its deletion waits for its pods: until then every plan says the same, and none makes a new one.
    world.deployment.as_mut().unwrap().metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(world.now));
    let plan = world.plan();
    assert!(child(&plan, ChildKind::Deployment, "fetch").is_none());
    assert!(plan.events.iter().all(|event| event.reason != "ProxyRemoved"), "it was said when it was removed");
}

/// Nor does it matter who deleted the Deployment, or whether it is that of a workload of this name that was there before.
#[test]
fn no_proxy_is_made_beside_open_pods_whose_deployment_is_gone() {
    let mut world = World::of(json!({"image": "x:1", "transport": "streamable-http"}));
    world.applied(&world.plan());
    let open = world.pod_of_now("Running", true, None);
    let made = |world: &World| child(&world.plan(), ChildKind::Deployment, "fetch").is_some();
    let ends = |mut pod: Pod| {
        pod.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(world.now));
        pod
    };
    let mut ended = pod("Failed", false, None);
    ended.metadata.annotations.clone_from(&open.metadata.annotations);
    let mut strangers = open.clone();
    strangers.metadata.owner_references = None;
    let guarded = serving().pods.remove(0);
    let cases = [
        ("it serves", open.clone(), false),
        ("it is ending", ends(open), false),
        ("it has ended", ended, true),
        ("it has the guard", ends(guarded), true),
        ("it is not of the Deployment", strangers, true),
    ];
    for (what, pod, is_made) in cases {
        let mut gated = World::gated();
        gated.pods = vec![pod.clone()];
        assert_eq!(made(&gated), is_made, "{what}");
        let plan = gated.plan();
        assert!(child(&plan, ChildKind::StatefulSet, "fetch").is_some(), "{what}: the MCP server is made");
        gated.pods.clear();
        assert!(made(&gated), "{what}: once it is gone");
        // Where nothing is asked for, nothing is lacking.
        let mut free = World::of(json!({"image": "x:1", "transport": "streamable-http"}));
        free.pods = vec![pod];
        assert!(made(&free), "{what}");
    }
}

#[test]
fn open_pods_that_are_ending_are_told_of_until_they_are_gone() {
    let mut world = World::of(json!({"image": "x:1", "transport": "streamable-http"}));
    world.applied(&world.plan());
    world.pods = vec![world.pod_of_now("Running", true, None)];
    world.workload.spec = World::gated().workload.spec;
    world.configs = World::gated().configs;
    world.applied(&world.plan());
    world.pods[0].metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(world.now));
    let (status, reason, message) = enforced(&world.plan());
    assert_eq!((&*status, &*reason), ("False", "GuardMissing"), "{message}");
    assert_eq!(message, "1 pods that are ending lack a guard");
    // Those that do not serve any more, and those that have it, are no news.
    let mut closed = world.clone();
    closed.pods[0].status.as_mut().unwrap().container_statuses.as_mut().unwrap()[0].ready = false;
    assert_eq!(enforced(&closed.plan()).1, "NoPodServes");
    world.pods.clear();
    world.applied(&world.plan());
    world.pods = vec![world.pod_of_now("Running", true, None)];
    assert_eq!(enforced(&world.plan()).1, "Enforced");
}

/// Its old pods serve until new ones are ready: they are no reason to take it down.
#[test]
fn a_block_during_a_rollout_takes_nothing_down() {
    let breaks: [fn(&mut World); 3] = [
        |world| world.unreadable = Some("cannot read Secret team/s: the server is busy".to_owned()),
        |world| world.workload.spec.image = String::new(),
        |world| world.configs.clear(),
    ];
    for make_broken in breaks {
        let mut world = serving();
        edit(&mut world, "https://new/");
        world.applied(&world.plan());
        make_broken(&mut world);
        let plan = world.plan();
        assert!(plan.children.is_empty() && plan.absent.is_empty(), "{:?}", plan.absent);
        assert!(plan.status.message.unwrap().ends_with("what runs already is left as it is"));
    }
    // What cannot be read says nothing of a content that has changed before it could be put in place.
    let mut world = serving();
    edit(&mut world, "https://new/");
    breaks[0](&mut world);
    assert_eq!(world.plan().absent, []);
}

/// Such a pod gets calls of the proxy's Service like any other; it does not go with the Deployment.
#[test]
fn a_strangers_pod_that_serves_is_never_called_guarded_and_never_takes_the_deployment_away() {
    let mut world = serving();
    for digest in [None, world.pods[0].metadata.annotations.clone()] {
        for owners in [None, Some("other-5b8c")] {
            let mut stranger = world.pods[0].clone();
            stranger.metadata.annotations.clone_from(&digest);
            match (owners, &mut stranger.metadata.owner_references) {
                (Some(name), Some(all)) => all[0].name = name.to_owned(),
                (_, all) => *all = None,
            }
            world.pods.truncate(1);
            world.pods.push(stranger);
            let plan = world.plan();
            let (status, reason, message) = enforced(&plan);
            assert_eq!((&*status, &*reason), ("False", "GuardMissing"), "{digest:?} {owners:?}: {message}");
            assert!(!is_absent(&plan, ChildKind::Deployment, "fetch"), "{digest:?} {owners:?}");
        }
    }
}

/// A rollout that somebody undid, or a template that somebody edited and the operator repaired.
#[test]
fn a_pod_that_lacks_a_guard_goes_first_even_under_a_guarded_template() {
    let digests = [None, Some("MCPWebhookConfig/gates/0"), Some("MCPToolConfig/others/0"), Some(""), Some("nonsense")];
    for digest in digests {
        for ready in [true, false] {
            let mut world = World::tooled();
            world.applied(&world.plan());
            let mut without = world.pod_of_now("Running", ready, None);
            let annotations = without.metadata.annotations.as_mut().unwrap();
            annotations.remove(GUARDS);
            annotations.extend(digest.map(|digest| (GUARDS.to_owned(), digest.to_owned())));
            world.pods = vec![world.pod_of_now("Running", true, None), without];
            let plan = world.plan();
            assert!(is_absent(&plan, ChildKind::Deployment, "fetch"), "{digest:?}");
            assert!(child(&plan, ChildKind::Deployment, "fetch").is_none(), "{digest:?}");
            let expected = if ready { ("False", "GuardMissing") } else { ("True", "Enforced") };
            let (status, reason, _) = enforced(&plan);
            assert_eq!((&*status, &*reason), expected, "{digest:?}");
            // One that is ending serves no more.
            world.pods[1].metadata.deletion_timestamp =
                Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(world.now));
            assert!(!is_absent(&world.plan(), ChildKind::Deployment, "fetch"), "{digest:?}");
        }
    }
}

/// A pod whose digest is there says what it enforces, whatever its Deployment is annotated with.
#[test]
fn the_deployments_annotation_vouches_for_no_pod_that_says_otherwise() {
    let mut world = serving();
    for digest in ["", "MCPWebhookConfig/other/0", "MCPToolConfig/gates/0"] {
        world.pods[0].metadata.annotations.as_mut().unwrap().insert(GUARDS.into(), digest.into());
        let plan = world.plan();
        assert!(is_absent(&plan, ChildKind::Deployment, "fetch"), "{digest:?}");
        assert_eq!(enforced(&plan).1, "GuardMissing", "{digest:?}");
    }
}

#[test]
fn an_upgrade_takes_no_guarded_proxy_down_and_rolls_it_once() {
    let mut world = serving();
    before_the_digest(&mut world);
    let first = world.plan();
    assert!(!is_absent(&first, ChildKind::Deployment, "fetch"));
    assert_eq!(guards(&first), &json!(format!("MCPWebhookConfig/gates/{}", hash(&world))));
    let (status, reason, _) = enforced(&first);
    assert_eq!((&*status, &*reason), ("False", "PolicyOutdated"), "nobody can tell which content it enforces");
    assert_eq!(first.status.webhook_config_hash, None);
    assert_eq!(first.status.phase.unwrap().as_str(), "Ready");

    // It rolls: the pods that were there go on until new ones are ready.
    let old: Vec<Pod> = world.pods.clone();
    world.applied(&first);
    world.pods = old.clone();
    let second = world.plan();
    assert_eq!(second.children, first.children, "once");
    assert!(!is_absent(&second, ChildKind::Deployment, "fetch"));
    assert_eq!(enforced(&second).1, "PolicyOutdated");
    world.applied(&second);
    world.pods = old.into_iter().chain([world.pod_of_now("Running", true, None)]).collect();
    let both = world.plan();
    assert!(!is_absent(&both, ChildKind::Deployment, "fetch"));
    assert_eq!(enforced(&both).1, "PolicyOutdated");
    world.pods.remove(0);
    let done = world.plan();
    assert_eq!((enforced(&done).0, done.status.webhook_config_hash.clone()), ("True".into(), Some(hash(&world))));
    assert_eq!(done.children, first.children);
}

#[test]
fn an_upgrade_of_a_server_that_is_broken_meanwhile_takes_no_guarded_proxy_down() {
    let breaks: [fn(&mut World); 3] = [
        |world| world.workload.spec.image = String::new(),
        |world| world.configs.clear(),
        |world| world.has(config("gates", json!({}))),
    ];
    for make_broken in breaks {
        let mut world = serving();
        before_the_digest(&mut world);
        make_broken(&mut world);
        let plan = world.plan();
        assert!(plan.children.is_empty() && plan.absent.is_empty(), "{:?}", plan.absent);
        assert_eq!(plan.status.phase.unwrap().as_str(), "Failed");
        assert_eq!(enforced(&plan).0, "False");
    }
}

#[test]
fn an_upgrade_keeps_no_proxy_that_lacked_the_guard() {
    // No annotation, that of another configuration, and one of a kind that older versions could not enforce.
    let breaks: [fn(&mut World); 2] = [
        |world| world.deployment.as_mut().unwrap().metadata.annotations = None,
        |world| {
            let annotations = world.deployment.as_mut().unwrap().metadata.annotations.as_mut().unwrap();
            annotations.insert(WEBHOOK_CONFIG.into(), "other/0123456789abcdef".into());
        },
    ];
    for make_unguarded in breaks {
        let mut world = serving();
        before_the_digest(&mut world);
        make_unguarded(&mut world);
        let plan = world.plan();
        assert!(is_absent(&plan, ChildKind::Deployment, "fetch"));
        assert_eq!(enforced(&plan).1, "GuardMissing");
    }
}

/// Of an older version's proxy only the Deployment tells the content. It is what it was made with.
#[test]
fn an_upgrade_beside_a_broken_spec_leaves_no_laxer_policy() {
    let mut world = serving();
    before_the_digest(&mut world);
    edit(&mut world, "https://stricter/");
    world.workload.spec.image = String::new();
    let plan = world.plan();
    assert!(is_absent(&plan, ChildKind::Deployment, "fetch"));
    assert_eq!(condition(&plan, "SpecValid", "False").unwrap().0, "InvalidSpec");
}

#[test]
fn a_pod_that_runs_another_proxy_does_not_count_as_guarded() {
    let says = |world: &World| {
        let (status, reason, message) = enforced(&world.plan());
        (status == "True", reason, message)
    };
    let changed = |how: &str| {
        let message =
            format!("1 of 1 proxy pods that serve have another proxy container than this operator makes ({how})");
        (false, "ProxyChanged".to_owned(), message)
    };
    let mut world = serving();
    assert_eq!(says(&world).1, "Enforced");
    let made = world.pods[0].clone();
    world.pods[0].spec.as_mut().unwrap().containers[0].command = Some(vec!["/own/proxy".to_owned()]);
    assert_eq!(says(&world), changed("command"));
    world.pods[0].spec.as_mut().unwrap().containers[0].name = "other".to_owned();
    assert_eq!(says(&world), changed("name"));
    world.pods[0].spec = None;
    assert_eq!(says(&world), changed("name"));

    // One that is ending serves until it is gone.
    let mut ending = made.clone();
    ending.metadata.name = Some("fetch-2".to_owned());
    ending.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(world.now));
    world.pods = vec![made.clone(), ending.clone()];
    assert_eq!(says(&world).1, "Enforced");
    ending.spec.as_mut().unwrap().containers[0].args = None;
    world.pods[1] = ending;
    assert!(says(&world).2.starts_with("1 of 2 proxy pods that serve") && says(&world).2.ends_with("(args)"));

    // The Deployment itself may have been changed in a way that nobody holds: a webhook's.
    world.pods = vec![made.clone()];
    let live = world.deployment.as_mut().and_then(|live| live.spec.as_mut()).unwrap();
    live.template.spec.as_mut().unwrap().containers[0].command = Some(vec!["/own/proxy".to_owned()]);
    assert_eq!(says(&world).1, "Enforced", "its pods count");
    world.pods = vec![world.pod_of_now("Running", true, None)];
    assert_eq!(says(&world), changed("command"));

    // A rollout.
    world.pods = vec![made];
    world.settings.runner_image = "ghcr.io/stacklok/toolhive/proxyrunner:next".to_owned();
    assert_eq!(says(&world), changed("image \"ghcr.io/stacklok/toolhive/proxyrunner:latest\""));
    assert!(world.plan().status.message.unwrap().ends_with(": new pods are not ready yet"));

    // Where none can be made, what runs is not compared.
    let mut world = serving();
    world.workload.spec.image = String::new();
    let (is_enforced, reason, message) = says(&world);
    assert!(!is_enforced && reason == "ProxyChanged" && message.contains("not known"), "{reason}: {message}");
}
