//! Generated manifests, and their round trip through YAML.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use portcullis_manifest::{
    CelRule, FailurePolicy, MatchCondition, Operation, Overrides, Rule, ScopeType, ServiceRef, Webhook, WebhookKind,
    admission_policies, mutating_configuration, to_yaml, validating_configuration, with_conversion,
};
use serde_json::{Value, json};

fn webhook(name: &str, kind: WebhookKind) -> Webhook {
    let rule = Rule {
        groups: vec!["demo.example".into()],
        versions: vec!["v1".into(), "v2".into()],
        resources: vec!["entities".into()],
        scope: ScopeType::Namespaced,
        operations: vec![Operation::Create, Operation::Update],
    };
    Webhook::new(format!("{name}.entities.demo.example"), kind, format!("/{name}"), vec![rule])
}

fn service() -> ServiceRef {
    ServiceRef { namespace: "demo".into(), name: "hooks".into(), port: 443 }
}

// K8: the advice of the guide is what one gets without saying anything.
#[test]
fn a_webhook_fails_closed_without_side_effects_by_default() {
    let configuration = validating_configuration("op-validating", &[webhook("a", WebhookKind::Validating)], &service());
    let mut value = serde_json::to_value(configuration).unwrap();
    // `deletion.rs` tests these.
    assert!(value["webhooks"][0]["matchConditions"].take().is_array());
    assert_eq!(
        value["webhooks"][0],
        json!({
            "admissionReviewVersions": ["v1"],
            "clientConfig": { "service": { "name": "hooks", "namespace": "demo", "path": "/a", "port": 443 } },
            "failurePolicy": "Fail",
            "matchConditions": null,
            "matchPolicy": "Equivalent",
            "name": "a.entities.demo.example",
            "rules": [{
                "apiGroups": ["demo.example"], "apiVersions": ["v1", "v2"], "operations": ["CREATE", "UPDATE"],
                "resources": ["entities"], "scope": "Namespaced"
            }],
            "sideEffects": "None",
            "timeoutSeconds": 10
        })
    );
}

#[test]
fn each_configuration_holds_the_webhooks_of_its_kind() {
    let both = [webhook("v", WebhookKind::Validating), webhook("m", WebhookKind::Mutating)];
    let names =
        |value: Value| value["webhooks"].as_array().unwrap().iter().map(|w| w["name"].clone()).collect::<Vec<_>>();
    let validating = serde_json::to_value(validating_configuration("v", &both, &service())).unwrap();
    let mutating = serde_json::to_value(mutating_configuration("m", &both, &service())).unwrap();
    assert_eq!(mutating["webhooks"][0]["reinvocationPolicy"], "IfNeeded");
    assert_eq!(names(validating), ["v.entities.demo.example"]);
    assert_eq!(names(mutating), ["m.entities.demo.example"]);
}

