//! The plan of an MCPAuthzConfig, and of workloads that say who may call what: by such a configuration, in their own spec, or in
//! a ConfigMap. It is a guard, wherever it stands.

use mcp_api::v1beta1::{MCPAuthzConfig, MCPRemoteProxy};
use mcp_operator::{config::ConfigKind as _, subject::Subject as _, workload::Workload};
use mcp_plan::workload::ChildKind;
use serde_json::{Value, json};

use super::config_plan::{plan, says};
use super::world::{World, authz_config, checksum, condition, guards, inline, is_absent, oidc_config, run_config};

const PERMIT: &str = "permit(principal, action, resource);";
const FORBID: &str = "forbid(principal, action, resource == Tool::\"rm\");";

/// A change of what surrounds a server.
type Change = fn(&mut World);

/// A server with these members in its spec besides.
fn server(spec: &Value) -> World {
    let mut all = json!({"image": "x:1", "transport": "streamable-http"});
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    World::of(all)
}

/// A remote proxy with these members in its spec besides.
fn remote(spec: &Value) -> World<MCPRemoteProxy> {
    let mut all = json!({"remoteUrl": "https://mcp.example.com/mcp"});
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    World::around(json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPRemoteProxy",
        "metadata": {"name": "fetch", "namespace": "team", "uid": "u-1", "generation": 3}, "spec": all,
    }))
}

fn in_spec(policies: &[&str]) -> Value {
    json!({"authzConfig": {"type": "inline", "inline": {"policies": policies}}})
}

fn in_config_map(more: Value) -> Value {
    let mut all = json!({"type": "configMap", "configMap": {"name": "rules"}});
    all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"authzConfig": all})
}

fn by_name() -> Value {
    json!({"authzConfigRef": {"name": "rules"}})
}

fn rules(config: Value) -> MCPAuthzConfig {
    authz_config("rules", json!({"type": "cedarv1", "config": config}))
}

/// The member of the document, and the entry of the chain with what stands before it.
fn authorized<W: Workload>(world: &World<W>) -> (Value, (String, Value))
where
    W::Status: Clone,
{
    let document: Value = serde_json::from_str(run_config(&world.plan())).unwrap();
    let chain = document["middleware_configs"].as_array().unwrap();
    let at = chain.iter().position(|entry| entry["type"] == "authorization").expect("the chain has it");
    let entry = (chain[at - 1]["type"].as_str().unwrap().to_owned(), chain[at]["parameters"].clone());
    (document["authz_config"].clone(), entry)
}

fn of_cedar(cedar: &Value) -> Value {
    json!({"version": "1.0", "type": "cedarv1", "cedar": cedar})
}

