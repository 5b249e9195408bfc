//! The plan of an MCPToolConfig, and of a server that refers to one.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mcp_api::v1beta1::MCPToolConfig;
use mcp_operator::{config::ConfigKind as _, subject::Subject as _};
use mcp_plan::workload::ChildKind;
use serde_json::{Value, json};

use super::config_plan::{now, plan, says};
use super::world::{World, checksum, condition, deployment, guards, is_absent, run_config, tool_config};

fn valid() -> MCPToolConfig {
    tool_config("tools", json!({"toolsFilter": ["fetch"], "toolsOverride": {"get": {"name": "fetch"}}}))
}

fn kinds(world: &World) -> Vec<String> {
    let document: Value = serde_json::from_str(run_config(&world.plan())).unwrap();
    let chain = document["middleware_configs"].as_array().unwrap();
    chain.iter().map(|entry| entry["type"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_valid_config_gets_hash_and_condition() {
    let config = valid();
    let plan = plan(&config, &[]);
    assert!(!plan.may_go, "it is not being deleted");
    assert_eq!(
        says(&plan, "Valid").unwrap(),
        ("True".into(), "ValidationSucceeded".into(), "Spec validation passed".into())
    );
    assert_eq!(plan.status.config_hash, Some(config.hash()));
    assert_eq!(plan.status.observed_generation, Some(1));
    assert_eq!(plan.status.referencing_workloads, None);
    assert_eq!(plan.events.len(), 1);
}

#[test]
fn workloads_that_refer_to_it_are_listed_sorted_by_kind_and_name_each_once() {
    let referrers = [("MCPServer", "b"), ("MCPRemoteProxy", "z"), ("MCPServer", "a"), ("MCPServer", "b")];
    let plan = plan(&valid(), &referrers);
    assert_eq!(
        serde_json::to_value(plan.status.referencing_workloads).unwrap(),
        json!([
            {"kind": "MCPRemoteProxy", "name": "z"}, {"kind": "MCPServer", "name": "a"}, {"kind": "MCPServer", "name": "b"},
        ])
    );
}

#[test]
fn deletion_waits_for_the_workloads_and_goes_through_when_they_are_gone() {
    let mut config = valid();
    config.metadata.deletion_timestamp = Some(Time(now()));
    let referrers = [("MCPServer", "b"), ("MCPRemoteProxy", "z"), ("MCPServer", "a")];
    let blocked = plan(&config, &referrers);
    assert!(!blocked.may_go);
    let message = "Cannot delete: referenced by MCPRemoteProxies: z; MCPServers: a, b";
    assert_eq!(
        says(&blocked, "DeletionBlocked").unwrap(),
        ("True".into(), "ReferencedByWorkloads".into(), message.into())
    );
    assert!(blocked.events.iter().any(|event| event.reason == "DeletionBlocked" && event.note == message));
    config.status = Some(blocked.status);
    assert!(plan(&config, &referrers).events.is_empty(), "nothing is said twice");

    let free = plan(&config, &[]);
    assert!(free.may_go);
    assert_eq!(says(&free, "DeletionBlocked"), None);
}

#[test]
fn every_rule_that_it_breaks_is_said_with_its_field() {
    let cases = [
        (json!({"toolsFilter": ["fetch", ""]}), &["spec.toolsFilter[1]"][..]),
        (
            json!({"toolsFilter": ["a,b", "c\nd", "e\rf"]}),
            &["spec.toolsFilter[0]", "spec.toolsFilter[1]", "spec.toolsFilter[2]"],
        ),
        (json!({"toolsOverride": {"": {"name": "x"}}}), &["spec.toolsOverride[]"]),
        (json!({"toolsOverride": {"a,b": {"name": "x"}}}), &["spec.toolsOverride[a,b]"]),
        (json!({"toolsOverride": {"a": {"name": "x,y"}}}), &["spec.toolsOverride[a].name"]),
        (json!({"toolsOverride": {"a": {}}}), &["spec.toolsOverride[a]"]),
        (json!({"toolsOverride": {"a": {"name": "", "description": ""}}}), &["spec.toolsOverride[a]"]),
        (json!({"toolsOverride": {"a": {"name": "x"}, "b": {"name": "x"}}}), &["spec.toolsOverride[b].name"]),
        (json!({}), &[]),
        (json!({"toolsFilter": []}), &[]),
        (json!({"toolsOverride": {"a": {"description": "d"}, "b": {"name": "x", "description": "d"}}}), &[]),
    ];
    for (spec, fields) in cases {
        let config = tool_config("tools", spec.clone());
        let found: Vec<_> = config.problems().into_iter().map(|problem| problem.field).collect();
        assert_eq!(found, fields, "{spec}");
        let plan = plan(&config, &[]);
        let (status, reason, message) = says(&plan, "Valid").unwrap();
        let expected = if fields.is_empty() { ("True", "ValidationSucceeded") } else { ("False", "ValidationFailed") };
        assert_eq!((&*status, &*reason), expected, "{spec}: {message}");
        for field in fields {
            assert!(message.contains(&format!("{field}: ")), "{spec}: {message}");
        }
        assert_eq!(plan.status.config_hash.is_some(), fields.is_empty(), "{spec}");
    }
}

#[test]
fn an_invalid_edit_keeps_the_hash_of_the_last_valid_spec() {
    let mut config = valid();
    config.status = Some(plan(&config, &[]).status);
    let hash = config.hash();
    config.spec.tools_filter = Some(vec![String::new()]);
    assert_eq!(plan(&config, &[]).status.config_hash, Some(hash));
}

#[test]
fn the_hash_changes_with_every_member_of_the_spec() {
    let specs = [
        json!({}),
        json!({"toolsFilter": ["a"]}),
        json!({"toolsFilter": ["a", "b"]}),
        json!({"toolsOverride": {"a": {"name": "b"}}}),
        json!({"toolsOverride": {"b": {"name": "b"}}}),
        json!({"toolsOverride": {"a": {"description": "b"}}}),
        json!({"toolsOverride": {"a": {"name": "b", "annotations": {"title": "t"}}}}),
    ];
    let hashes: std::collections::BTreeSet<_> =
        specs.iter().map(|spec| tool_config("tools", spec.clone()).hash()).collect();
    assert_eq!(hashes.len(), specs.len());
}

// toolhive-runner §2.10: the same parameters twice, between auth and the parser.
#[test]
fn the_run_config_filters_tools_between_auth_and_the_parser() {
    let mut world = World::tooled();
    world.has(tool_config(
        "tools",
        json!({"toolsFilter": ["fetch", "b"], "toolsOverride": {"get": {"name": "fetch"}, "b": {"description": "B"}}}),
    ));
    world.workload.spec.webhook_config_ref = World::gated().workload.spec.webhook_config_ref;
    world.configs.extend(World::gated().configs);
    let chain =
        ["bodylimit", "auth", "tool-filter", "tool-call-filter", "mcp-parser", "validating-webhook", "recovery"];
    assert_eq!(kinds(&world), chain);
    let document: Value = serde_json::from_str(run_config(&world.plan())).unwrap();
    let parameters = json!({
        "filter_tools": ["fetch", "b"],
        "tools_override": {"b": {"name": "", "description": "B"}, "get": {"name": "fetch", "description": ""}},
    });
    for at in [2, 3] {
        assert_eq!(document["middleware_configs"][at]["parameters"], parameters);
    }
    assert_eq!(document["tools_filter"], json!(["fetch", "b"]));
    assert_eq!(document["tools_override"], json!({"b": {"description": "B"}, "get": {"name": "fetch"}}));

    world.has(tool_config("tools", json!({})));
    assert_eq!(kinds(&world), ["bodylimit", "auth", "mcp-parser", "validating-webhook", "recovery"]);
}

#[test]
fn a_server_carries_the_hash_of_the_config_it_enforces() {
    let world = World::tooled();
    let status = world.plan().status;
    let hash = world.hash("MCPToolConfig", "tools");
    assert_eq!((status.tool_config_hash, status.webhook_config_hash), (Some(hash), None));
}

#[test]
fn an_edit_of_the_config_rolls_the_proxy_without_a_gap() {
    let mut world = World::tooled();
    world.applied(&world.plan());
    let before = world.plan();
    world.has(tool_config("tools", json!({"toolsFilter": ["other"]})));
    let after = world.plan();
    assert!(!is_absent(&after, ChildKind::Deployment, "fetch"));
    assert_ne!(checksum(&before), checksum(&after));
    let hash = world.hash("MCPToolConfig", "tools");
    assert_eq!(guards(&after), &json!(format!("MCPToolConfig/tools/{hash}")));
    assert_ne!(guards(&before), guards(&after));
}

#[test]
fn a_server_whose_tool_config_is_missing_or_broken_gets_no_proxy() {
    let cases = [
        (None, "ToolConfigNotFound", "MCPToolConfig \"tools\" does not exist"),
        (
            Some(json!({"toolsFilter": [""]})),
            "ToolConfigNotValid",
            "MCPToolConfig \"tools\" is not valid: spec.toolsFilter[0]: \"\" cannot",
        ),
    ];
    for (spec, reason, words) in cases {
        let mut world = World::tooled();
        world.configs.clear();
        if let Some(spec) = spec {
            world.has(tool_config("tools", spec));
        }
        let plan = world.plan();
        let (said, message) = condition(&plan, "ToolConfigValidated", "False").unwrap();
        assert!(said == reason && message.contains(words), "{said}: {message}");
        assert!(plan.children.is_empty(), "{reason}");
        assert_eq!((plan.status.phase.unwrap().as_str(), &plan.status.tool_config_hash), ("Failed", &None), "{reason}");
        assert!(plan.events.iter().any(|event| event.reason == reason), "{:?}", plan.events);
    }
    let plan = World::tooled().plan();
    assert_eq!(condition(&plan, "ToolConfigValidated", "True").unwrap().0, "ToolConfigValid");
}

#[test]
fn a_server_that_names_one_gets_its_proxy_where_the_proxy_has_the_filter_and_none_where_it_has_not() {
    let mut world = World::tooled();
    assert!(deployment(&world.plan()).is_object());
    world.settings.runner_middleware =
        ["bodylimit", "auth", "tool-filter", "mcp-parser", "recovery"].map(str::to_owned).into();
    let plan = world.plan();
    let (reason, message) = condition(&plan, "GuardsEnforced", "False").unwrap();
    assert!(reason == "GuardNotBuilt" && message.starts_with("spec.toolConfigRef "), "{reason}: {message}");
    assert!(plan.children.is_empty());
    assert!(condition(&plan, "ToolConfigValidated", "True").is_some(), "the configuration itself is fine");
    assert_eq!(plan.status.phase.unwrap().as_str(), "Failed");
}

#[test]
fn what_has_no_effect_is_warned_of_with_its_field() {
    let config = tool_config("tools", json!({"toolsOverride": {"a": {"name": "b", "annotations": {"title": "t"}}}}));
    let warnings = config.warnings(&World::tooled().settings);
    assert_eq!(warnings, ["spec.toolsOverride[a].annotations has no effect in this version"]);
    assert!(valid().warnings(&World::tooled().settings).is_empty());
}