// K8: the self-deadlock guard.
#[test]
fn the_own_namespace_is_exempt_only_where_a_lockout_threatens() {
    let cases = [
        ("", FailurePolicy::Fail, true),
        ("apps", FailurePolicy::Fail, true),
        ("*", FailurePolicy::Fail, true),
        ("coordination.k8s.io", FailurePolicy::Fail, true),
        ("apps", FailurePolicy::Ignore, false),
        ("demo.example", FailurePolicy::Fail, false),
    ];
    for (group, policy, guarded) in cases {
        let mut hook = webhook("a", WebhookKind::Validating);
        hook.rules[0].groups = vec![group.into()];
        hook.failure_policy = policy;
        let labels = [("team".to_owned(), "a".to_owned())].into();
        hook.namespace_selector = Some(LabelSelector { match_labels: Some(labels), ..LabelSelector::default() });
        let value =
            serde_json::to_value(validating_configuration("v", &[hook.prevent_deadlock("demo").unwrap()], &service()))
                .unwrap();
        let selector = &value["webhooks"][0]["namespaceSelector"];
        let expected = json!([{ "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["demo"] }]);
        assert_eq!(selector["matchExpressions"], if guarded { expected } else { Value::Null }, "{group} {policy}");
        assert_eq!(selector["matchLabels"]["team"], "a", "the user's own selector is kept");
    }
}

#[test]
fn match_conditions_are_written_as_they_were_given() {
    let mut hook = webhook("a", WebhookKind::Validating);
    hook.rules[0].operations = vec![Operation::Create, Operation::Delete];
    hook.match_conditions = vec![MatchCondition { name: "not-me".into(), expression: "true".into() }];
    let value = serde_json::to_value(validating_configuration("v", &[hook], &service())).unwrap();
    assert_eq!(value["webhooks"][0]["matchConditions"], json!([{ "name": "not-me", "expression": "true" }]));
}

// K5: strings that YAML 1.1 readers (kubectl's too) would take for something else must stay strings.
#[test]
fn yaml_round_trips_whatever_a_string_looks_like() {
    let tricky = [
        "on",
        "off",
        "yes",
        "no",
        "y",
        "n",
        "true",
        "null",
        "~",
        "1",
        "0x10",
        "1e3",
        "010",
        ".5",
        "-",
        "- a",
        "a: b",
        "a #b",
        "#a",
        "",
        " a",
        "a ",
        "'",
        "\"",
        "\\",
        "multi\nline\n",
        "  two\n indented",
        "trailing \nspace",
        "tab\t",
        "é \u{1f600}",
        "%x",
        "@x",
        "`x",
        "{x",
        "[x",
        "!x",
        "&x",
        "*x",
        "|",
        ">",
        "?",
        "2026-01-01",
        "12:30:45",
        "=",
        "<<",
        "has(self.a) ? self.a > 0 : true",
        "a\r\nb",
        "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$",
    ];
    let long = "word ".repeat(80);
    let values: Vec<Value> = tricky.iter().map(|text| json!(text)).chain([json!(long)]).collect();
    let keys: serde_json::Map<String, Value> = tricky.iter().map(|key| ((*key).to_owned(), json!([key]))).collect();
    let document =
        json!({ "kind": "Test", "list": values, "keys": keys, "empty": {}, "none": [], "n": 1, "f": 1.5, "b": true });
    let yaml = to_yaml(&[document.clone(), json!({ "kind": "Second" })]).unwrap();
    let back: Vec<Value> = serde_saphyr::from_multiple(&yaml).unwrap();
    assert_eq!(back, [document, json!({ "kind": "Second" })], "{yaml}");
}

#[test]
fn yaml_drops_nulls_and_puts_first_what_people_look_for() {
    let yaml = to_yaml(&[
        json!({ "spec": { "b": 1, "a": null }, "kind": "K", "apiVersion": "v1", "metadata": { "name": "x" } }),
    ])
    .unwrap();
    assert_eq!(yaml, "apiVersion: v1\nkind: K\nmetadata:\n  name: x\nspec:\n  b: 1\n");
}

// K5: what KubeOps' generator gets wrong, and kubebuilder leaves to patches. With another name or none, the API server
// refuses the CRD or calls no webhook.
#[test]
fn a_conversion_stanza_names_the_served_service() {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    let crd: CustomResourceDefinition = serde_json::from_value(json!({
        "metadata": { "name": "entities.demo.example" },
        "spec": {
            "group": "demo.example", "scope": "Namespaced", "names": { "kind": "Entity", "plural": "entities" },
            "versions": [{ "name": "v1", "served": true, "storage": true }],
            "conversion": { "strategy": "None" },
        }
    }))
    .unwrap();
    let converted = with_conversion(crd.clone(), "/convert/entities", &service());
    let value = serde_json::to_value(&converted).unwrap();
    assert_eq!(
        value["spec"]["conversion"],
        json!({
            "strategy": "Webhook",
            "webhook": {
                "clientConfig": { "service": { "name": "hooks", "namespace": "demo", "path": "/convert/entities", "port": 443 } },
                "conversionReviewVersions": ["v1"]
            }
        })
    );
    assert_eq!((converted.spec.versions, converted.metadata), (crd.spec.versions, crd.metadata));
}

#[test]
fn a_policy_matches_its_webhooks_requests_with_an_object() {
    let mut judged = webhook("a", WebhookKind::Validating);
    judged.rules[0].operations = vec![Operation::Create, Operation::Update, Operation::Delete];
    judged.failure_policy = FailurePolicy::Ignore;
    judged.match_conditions = vec![MatchCondition { name: "mine".into(), expression: "true".into() }];
    judged.cel_rules = vec![CelRule { expression: "object.spec.n < 3".into(), message: "3 is too much".into() }];
    let judged = judged.restrict_to_namespace("team").unwrap();
    let policies = admission_policies("op-validating-team", &[judged.clone(), webhook("b", WebhookKind::Validating)]);
    let [(policy, binding)] = &policies[..] else { panic!("{policies:?}") };
    let name = "op-validating-team.a.entities.demo.example";
    let spec = serde_json::to_value(policy).unwrap()["spec"].take();
    assert_eq!(spec["failurePolicy"], "Fail", "no webhook has to answer");
    assert_eq!(
        spec["matchConstraints"],
        json!({ "matchPolicy": "Equivalent", "resourceRules": [{
            "apiGroups": ["demo.example"], "apiVersions": ["v1", "v2"], "operations": ["CREATE", "UPDATE"],
            "resources": ["entities"], "scope": "Namespaced",
        }] })
    );
    let conditions: Vec<_> = spec["matchConditions"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(conditions, ["mine", "portcullis.dev/exclude-finalizer-removal"]);
    let rule = json!({ "expression": "object.spec.n < 3", "message": "3 is too much", "reason": "Invalid" });
    assert_eq!(spec["validations"], json!([rule]));
    assert_eq!(
        serde_json::to_value(binding).unwrap(),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": { "name": name },
            "spec": {
                "policyName": name, "validationActions": ["Deny"],
                "matchResources": { "matchPolicy": "Equivalent", "namespaceSelector": judged.namespace_selector },
            },
        })
    );
}

#[test]
fn settings_narrow_selectors_and_close_no_open_webhook() {
    let selector = |value: Value| serde_json::from_value::<LabelSelector>(value).unwrap();
    let mut registered = webhook("a", WebhookKind::Validating);
    registered.namespace_selector = Some(selector(json!({ "matchLabels": { "team": "a" } })));
    let overrides = Overrides {
        failure_policy: Some(FailurePolicy::Ignore),
        timeout_seconds: Some(3),
        namespace_selector: Some(selector(json!({ "matchLabels": { "team": "b", "env": "prod" } }))),
        object_selector: Some(selector(json!({ "matchLabels": { "beer": "yes" } }))),
    };
    let made = registered.clone().with_overrides(&overrides);
    assert_eq!((made.failure_policy, made.timeout_seconds), (FailurePolicy::Ignore, 3));
    // Both have to hold, and no namespace has two values of a label.
    let both = json!({
        "matchLabels": { "team": "a", "env": "prod" },
        "matchExpressions": [{ "key": "team", "operator": "In", "values": ["b"] }],
    });
    assert_eq!(json!(made.namespace_selector), both);
    assert_eq!(json!(made.object_selector), json!({ "matchLabels": { "beer": "yes" } }));
    assert_eq!(registered.clone().with_overrides(&Overrides::default()), registered);
    let closing = Overrides { failure_policy: Some(FailurePolicy::Fail), ..Overrides::default() };
    assert_eq!(made.with_overrides(&closing).failure_policy, FailurePolicy::Ignore);
}