#[test]
fn policies_reach_the_document_wherever_they_are_written() {
    let text =
        json!({"version": "1.0", "type": "cedarv1", "cedar": {"policies": [PERMIT], "group_claim_name": "theirs"}});
    let yaml = format!(
        "version: '1.0'\ntype: cedarv1\ncedar:\n  policies:\n  - |-\n    {PERMIT}\n  group_claim_name: theirs\n"
    );
    let inline = json!({"authzConfig": {
        "type": "inline", "groupClaimName": "groups", "roleClaimName": "roles", "groupEntityType": "Team",
        "inline": {"policies": [PERMIT, FORBID], "entitiesJson": "[ ]", "primaryUpstreamProvider": "okta"},
    }});
    let pdp = json!({"http": {"url": "https://pdp:9000", "timeout": 10}, "claim_mapping": "mpe", "unknown": 1});
    let cases = [
        (
            inline,
            None,
            of_cedar(&json!({
                "policies": [PERMIT, FORBID], "entities_json": "[ ]", "group_claim_name": "groups",
                "role_claim_name": "roles", "group_entity_type": "Team",
            })),
        ),
        (in_spec(&[PERMIT]), None, of_cedar(&json!({"policies": [PERMIT], "entities_json": "[]"}))),
        (
            in_config_map(json!({})),
            Some(("authz.json", text.to_string())),
            of_cedar(&json!({"policies": [PERMIT], "entities_json": "", "group_claim_name": "theirs"})),
        ),
        (
            in_config_map(json!({"groupClaimName": "ours", "groupEntityType": "Team", "roleClaimName": ""})),
            Some(("authz.json", yaml.clone())),
            of_cedar(&json!({
                "policies": [PERMIT], "entities_json": "", "group_claim_name": "ours", "group_entity_type": "Team",
            })),
        ),
        (
            in_config_map(json!({"configMap": {"name": "rules", "key": "own.yaml"}})),
            Some(("own.yaml", yaml)),
            of_cedar(&json!({"policies": [PERMIT], "entities_json": "", "group_claim_name": "theirs"})),
        ),
        (
            by_name(),
            None,
            of_cedar(&json!({"policies": [PERMIT], "entities_json": "[]", "multi_valued_claims": ["scope"]})),
        ),
        (
            json!({"authzConfigRef": {"name": "pdp"}}),
            None,
            json!({
                "version": "1.0", "type": "httpv1",
                "pdp": {"http": {"url": "https://pdp:9000", "timeout": 10}, "claim_mapping": "mpe"},
            }),
        ),
    ];
    let referred = json!({"policies": [PERMIT], "entities_json": "[]", "multi_valued_claims": ["scope"], "unknown": 1});
    for (spec, text, expected) in cases {
        let (mut server, mut remote) = (server(&spec), remote(&spec));
        if let Some((key, text)) = &text {
            server.text("rules", key, text);
            remote.text("rules", key, text);
        }
        for config in [rules(referred.clone()), authz_config("pdp", json!({"type": "httpv1", "config": pdp}))] {
            server.has(config.clone());
            remote.has(config);
        }
        let entry = ("mcp-parser".to_owned(), json!({"config_data": expected}));
        assert_eq!(authorized(&server), (expected.clone(), entry.clone()), "{spec}");
        assert_eq!(authorized(&remote), (expected, entry), "{spec}");
        let condition_type = if text.is_some() || spec["authzConfig"].is_object() {
            "AuthzConfigValidated"
        } else {
            "AuthzConfigRefValidated"
        };
        assert!(condition(&server.plan(), condition_type, "True").is_some(), "{spec}");
        assert!(condition(&remote.plan(), "ConfigurationValid", "True").is_some(), "{spec}");
    }
}

