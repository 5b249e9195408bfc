//! The plan of an MCPWebhookConfig (MISSION M2).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mcp_api::v1alpha1::{MCPWebhookConfig, MCPWebhookConfigSpec, WorkloadRef};
use mcp_operator::{config::ConfigKind as _, subject::Subject as _};
use mcp_plan::{
    reference::{Reference, missing},
    settings::Settings,
};
use serde_json::json;

use super::config_plan::{now, plan, says};
use super::world::{World, config};

const FINALIZER: &str = "mcpwebhookconfig.toolhive.stacklok.dev/finalizer";

fn config_hash(spec: &MCPWebhookConfigSpec) -> String {
    MCPWebhookConfig::new("any", spec.clone()).hash()
}

fn valid() -> MCPWebhookConfig {
    let mut config = config("gates", json!({"validating": [{"name": "p", "url": "https://p/"}]}));
    config.metadata.finalizers = Some(vec![FINALIZER.into()]);
    config
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
    assert_eq!(plan.status.config_hash, Some(config_hash(&config.spec)));
    assert_eq!(plan.status.observed_generation, Some(1));
    assert_eq!(plan.status.referencing_servers, None);
    assert_eq!(plan.events.len(), 1);
}

#[test]
fn servers_that_refer_to_it_are_listed_live_and_sorted() {
    let referrers = [("MCPServer", "b"), ("MCPRemoteProxy", "a"), ("MCPServer", "a"), ("MCPServer", "b")];
    let status = plan(&valid(), &referrers).status;
    assert_eq!(status.referencing_servers, Some(vec!["a".into(), "b".into()]));
    let workload = |(kind, name): (&str, &str)| WorkloadRef { kind: kind.to_owned(), name: name.to_owned() };
    let all = [("MCPRemoteProxy", "a"), ("MCPServer", "a"), ("MCPServer", "b")].map(workload);
    assert_eq!(status.referencing_workloads, Some(all.to_vec()));
    let remote = plan(&valid(), &[("MCPRemoteProxy", "a")]).status;
    assert_eq!((remote.referencing_servers, remote.referencing_workloads), (None, Some(all[..1].to_vec())));
}

#[test]
fn a_server_carries_the_hash_of_the_config_it_enforces() {
    let world = World::gated();
    assert_eq!(world.plan().status.webhook_config_hash, Some(world.hash("MCPWebhookConfig", "gates")));
}

#[test]
fn a_secret_that_does_not_exist_is_warned_of_with_what_that_means() {
    let key = json!({"name": "absent", "key": "k"});
    let config = config("gates", json!({"mutating": [{"name": "p", "url": "https://p/", "hmacSecretRef": key}]}));
    let references = config.references();
    let warned: Vec<_> = missing(&references, |_, _| Some(false)).into_iter().map(Reference::warning).collect();
    let wanted = "spec.mutating[0].hmacSecretRef: Secret \"absent\" does not exist yet; without it the workloads that refer to \
                  this get no proxy";
    assert_eq!(warned, [wanted]);
}

#[test]
fn webhooks_that_their_author_may_not_mean_are_warned_of() {
    let webhook =
        |name: &str, methods: &[&str]| json!({"name": name, "url": "https://p/", "match": {"methods": methods}});
    let fine = ["tools/call", "tool*", "notifications/*", "server/discover"];
    let taken = |field: &str, other: &str| format!("spec.{field}.name: \"a\" is the name of spec.{other} as well");
    let unknown =
        |field: &str, method: &str| format!("spec.{field}.match.methods: {method:?} is none of MCP's methods");
    for (spec, warned) in [
        (json!({"validating": [webhook("a", &fine)], "mutating": [webhook("b", &fine)]}), vec![]),
        (
            json!({"validating": [webhook("a", &fine), webhook("a", &fine)]}),
            vec![taken("validating[1]", "validating[0]")],
        ),
        (
            json!({"validating": [webhook("a", &fine)], "mutating": [webhook("a", &fine)]}),
            vec![taken("mutating[0]", "validating[0]")],
        ),
        (
            json!({"mutating": [webhook("a", &["tool/call", "tools/call", "Tools/List"])]}),
            vec![unknown("mutating[0]", "tool/call"), unknown("mutating[0]", "Tools/List")],
        ),
    ] {
        let config = config("gates", spec.clone());
        assert_eq!(config.problems(), [], "{spec}");
        let said = config.warnings(&Settings::default());
        assert_eq!(said.len(), warned.len(), "{said:?}");
        assert!(said.iter().zip(&warned).all(|(found, start)| found.starts_with(start)), "{said:?}");
    }
}

