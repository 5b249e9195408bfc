//! The rules that plans and admission webhooks share.

use mcp_api::{
    v1alpha1::{MCPWebhookConfig, MCPWebhookConfigSpec},
    v1beta1::MCPServer,
};
use mcp_operator::subject::Subject as _;
use mcp_plan::problem::Problem;
use serde_json::{Value, json};

use super::world::{World, condition};

fn check_server(server: &MCPServer) -> Vec<Problem> {
    server.problems()
}

fn check_webhook_config(spec: &MCPWebhookConfigSpec) -> Vec<Problem> {
    MCPWebhookConfig::new("any", spec.clone()).problems()
}

#[test]
fn every_rule_of_a_server_names_its_field() {
    let env = |name: &str| json!([{"name": name, "value": ""}]);
    let cases = [
        (json!({"image": ""}), "spec.image: is not the name of an image"),
        (json!({"image": "a b"}), "spec.image: is not the name of an image"),
        (json!({"image": "https://example.com/mcp"}), "spec.image: is not the name of an image"),
        (json!({"image": "--backend=http://169.254.169.254"}), "spec.image: is not the name of an image"),
        (json!({"image": "--allow-endpoint-cidr=0.0.0.0/0"}), "spec.image: is not the name of an image"),
        (json!({"env": env("A=B")}), "spec.env[0].name: \"A=B\" cannot name an environment variable"),
        (json!({"env": env("")}), "spec.env[0].name: \"\" cannot name"),
        (
            json!({"env": env("T"), "secrets": [{"name": "s", "key": "k", "targetEnvName": "T"}]}),
            "spec.secrets[0].targetEnvName: \"T\" is already set by spec.env[0].name",
        ),
        (json!({"secrets": [{"name": "", "key": "k"}]}), "spec.secrets[0]: names no Secret"),
        (
            json!({"volumes": [{"name": "A", "hostPath": "/a", "mountPath": "/b"}]}),
            "spec.volumes[0].name: \"A\" cannot",
        ),
        (
            json!({"volumes": [{"name": "a", "hostPath": "a", "mountPath": "/b"}]}),
            "spec.volumes[0].hostPath: \"a\" is not",
        ),
        (
            json!({"volumes": [{"name": "a", "hostPath": "/a", "mountPath": "/b:/c"}]}),
            "spec.volumes[0].mountPath: \"/b:/c\"",
        ),
        (json!({"resources": {"limits": {"cpu": "lots"}}}), "spec.resources.limits.cpu: \"lots\" is not a quantity"),
        (
            json!({"resources": {"requests": {"memory": "-1Gi"}}}),
            "spec.resources.requests.memory: \"-1Gi\" is negative",
        ),
        (
            json!({"resources": {"requests": {"memory": "1Gi"}, "limits": {"memory": "512Mi"}}}),
            "spec.resources.requests.memory: is more than spec.resources.limits.memory",
        ),
        (json!({"proxyReadTimeout": "soon"}), "spec.proxyReadTimeout: \"soon\" is not a duration"),
        (
            json!({"podTemplateSpec": {"spec": {"$patch": "replace"}}}),
            "spec.podTemplateSpec.spec.$patch: patch directives",
        ),
        (
            json!({"resourceOverrides": {"proxyDeployment": {"env": [{"name": "=", "value": ""}]}}}),
            "spec.resourceOverrides.proxyDeployment.env[0].name",
        ),
        (
            json!({"volumes": [
                {"name": "a", "hostPath": "/a", "mountPath": "/x"},
                {"name": "b", "hostPath": "/b", "mountPath": "/x"},
            ]}),
            "spec.volumes[1].mountPath: \"/x\" is already where spec.volumes[0] goes",
        ),
        (
            json!({"resourceOverrides": {"proxyDeployment": {"labels": {"not a key": "v"}}}}),
            "spec.resourceOverrides.proxyDeployment.labels: \"not a key\" cannot be a key",
        ),
        (
            json!({"resourceOverrides": {"proxyService": {"labels": {"key": "not a value"}}}}),
            "spec.resourceOverrides.proxyService.labels: \"not a value\" cannot be the value of the label key",
        ),
        (
            json!({"resourceOverrides": {"proxyDeployment": {
                "podTemplateMetadataOverrides": {"annotations": {"no_domain/key": "any value"}},
            }}}),
            "spec.resourceOverrides.proxyDeployment.podTemplateMetadataOverrides.annotations: \"no_domain/key\"",
        ),
    ];
    for (change, message) in cases {
        let mut spec = json!({"image": "x:1", "transport": "streamable-http"});
        spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let world = World::of(spec);
        let problems = check_server(&world.workload);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].to_string().starts_with(message), "{} / {message}", problems[0]);
        let plan = world.plan();
        assert!(plan.children.is_empty(), "{change}: nothing is rendered from it");
        let type_ = if message.contains("podTemplateSpec") { "PodTemplateValid" } else { "SpecValid" };
        assert!(condition(&plan, type_, "False").unwrap().1.contains(message), "{change}");
    }
}