#[test]
fn what_cannot_be_used_gets_no_proxy_and_one_that_is_open_goes() {
    let document = |cedar: Value| of_cedar(&cedar).to_string();
    let map = || in_config_map(json!({}));
    let (own, of_ref) = ("AuthzConfigValidated", "AuthzConfigRefValidated");
    let cases = [
        (by_name(), None, of_ref, "AuthzConfigRefNotFound", "MCPAuthzConfig \"rules\" does not exist"),
        (in_spec(&[]), None, own, "AuthzPolicySyntaxInvalid", "spec.authzConfig.inline.policies: is missing or empty"),
        (in_spec(&[PERMIT, " "]), None, own, "AuthzPolicySyntaxInvalid", "spec.authzConfig.inline.policies[1]: "),
        (
            json!({"authzConfig": {"type": "inline", "inline": {"policies": [PERMIT], "entitiesJson": "{}"}}}),
            None,
            own,
            "AuthzPolicySyntaxInvalid",
            "spec.authzConfig.inline.entitiesJson: is not a list of Cedar entities",
        ),
        (
            map(),
            None,
            own,
            "AuthzConfigMapNotFound",
            "spec.authzConfig needs what does not exist: spec.authzConfig.configMap: ConfigMap \"rules\" ",
        ),
        (map(), Some(String::new()), own, "AuthzConfigMapInvalid", "ConfigMap rules/authz.json is empty"),
        (map(), Some("{".to_owned()), own, "AuthzConfigMapInvalid", "document: is neither JSON nor YAML"),
        // A line of the text itself may be for fewer eyes than the status.
        (
            map(),
            Some("password: correct horse\n\tbattery".to_owned()),
            own,
            "AuthzConfigMapInvalid",
            "document: is neither JSON nor YAML: while scanning a plain scalar, found a tab at line 1",
        ),
        (map(), Some("[]".to_owned()), own, "AuthzConfigMapInvalid", "ConfigMap rules/authz.json: document: is a list"),
        (
            map(),
            Some(document(json!({"policies": []}))),
            own,
            "AuthzConfigMapInvalid",
            "cedar.policies: is missing or empty",
        ),
        (
            map(),
            Some(document(json!({"policies": ["permit(principal"]}))),
            own,
            "AuthzConfigMapInvalid",
            "ConfigMap rules/authz.json: cedar.policies[0]: is not one Cedar policy: line 1, column 17: ",
        ),
        (
            map(),
            Some(document(json!({"policies": 1}))),
            own,
            "AuthzConfigMapInvalid",
            "cedar.policies: is a number; write a list",
        ),
        (
            map(),
            Some(
                json!({"type": "httpv1", "pdp": {"http": {"url": "http://169.254.169.254/"}, "claim_mapping": "mpe"}})
                    .to_string(),
            ),
            own,
            "AuthzConfigMapInvalid",
            "pdp.http.url: ",
        ),
        (
            map(),
            Some(
                json!({"type": "httpv1", "pdp": {"http": {"url": "https://u:hunter2@pdp/"}, "claim_mapping": "mpe"}})
                    .to_string(),
            ),
            own,
            "AuthzConfigMapInvalid",
            "pdp.http.url: \"https://…@pdp/\" has a user name in it",
        ),
    ];
    for (spec, text, type_, reason, message) in cases {
        let (mut server, mut open, mut remote) = (server(&spec), server(&json!({})), remote(&spec));
        open.applied(&open.plan());
        open.pods = vec![open.pod_of_now("Running", true, None)];
        open.workload.spec = server.workload.spec.clone();
        for world in [&mut server, &mut open] {
            if let Some(text) = &text {
                world.text("rules", "authz.json", text);
            }
            let plan = world.plan();
            let (found, said) = condition(&plan, type_, "False").unwrap();
            assert!(found == reason && said.contains(message), "{found}: {said}");
            assert!(!said.contains("correct horse") && said.lines().count() == 1, "{said}");
            assert!(plan.children.is_empty() && plan.status.phase.unwrap().as_str() == "Failed", "{spec}");
        }
        assert!(is_absent(&open.plan(), ChildKind::Deployment, "fetch"), "{spec}: an unguarded proxy goes");
        if let Some(text) = &text {
            remote.text("rules", "authz.json", text);
        }
        let plan = remote.plan();
        assert_eq!(condition(&plan, type_, "False").unwrap().0, reason);
        if type_ == own {
            assert_eq!(condition(&plan, "ConfigurationValid", "False").unwrap().0, reason);
            assert!(plan.status.message.unwrap().starts_with("Validation failed: spec.authzConfig "), "{spec}");
        }
    }
}

/// A proxy that runs with older policies goes on: they are better than none.
#[test]
fn policies_that_become_unusable_leave_those_that_serve_in_force() {
    let document = of_cedar(&json!({"policies": [PERMIT]})).to_string();
    let mut by_ref = server(&by_name());
    by_ref.has(rules(json!({"policies": [PERMIT]})));
    let mut of_map = server(&in_config_map(json!({})));
    of_map.text("rules", "authz.json", &document);
    let of_spec = server(&in_spec(&[PERMIT]));
    let spoil: [(World, Change); 4] = [
        (by_ref, |world| world.has(rules(json!({"policies": []})))),
        (of_map.clone(), |world| world.text("rules", "authz.json", "{")),
        (of_map, |world| world.data.config_maps.clear()),
        (of_spec, |world| world.workload.spec = server(&in_spec(&[])).workload.spec),
    ];
    for (mut world, spoil) in spoil {
        world.applied(&world.plan());
        world.pods = vec![world.pod_of_now("Running", true, None)];
        assert_eq!(condition(&world.plan(), "GuardsEnforced", "True").unwrap().0, "Enforced");
        spoil(&mut world);
        let plan = world.plan();
        assert!(plan.children.is_empty() && plan.absent.is_empty(), "{:?}", plan.absent);
        assert!(plan.status.message.as_ref().unwrap().ends_with("what runs already is left as it is"));
        let (reason, message) = condition(&plan, "GuardsEnforced", "False").unwrap();
        assert!(reason == "GuardNotUsable" && message.contains("what was asked for before"), "{reason}: {message}");
    }
}

