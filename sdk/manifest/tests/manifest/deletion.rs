//! Which webhooks exempt the removal of finalizers. What the conditions do is tested on a real API server, in the
//! `portcullis-webhook` crate (`tests/webhook/webhooks/deletion.rs`).

use portcullis_manifest::{
    MatchCondition, Operation, Rule, ScopeType, ServiceRef, Webhook, WebhookKind, exempts_finalizer_removal,
    mutating_configuration, validating_configuration,
};
use serde_json::{Value, json};

fn webhook(kind: WebhookKind, group: &str, resource: &str, scope: ScopeType, operations: &[Operation]) -> Webhook {
    let rule = Rule {
        groups: vec![group.into()],
        versions: vec!["v1".into()],
        resources: vec![resource.into()],
        scope,
        operations: operations.to_vec(),
    };
    Webhook::new("a.things.demo", kind, "/a", vec![rule])
}

#[test]
fn webhooks_on_updates_exempt_the_removal_of_finalizers() {
    type Case<'a> = (&'a str, &'a str, ScopeType, &'a [Operation], &'a [&'a str]);
    use Operation::{Connect, Create, Delete, Update};
    let (metadata, finalize) =
        ("portcullis.dev/exclude-finalizer-removal", "portcullis.dev/exclude-namespace-finalize");
    let service = ServiceRef { namespace: "demo".into(), name: "hooks".into(), port: 443 };
    let cases: [Case<'_>; 10] = [
        ("demo.example", "things", ScopeType::Namespaced, &[Create, Update], &[metadata]),
        ("demo.example", "things/status", ScopeType::Namespaced, &[Update], &[metadata]),
        ("demo.example", "things", ScopeType::Namespaced, &[Create, Delete, Connect], &[]),
        ("*", "*/*", ScopeType::Namespaced, &[Update], &[metadata]),
        ("*", "*/*", ScopeType::Any, &[Update], &[metadata, finalize]),
        ("*", "*", ScopeType::Any, &[Update], &[metadata]),
        ("", "namespaces/finalize", ScopeType::Cluster, &[Update], &[metadata, finalize]),
        ("", "namespaces", ScopeType::Cluster, &[Update], &[metadata]),
        ("", "namespaces/*", ScopeType::Cluster, &[Delete], &[]),
        ("apps", "*/*", ScopeType::Any, &[Update], &[metadata]),
    ];
    for (group, resource, scope, operations, expected) in cases {
        for kind in [WebhookKind::Validating, WebhookKind::Mutating] {
            let mut hook = webhook(kind, group, resource, scope, operations);
            hook.match_conditions = vec![MatchCondition { name: "mine".into(), expression: "true".into() }];
            let one = [hook];
            let written = match kind {
                WebhookKind::Validating => serde_json::to_value(validating_configuration("v", &one, &service)).unwrap(),
                WebhookKind::Mutating => serde_json::to_value(mutating_configuration("m", &one, &service)).unwrap(),
            };
            let conditions = written["webhooks"][0]["matchConditions"].as_array().unwrap().clone();
            assert_eq!(conditions[0], json!({ "name": "mine", "expression": "true" }), "the author's own are kept");
            let names: Vec<_> = conditions[1..].iter().map(|one| one["name"].as_str().unwrap()).collect();
            assert_eq!(names, expected, "{group} {resource} {operations:?}");
            let text = |one: &Value, member: &str| one[member].as_str().unwrap().to_owned();
            let exempt = |one: &Value| exempts_finalizer_removal(&text(one, "name"), &text(one, "expression"));
            assert_eq!(conditions.iter().any(exempt), !expected.is_empty(), "{group} {resource} {operations:?}");
        }
    }
    assert!(!exempts_finalizer_removal(metadata, "true"), "a condition of the same name that exempts nothing");
}
