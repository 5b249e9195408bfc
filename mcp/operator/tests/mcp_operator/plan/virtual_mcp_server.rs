//! The plan of a VirtualMCPServer: what it refers to is looked up, said and tracked; nothing is made for it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use mcp_api::v1beta1::{MCPOIDCConfig, MCPTelemetryConfig, MCPToolConfig, VirtualMCPServer, VirtualMCPServerStatus};
use mcp_operator::{
    config::{ConfigKind, erased},
    subject::Subject as _,
    workload::{Inputs, Workload as _, plan_workload},
};
use mcp_plan::{
    config::Configs,
    reference::{Reference, missing},
};
use portcullis::controller::PlannedEvent;
use serde_json::{Value, json};

use super::world::{World, inline, oidc_config, telemetry_config, tool_config};

const NOTHING_SERVES: &str =
    "this version checks what a VirtualMCPServer refers to and makes no Deployment for it: nothing serves";

/// A virtual server called `all` with these members in its spec besides.
fn virtual_server(spec: Value) -> VirtualMCPServer {
    let mut all = json!({"groupRef": {"name": "tools"}, "incomingAuth": {"type": "anonymous"}});
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    serde_json::from_value(json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "VirtualMCPServer",
        "metadata": {"name": "all", "namespace": "team", "uid": "u-1", "generation": 2}, "spec": all,
    }))
    .unwrap()
}

fn with_login() -> VirtualMCPServer {
    let reference = json!({"name": "idp", "audience": "all"});
    virtual_server(json!({"incomingAuth": {"type": "oidc", "oidcConfigRef": reference}}))
}

fn with_tools(names: &[&str]) -> VirtualMCPServer {
    let tools = names.iter().map(|name| json!({"workload": format!("of-{name}"), "toolConfigRef": {"name": name}}));
    virtual_server(json!({"config": {"aggregation": {"tools": tools.collect::<Vec<_>>()}}}))
}

/// What exists, beside a virtual server.
#[derive(Default)]
struct Around {
    login: Option<MCPOIDCConfig>,
    tools: Vec<MCPToolConfig>,
    telemetry: Option<MCPTelemetryConfig>,
    policies: bool,
}

fn plan(server: &VirtualMCPServer, around: Around) -> (VirtualMCPServerStatus, Vec<PlannedEvent>) {
    let mut world = World::of(json!({"image": "unused:1"}));
    if around.policies {
        world.config_map("policies", "authz.json", "{}");
    }
    let mut configs = Configs::new();
    for config in around.tools {
        let name = config.metadata.name.clone().unwrap();
        configs.insert(("MCPToolConfig".into(), name), erased(Arc::new(config)));
    }
    if let Some(config) = around.telemetry {
        configs.insert(("MCPTelemetryConfig".into(), "traces".into()), erased(Arc::new(config)));
    }
    if let Some(config) = around.login {
        configs.insert(("MCPOIDCConfig".into(), "idp".into()), erased(Arc::new(config)));
    }
    let plan = plan_workload(&Inputs {
        workload: server,
        configs: &configs,
        unseen: false,
        data: &world.data,
        unreadable: None,
        denied: None,
        deployment: None,
        children: &BTreeSet::new(),
        opened: &BTreeMap::new(),
        pods: &[],
        containers: &BTreeMap::new(),
        backend_pods: &[],
        reach: None,
        settings: &world.settings,
        now: world.now,
    });
    assert!(plan.children.is_empty() && plan.absent.is_empty(), "nothing is made and nothing is deleted");
    (VirtualMCPServer::status_of(plan.report), plan.events)
}

fn says(status: &VirtualMCPServerStatus, type_: &str) -> Option<(String, String, String)> {
    let found = status.conditions.iter().flatten().find(|condition| condition.type_ == type_)?;
    Some((found.status.clone(), found.reason.clone(), found.message.clone()))
}

fn phase(status: &VirtualMCPServerStatus) -> &'static str {
    status.phase.unwrap().as_str()
}

#[test]
fn one_condition_says_that_nothing_serves_and_the_phase_is_not_a_failure_of_the_author_s() {
    let mut server = virtual_server(json!({}));
    let (status, events) = plan(&server, Around::default());
    let not_built = ("False".to_owned(), "DeploymentNotBuilt".to_owned(), NOTHING_SERVES.to_owned());
    assert_eq!(says(&status, "Ready").unwrap(), not_built);
    assert_eq!((phase(&status), status.message.as_deref()), ("Pending", Some(NOTHING_SERVES)));
    assert_eq!((status.observed_generation, status.url.clone()), (Some(2), None));
    assert_eq!(says(&status, "Valid").unwrap().0, "True");
    assert_eq!(events.len(), 1, "{events:?}");

    server.status = Some(status.clone());
    let (again, events) = plan(&server, Around::default());
    assert_eq!((again, events), (status, Vec::new()), "a second look changes nothing");
}