#[test]
fn an_invalid_config_says_every_violation_and_keeps_the_hash_of_the_last_valid_spec() {
    let mut config = valid();
    config.status = Some(plan(&config, &[]).status);
    let hash = config_hash(&config.spec);
    config.spec =
        serde_json::from_value(json!({"validating": [{"name": "p", "url": "http://p/", "timeout": "1m"}]})).unwrap();
    let plan = plan(&config, &[]);
    let (status, reason, message) = says(&plan, "Valid").unwrap();
    assert_eq!((&*status, &*reason), ("False", "ValidationFailed"));
    assert!(
        message.starts_with("spec.validating[0].url: validating webhook[0] \"p\": url ")
            && message.contains("; spec.validating[0].timeout: validating webhook[0] \"p\": timeout "),
        "{message}"
    );
    assert_eq!(plan.status.config_hash, Some(hash));
    assert_eq!(plan.events[0].reason, "ValidationFailed");
}

#[test]
fn deletion_waits_for_the_servers_and_goes_through_when_they_are_gone() {
    let mut config = valid();
    config.metadata.deletion_timestamp = Some(Time(now()));
    let mut servers = [("MCPServer", "b"), ("MCPServer", "a")];
    let blocked = plan(&config, &servers);
    assert!(!blocked.may_go);
    assert_eq!(
        says(&blocked, "DeletionBlocked").unwrap(),
        ("True".into(), "ReferencedByWorkloads".into(), "Cannot delete: referenced by MCPServers: a, b".into())
    );
    assert!(blocked.events.iter().any(|event| event.reason == "DeletionBlocked"));
    config.status = Some(blocked.status.clone());
    servers.reverse();
    assert!(plan(&config, &servers).events.is_empty(), "nothing is said twice");

    let free = plan(&config, &[]);
    assert!(free.may_go);
    assert_eq!(says(&free, "DeletionBlocked"), None);
}

#[test]
fn the_hash_changes_with_every_member_of_the_spec() {
    let specs = [
        json!({"validating": [{"name": "a", "url": "https://a/"}]}),
        json!({"mutating": [{"name": "a", "url": "https://a/"}]}),
        json!({"validating": [{"name": "b", "url": "https://a/"}]}),
        json!({"validating": [{"name": "a", "url": "https://a/", "failurePolicy": "ignore"}]}),
        json!({"validating": [{"name": "a", "url": "https://a/", "timeout": "10s"}]}),
        json!({"validating": [{"name": "a", "url": "https://a/", "hmacSecretRef": {"name": "s", "key": "k"}}]}),
        json!({"validating": [{"name": "a", "url": "https://a/", "hmacSecretRef": {"name": "s", "key": "l"}}]}),
        json!({"validating": [{"name": "a", "url": "https://a/", "match": {"tools": ["a"]}}]}),
        json!({"validating": [{"name": "a", "url": "https://a/", "match": {"methods": ["a"]}}]}),
        json!({"validating": [{"name": "a", "url": "https://a/", "match": {"principals": ["a"]}}]}),
    ];
    let hashes: std::collections::BTreeSet<_> =
        specs.iter().map(|spec| config_hash(&serde_json::from_value(spec.clone()).unwrap())).collect();
    assert_eq!(hashes.len(), specs.len());
}