#[test]
fn an_edit_of_policies_rolls_the_proxy_and_status_says_which_ones_serve() {
    let document = |policy: &str| of_cedar(&json!({"policies": [policy]})).to_string();
    let mut by_ref = server(&by_name());
    by_ref.has(rules(json!({"policies": [PERMIT]})));
    let mut of_map = server(&in_config_map(json!({})));
    of_map.text("rules", "authz.json", &document(PERMIT));
    let edits: [(World, &str, Change); 3] = [
        (by_ref, "MCPAuthzConfig \"rules\"", |world| world.has(rules(json!({"policies": [FORBID]})))),
        (of_map, "spec.authzConfig", |world| {
            world.text("rules", "authz.json", &of_cedar(&json!({"policies": [FORBID]})).to_string());
        }),
        (server(&in_spec(&[PERMIT])), "spec.authzConfig", |world| {
            world.workload.spec = server(&in_spec(&[FORBID])).workload.spec;
        }),
    ];
    for (mut world, title, edit) in edits {
        let before = world.plan();
        world.applied(&before);
        world.pods = vec![world.pod_of_now("Running", true, None)];
        let (_, message) = condition(&world.plan(), "GuardsEnforced", "True").unwrap();
        assert_eq!(message, format!("every proxy pod that serves enforces {title}"));
        let hash = before.status.authz_config_hash.clone();
        edit(&mut world);
        let after = world.plan();
        assert_ne!(checksum(&after), checksum(&before), "{title}");
        assert_ne!(guards(&after), guards(&before), "{title}");
        assert!(!is_absent(&after, ChildKind::Deployment, "fetch"), "{title}: it rolls, and nothing is taken down");
        assert_eq!(condition(&after, "GuardsEnforced", "False").unwrap().0, "PolicyOutdated", "{title}");
        assert_eq!(after.status.authz_config_hash, hash, "{title}: the old ones serve until the pod goes");
    }
}

#[test]
fn a_workload_tells_the_hash_of_the_configuration_it_refers_to() {
    let (mut server, mut remote) = (server(&by_name()), remote(&by_name()));
    let config = rules(json!({"policies": [PERMIT]}));
    let hash = config.hash();
    server.has(config.clone());
    remote.has(config);
    assert_eq!(server.plan().status.authz_config_hash.as_ref(), Some(&hash));
    assert_eq!(remote.plan().status.authz_config_hash.as_ref(), Some(&hash));
    assert_eq!(guards(&server.plan()).as_str().unwrap(), format!("MCPAuthzConfig/rules/{hash}"));
    let message = condition(&server.plan(), "AuthzConfigRefValidated", "True").unwrap().1;
    assert_eq!(message, "MCPAuthzConfig \"rules\" is valid");
}