#[test]
fn its_login_is_looked_up_and_its_hash_is_kept() {
    let server = with_login();
    let (missing, _) = plan(&server, Around::default());
    assert_eq!(says(&missing, "OIDCConfigRefValidated").unwrap().1, "OIDCConfigRefNotFound");
    assert_eq!((phase(&missing), missing.oidc_config_hash), ("Failed", None));
    let message = missing.message.unwrap();
    assert!(message.contains("MCPOIDCConfig \"idp\" does not exist") && message.ends_with(NOTHING_SERVES), "{message}");

    let broken = oidc_config("idp", inline(json!({"issuer": "nowhere"})));
    let (broken, _) = plan(&server, Around { login: Some(broken), ..Around::default() });
    assert_eq!(says(&broken, "OIDCConfigRefValidated").unwrap().1, "OIDCConfigRefNotValid");

    let login = oidc_config("idp", inline(json!({})));
    let hash = ConfigKind::hash(&login);
    let (fine, _) = plan(&server, Around { login: Some(login), ..Around::default() });
    assert_eq!(says(&fine, "OIDCConfigRefValidated").unwrap().1, "OIDCConfigRefValid");
    assert_eq!((phase(&fine), fine.oidc_config_hash.clone()), ("Pending", Some(hash)));
    assert_eq!(says(&fine, "Ready").unwrap().1, "DeploymentNotBuilt");
}

#[test]
fn its_telemetry_is_looked_up_and_its_hash_is_kept() {
    let mut server = virtual_server(json!({"telemetryConfigRef": {"name": "traces", "serviceName": "all"}}));
    let telemetry = telemetry_config("traces", json!({"prometheus": {"enabled": true}}));
    let hash = ConfigKind::hash(&telemetry);
    for (there, reason, phased, kept) in [
        (None, "TelemetryConfigRefNotFound", "Failed", None),
        (Some(telemetry), "TelemetryConfigRefValid", "Pending", Some(hash)),
    ] {
        let (status, _) = plan(&server, Around { telemetry: there, ..Around::default() });
        assert_eq!(says(&status, "TelemetryConfigRefValidated").unwrap().1, reason);
        assert_eq!((phase(&status), &status.telemetry_config_hash), (phased, &kept), "{reason}");
    }
    assert!(server.references().iter().any(|reference| reference.token() == "MCPTelemetryConfig/traces"));
    server.spec.telemetry_config_ref = None;
    assert_eq!(says(&plan(&server, Around::default()).0, "TelemetryConfigRefValidated"), None);
}

#[test]
fn of_several_tool_configs_one_that_cannot_be_used_decides_whatever_its_place() {
    let fine = |name| tool_config(name, json!({"toolsFilter": ["fetch"]}));
    for (names, there, reason) in [
        (["a", "b"], vec![fine("a"), fine("b")], "ToolConfigValid"),
        (["a", "b"], vec![fine("b")], "ToolConfigNotFound"),
        (["a", "b"], vec![fine("a")], "ToolConfigNotFound"),
        (["a", "b"], vec![fine("a"), tool_config("b", json!({"toolsFilter": [""]}))], "ToolConfigNotValid"),
        (["a", "b"], vec![tool_config("a", json!({"toolsFilter": [""]})), fine("b")], "ToolConfigNotValid"),
    ] {
        let (status, _) = plan(&with_tools(&names), Around { tools: there.clone(), ..Around::default() });
        assert_eq!(says(&status, "ToolConfigValidated").unwrap().1, reason, "{there:?}");
        assert_eq!(phase(&status), if reason == "ToolConfigValid" { "Pending" } else { "Failed" }, "{there:?}");
    }
}

#[test]
fn references_to_kinds_that_this_version_does_not_have_are_named_and_fail_nothing() {
    let server = virtual_server(json!({
        "embeddingServerRef": {"name": "words"},
        "config": {"compositeToolRefs": [{"name": "deploy"}, {"name": "build"}]},
    }));
    let (status, _) = plan(&server, Around::default());
    for (condition, named) in [
        ("GroupRefValidated", "spec.groupRef: MCPGroup \"tools\""),
        ("EmbeddingServerReady", "spec.embeddingServerRef: EmbeddingServer \"words\""),
        (
            "CompositeToolRefsValidated",
            "\"build\", spec.config.compositeToolRefs: VirtualMCPCompositeToolDefinition \"deploy\"",
        ),
    ] {
        let (status, reason, message) = says(&status, condition).unwrap();
        assert_eq!((&*status, &*reason), ("False", "KindNotBuilt"), "{condition}");
        assert!(message.contains(named), "{condition}: {message}");
    }
    assert_eq!(phase(&status), "Pending");
}