// MISSION P8.
#[test]
fn a_body_limit_above_the_bound_is_refused_where_it_changes() {
    const BOUND: u64 = 256 << 20;
    let world = |bytes: u64| World::of(json!({"image": "x:1", "maxRequestBodySize": bytes}));
    for (old, new, refused) in [
        (None, BOUND, false),
        (None, BOUND + 1, true),
        (Some(BOUND + 1), BOUND + 1, false),
        (Some(BOUND + 1), BOUND + 2, true),
        (Some(BOUND + 1), BOUND, false),
        (Some(0), BOUND + 1, true),
    ] {
        let (stored, server) = (old.map(|old| world(old).workload), world(new));
        let problems = server.workload.change_problems(stored.as_ref());
        let fields: Vec<_> = problems.iter().map(|problem| problem.field.as_str()).collect();
        assert_eq!(fields, if refused { vec!["spec.maxRequestBodySize"] } else { vec![] }, "{old:?} {new}");
        let plan = server.plan();
        assert!(!plan.children.is_empty(), "it runs whatever its limit is");
        let said = condition(&plan, "RequestBodySizeCapped", "True").map(|(_, message)| message);
        let expected =
            format!("spec.maxRequestBodySize: {new} is more than a proxy reads of a body; write at most 268435456");
        assert!(said.as_ref().is_none_or(|said| said.starts_with(&expected)), "{said:?}");
        assert_eq!(said.is_some(), new > BOUND, "{new}");
    }
}

#[test]
fn a_name_has_to_fit_the_services_made_of_it() {
    for (name, fits) in
        [("a", true), (&*"a".repeat(50), true), (&*"a".repeat(51), false), ("a.b", false), ("-a", false), ("a-", false)]
    {
        let mut world = World::of(json!({"image": "x"}));
        world.workload.metadata.name = Some(name.into());
        let problems = check_server(&world.workload);
        assert_eq!(problems.is_empty(), fits, "{name}: {problems:?}");
    }
}

#[test]
fn a_broken_spec_leaves_what_runs_and_says_so() {
    let mut world = World::of(json!({"image": "x", "resources": {"limits": {"cpu": "1"}}}));
    world.applied(&world.plan());
    world.workload.spec.resources = serde_json::from_value(json!({"limits": {"cpu": "1 core"}})).unwrap();
    let plan = world.plan();
    assert!(plan.children.is_empty() && plan.absent.is_empty());
    assert!(plan.status.message.unwrap().contains("\"1 core\" is not a quantity"));
}

#[test]
fn every_rule_of_a_webhook_config_names_list_index_and_webhook() {
    let key = json!({"name": "s", "key": "k"});
    let cases = [
        (json!({"url": "http://p/"}), "url", "url \"http://p/\" is not https"),
        (json!({"url": "p"}), "url", "url \"p\" is not absolute"),
        (json!({"timeout": "31s"}), "timeout", "timeout 31s is out of range; use 1s to 30s"),
        (json!({"timeout": "5 s"}), "timeout", "timeout \"5 s\" is not a duration"),
        (json!({"timeout": "3 days"}), "timeout", "timeout \"3 days\" is not a duration"),
        (
            json!({"tlsConfig": {"clientCertSecretRef": key}}),
            "tlsConfig.clientKeySecretRef",
            "clientKeySecretRef is missing",
        ),
        (
            json!({"tlsConfig": {"clientKeySecretRef": key}}),
            "tlsConfig.clientCertSecretRef",
            "clientCertSecretRef is missing",
        ),
        (json!({"hmacSecretRef": {"name": "", "key": "k"}}), "hmacSecretRef", "hmacSecretRef names no Secret"),
    ];
    for (change, field, message) in cases {
        let mut webhook = json!({"name": "policy", "url": "https://p/"});
        webhook.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        for kind in ["validating", "mutating"] {
            let fine = json!({"name": "fine", "url": "https://f/"});
            let spec = serde_json::from_value(json!({kind: [fine, webhook]})).unwrap();
            let problems = check_webhook_config(&spec);
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert_eq!(problems[0].field, format!("spec.{kind}[1].{field}"));
            let start = format!("{kind} webhook[1] \"policy\": {message}");
            assert!(problems[0].message.starts_with(&start), "{} / {start}", problems[0].message);
        }
    }
}

#[test]
fn what_may_be_repeated_or_left_out_breaks_no_rule() {
    let key = |key: &str| json!({"name": "s", "key": key});
    let fine = |spec: Value| assert_eq!(check_webhook_config(&serde_json::from_value(spec).unwrap()), []);
    fine(json!({"validating": [{"name": "a", "url": "https://a/"}, {"name": "a", "url": "https://a/"}]}));
    fine(
        json!({"mutating": [{"name": "a", "url": "http://a/", "timeout": "30s", "tlsConfig": {"insecureSkipVerify": true}}]}),
    );
    fine(json!({"mutating": [{"name": "a", "url": "https://a/", "hmacSecretRef": key("h"), "tlsConfig":
        {"caSecretRef": key("ca"), "clientCertSecretRef": key("c"), "clientKeySecretRef": key("k")}}]}));
    let nothing = check_webhook_config(&serde_json::from_value(json!({})).unwrap());
    assert_eq!(nothing[0].to_string(), "spec: at least one validating or mutating webhook must be defined");
}

#[test]
fn labels_and_annotations_that_the_api_server_takes_break_no_rule() {
    let labels = json!({"a": "", "A.b_c-D": "x", "example.com/Key": "a.b-C_d", "k": "v".repeat(63)});
    let annotations = json!({"Example.COM/Key": "any value, however odd: {}", "x": ""});
    let both = json!({"labels": labels, "annotations": annotations});
    let mut proxy = both.clone();
    proxy["podTemplateMetadataOverrides"] = both.clone();
    let spec = json!({"image": "x:1", "resourceOverrides": {"proxyDeployment": proxy, "proxyService": both}});
    assert_eq!(check_server(&World::of(spec).workload), []);
}