#[test]
fn a_configuration_says_which_rule_it_breaks() {
    let pdp = |http: Value| json!({"type": "httpv1", "config": {"http": http, "claim_mapping": "standard"}});
    for (spec, field, message) in [
        (json!({"type": "opa", "config": {"a": 1}}), "spec.type", "unsupported authorizer type: opa"),
        (json!({"type": "cedarv1", "config": {}}), "spec.config", "config field is empty"),
        (json!({"type": "cedarv1", "config": {"policies": []}}), "spec.config.policies", "is missing or empty"),
        (json!({"type": "cedarv1", "config": {"policies": [""]}}), "spec.config.policies[0]", "line 1, column 1"),
        (
            json!({"type": "cedarv1", "config": {"policies": [PERMIT, "permit(principal,\n  actoin, resource);"]}}),
            "spec.config.policies[1]",
            "is not one Cedar policy: line 2, column 3: ",
        ),
        (
            json!({"type": "cedarv1", "config": {"policies": [PERMIT], "entities_json": "{}"}}),
            "spec.config.entities_json",
            "is not a list of Cedar entities: ",
        ),
        (
            json!({"type": "cedarv1", "config": {"policies": [PERMIT], "group_entity_type": "a::b"}}),
            "spec.config.group_entity_type",
            "\"a::b\" is not usable",
        ),
        (json!({"type": "cedarv1", "config": {"policies": "x"}}), "spec.config.policies", "is a string; write a list"),
        (json!({"type": "cedarv1", "config": {"http": {}}}), "spec.config.policies", "is missing or empty"),
        (json!({"type": "httpv1", "config": {"policies": [PERMIT]}}), "spec.config.http.url", "is missing or empty"),
        (
            json!({"type": "httpv1", "config": {"http": {"url": "https://pdp"}}}),
            "spec.config.claim_mapping",
            "is missing",
        ),
        (json!({"type": "httpv1", "config": {"claim_mapping": "other"}}), "spec.config.claim_mapping", "other"),
        (pdp(json!({"url": "pdp:9000"})), "spec.config.http.url", "is not a URL of http or https"),
        (pdp(json!({"url": "http://169.254.169.254"})), "spec.config.http.url", "169.254.169.254"),
        (pdp(json!({"url": "https://pdp/?a=b"})), "spec.config.http.url", "has a query"),
        (pdp(json!({"url": "https://pdp", "timeout": -1})), "spec.config.http.timeout", ""),
    ] {
        let config = authz_config("rules", spec.clone());
        let plan = plan(&config, &[]);
        let (status, reason, said) = says(&plan, "Valid").unwrap();
        assert_eq!((&*status, &*reason), ("False", "ConfigInvalid"), "{spec}");
        assert!(said.starts_with(&format!("{field}: ")) && said.contains(message), "{spec}: {said}");
        assert_eq!(plan.status.config_hash, None, "{spec}");
    }
    let plan = plan(&rules(json!({"policies": [PERMIT]})), &[("MCPServer", "b"), ("MCPServer", "a")]);
    let valid = ("True".to_owned(), "ConfigValid".to_owned(), "Spec validation passed".to_owned());
    assert_eq!(says(&plan, "Valid").unwrap(), valid);
    assert_eq!(plan.status.referencing_workloads.unwrap().len(), 2);
    let unchecked = authz_config("rules", pdp(json!({"url": "https://pdp", "insecure_skip_verify": true})));
    assert!(unchecked.warnings(&server(&json!({})).settings)[0].starts_with("spec.config.http.insecure_skip_verify: "));
}

#[test]
fn a_policy_of_a_remote_proxy_has_at_most_8192_bytes() {
    let of = |length: usize| format!("{PERMIT}{}", " ".repeat(length - PERMIT.len()));
    for (length, fits) in [(8192, true), (8193, false)] {
        let spec = in_spec(&[PERMIT, &of(length)]);
        let proxy = remote(&spec);
        assert_eq!(condition(&proxy.plan(), "ConfigurationValid", "True").is_some(), fits, "{length}");
        let problems = proxy.workload.change_problems(None);
        assert_eq!(problems.is_empty(), fits, "{problems:?}");
        let field = problems.first().map(|problem| problem.field.as_str());
        assert_eq!(field, (!fits).then_some("spec.authzConfig.inline.policies[1]"));
        // One that is stored so is told of in its status, and its other changes pass.
        assert_eq!(proxy.workload.change_problems(Some(&proxy.workload)), Vec::new());
        assert!(condition(&server(&spec).plan(), "AuthzConfigValidated", "True").is_some(), "of a server, any length");
    }
}