#[test]
fn policies_in_a_config_map_are_looked_up() {
    let authz = json!({"type": "configMap", "configMap": {"name": "policies"}});
    let server = virtual_server(json!({"incomingAuth": {"type": "anonymous", "authzConfig": authz}}));
    for (policies, reason) in [(true, "AuthValid"), (false, "AuthzConfigMapNotFound")] {
        let (status, _) = plan(&server, Around { policies, ..Around::default() });
        assert_eq!(says(&status, "AuthConfigured").unwrap().1, reason);
    }
}

#[test]
fn everything_it_refers_to_is_a_reference_and_what_is_missing_is_warned_of() {
    let mut server = with_tools(&["a", "b", "a"]);
    server.spec.incoming_auth = with_login().spec.incoming_auth;
    let all: Vec<_> = server.references().iter().map(Reference::token).collect();
    assert_eq!(all, ["MCPOIDCConfig/idp", "MCPToolConfig/a", "MCPToolConfig/b", "MCPGroup/tools"]);
    let references = server.references();
    let nothing = |kind: &str, _: &str| (kind != "MCPGroup").then_some(false);
    let said: Vec<_> = missing(&references, nothing).into_iter().map(Reference::warning).collect();
    assert_eq!(said.len(), 3, "nobody can say whether an MCPGroup exists: {said:?}");
    assert!(
        said[0].starts_with("spec.incomingAuth.oidcConfigRef: MCPOIDCConfig \"idp\" does not exist yet"),
        "{said:?}"
    );
    // A server that is not valid refers to it all the same: its author may correct either.
    let reference = json!({"name": "idp", "audience": "all"});
    let open = virtual_server(json!({"incomingAuth": {"type": "anonymous", "oidcConfigRef": reference}}));
    assert!(open.references().iter().any(|reference| reference.token() == "MCPOIDCConfig/idp"));
    assert!(open.uses().uses.is_empty());
}

#[test]
fn every_rule_that_it_breaks_is_said_with_its_field() {
    let reference = json!({"name": "idp", "audience": "all"});
    let external = json!({"name": "tokens"});
    let aggregation = |aggregation: Value| json!({"config": {"aggregation": aggregation}});
    let cases = [
        (json!({"groupRef": {"name": ""}}), "spec.groupRef"),
        (json!({"incomingAuth": {"type": "anonymous", "oidcConfigRef": reference}}), "spec.incomingAuth.oidcConfigRef"),
        (json!({"incomingAuth": {"type": "oidc"}}), "spec.incomingAuth.oidcConfigRef"),
        (
            json!({"incomingAuth": {"type": "oidc", "oidcConfigRef": {"name": "idp", "audience": " "}}}),
            "spec.incomingAuth.oidcConfigRef.audience",
        ),
        (
            json!({"outgoingAuth": {"default": {"type": "externalAuthConfigRef"}}}),
            "spec.outgoingAuth.default.externalAuthConfigRef",
        ),
        (
            json!({"outgoingAuth": {"backends": {"git": {"type": "discovered", "externalAuthConfigRef": external}}}}),
            "spec.outgoingAuth.backends[git].externalAuthConfigRef",
        ),
        (
            aggregation(json!({"conflictResolution": "priority"})),
            "spec.config.aggregation.conflictResolutionConfig.priorityOrder",
        ),
        (aggregation(json!({"conflictResolution": "manual"})), "spec.config.aggregation.tools"),
        (
            aggregation(json!({"tools": [{"workload": "a"}, {"workload": "a"}]})),
            "spec.config.aggregation.tools[1].workload",
        ),
    ];
    for (spec, field) in cases {
        let server = virtual_server(spec);
        let problems = server.problems();
        assert_eq!(problems.iter().map(|problem| &*problem.field).collect::<Vec<_>>(), [field]);
        let (status, _) = plan(&server, Around::default());
        let (valid, reason, message) = says(&status, "Valid").unwrap();
        assert_eq!((&*valid, &*reason), ("False", "ValidationFailed"));
        assert!(message.contains(field), "{message}");
    }
    assert!(virtual_server(json!({})).problems().is_empty());
}

#[test]
fn what_the_config_says_in_vain_is_warned_of() {
    let server = virtual_server(json!({"config": {
        "groupRef": "others", "incomingAuth": {"type": "anonymous"}, "outgoingAuth": {"source": "inline"},
        "sessionStorage": {"provider": "memory"}, "telemetry": {},
    }}));
    let settings = World::of(json!({"image": "unused:1"})).settings;
    let fields = [
        ("groupRef", "groupRef"),
        ("incomingAuth", "incomingAuth"),
        ("outgoingAuth", "outgoingAuth"),
        ("sessionStorage", "sessionStorage"),
        ("telemetry", "telemetryConfigRef"),
    ];
    let expected = fields.map(|(field, by)| format!("spec.config.{field} has no effect; set spec.{by}"));
    let said = server.warnings(&settings);
    assert_eq!((&*said[0], &said[1..]), (NOTHING_SERVES, &expected[..]));
}