#[test]
fn only_a_change_of_policies_in_a_spec_is_refused_for_them() {
    let broken = server(&in_spec(&[""])).workload;
    let mut edited = broken.clone();
    edited.spec.args = Some(vec!["--other".to_owned()]);
    assert_eq!(edited.change_problems(Some(&broken)), Vec::new());
    for old in [None, Some(server(&in_spec(&[PERMIT])).workload), Some(server(&in_config_map(json!({}))).workload)] {
        let problems = broken.change_problems(old.as_ref());
        assert_eq!(problems[0].field, "spec.authzConfig.inline.policies[0]");
    }
    assert_eq!(server(&in_config_map(json!({}))).workload.change_problems(Some(&broken)), Vec::new());
}

#[test]
fn claims_that_no_caller_has_are_told_of() {
    let groups = |config: Value| {
        let mut world = server(&by_name());
        world.has(rules(config));
        world
    };
    let named = json!({"policies": [PERMIT], "group_claim_name": "groups", "multi_valued_claims": ["scope"]});
    let (reason, message) = condition(&groups(named.clone()).plan(), "AuthzClaimsMissing", "True").unwrap();
    assert!(
        reason == "NoLogin" && message.contains("\"groups\", \"scope\"") && message.ends_with("have callers log in"),
        "{message}"
    );
    let mut with_login = groups(named);
    with_login.workload.spec.oidc_config_ref = World::login().workload.spec.oidc_config_ref;
    with_login.has(oidc_config("idp", inline(json!({}))));
    assert_eq!(condition(&with_login.plan(), "AuthzClaimsMissing", "True"), None);

    let provider = groups(json!({"policies": [PERMIT], "primary_upstream_provider": "okta"}));
    let (reason, message) = condition(&provider.plan(), "AuthzClaimsMissing", "True").unwrap();
    assert!(reason == "NoUpstreamProvider" && message.contains("\"okta\""), "{message}");
    assert!(!provider.plan().children.is_empty(), "the proxy runs, and refuses");
    assert_eq!(condition(&groups(json!({"policies": [PERMIT]})).plan(), "AuthzClaimsMissing", "True"), None);
}

#[test]
fn a_provider_that_a_spec_names_is_ignored_and_told_of() {
    let spec = json!({"authzConfig": {
        "type": "inline", "inline": {"policies": [PERMIT], "primaryUpstreamProvider": "okta"},
    }});
    let (server, remote) = (server(&spec), remote(&spec));
    let type_ = "AuthzPrimaryUpstreamProviderIgnored";
    for found in [condition(&server.plan(), type_, "True"), condition(&remote.plan(), type_, "True")] {
        let (reason, message) = found.unwrap();
        assert!(reason == "PrimaryUpstreamProviderIgnored" && message.contains("\"okta\""), "{message}");
    }
    assert_eq!(condition(&server.plan(), "AuthzClaimsMissing", "True"), None);
    for warnings in [server.workload.warnings(&server.settings), remote.workload.warnings(&remote.settings)] {
        assert!(warnings[0].starts_with("spec.authzConfig.inline.primaryUpstreamProvider: \"okta\" has no effect"));
    }
}

#[test]
fn an_image_that_cannot_authorize_gets_no_proxy() {
    let mut world = server(&in_spec(&[PERMIT]));
    world.settings.runner_middleware.retain(|ability| ability != "authorization");
    let (reason, message) = condition(&world.plan(), "GuardsEnforced", "False").unwrap();
    assert!(reason == "GuardNotBuilt" && message.starts_with("spec.authzConfig cannot"), "{reason}: {message}");
    assert!(world.plan().children.is_empty());
}

#[test]
fn what_holds_the_policies_is_a_reference() {
    let tokens = |spec: &Value| -> Vec<String> {
        server(spec).workload.references().iter().map(mcp_plan::reference::Reference::token).collect()
    };
    assert_eq!(tokens(&by_name()), ["MCPAuthzConfig/rules"]);
    assert_eq!(tokens(&in_config_map(json!({}))), ["ConfigMap/rules"]);
    assert_eq!(tokens(&in_spec(&[PERMIT])), [""; 0]);
    let reference = &server(&in_config_map(json!({}))).workload.references()[0];
    assert!(reference.is_text && reference.field == "spec.authzConfig.configMap");
}
