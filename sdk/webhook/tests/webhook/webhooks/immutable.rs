//! D8: changes that CEL refuses, and the warnings that name their fields.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use kube::api::PostParams;
use portcullis::webhooks::{RegistrationError, Webhooks, immutable_fields};
use portcullis_manifest::{FailurePolicy, MatchPolicy, WebhookKind};
use portcullis_testing::wait_until;
use serde_json::{Value, json};

use super::fleet::{Fleet, fleet};
use super::gate::Gate;
use crate::fixture::Entity;

const MERGE: &str = "application/merge-patch+json";

async fn gate() -> Gate {
    let webhooks = Webhooks::new().mutate(immutable_fields("immutable", &Fleet::crd()).unwrap());
    let gate = Gate::over(webhooks, &[Fleet::crd()]).await;
    gate.of::<Fleet>().create(&PostParams::default(), &fleet("a")).await.unwrap();
    gate
}

fn fields(warnings: &[String]) -> Vec<&str> {
    let behind = " is immutable: the API server refuses this change\"";
    let mut fields: Vec<_> =
        warnings.iter().map(|w| w.trim_start_matches("299 - \"").trim_end_matches(behind)).collect();
    fields.sort_unstable();
    fields
}

#[tokio::test]
async fn every_immutable_field_that_changes_is_named_though_cel_refuses_the_request() {
    let gate = gate().await;
    let change = json!({"spec": {
        "flag": "red", "replicas": 3, "home": {"port": "Rostock", "berth": 2},
        "ships": [{"name": "cat", "masts": 1}, {"name": "bee", "masts": 2}, {"name": "ant", "masts": 3}],
        "crews": {"a.b/c": {"captain": "Bob"}, "new": {"captain": "Cy"}},
    }});
    let (code, warnings, status) = gate.send("PATCH", "fleets/a", MERGE, &change).await;
    assert_eq!(code, 422, "the schema refuses it, whatever the webhook does: {status}");
    assert_eq!(fields(&warnings), ["spec.crews[a.b/c].captain", "spec.flag", "spec.home.port", "spec.ships[1].masts"]);
}

#[tokio::test]
async fn a_change_that_cel_allows_is_not_warned_of() {
    let gate = gate().await;
    let change = json!({"metadata": {"labels": {"x": "y"}}, "spec": {
        "replicas": 3, "home": {"berth": 2},
        "ships": [{"name": "bee", "masts": 3}, {"name": "cat", "masts": 1}], "crews": {"a.b/c": null},
    }});
    let (code, warnings, status) = gate.send("PATCH", "fleets/a", MERGE, &change).await;
    assert_eq!((code, warnings), (200, vec![]), "{status}");
}

#[tokio::test]
async fn a_status_is_warned_of_where_it_can_change() {
    let gate = gate().await;
    let founded = |year: &str| json!({"status": {"founded": year}});
    let first = gate.send("PATCH", "fleets/a/status", MERGE, &founded("1988")).await;
    assert_eq!((first.0, first.1), (200, vec![]), "what was not there does not change");

    let (code, warnings, _) = gate.send("PATCH", "fleets/a/status", MERGE, &founded("1989")).await;
    assert_eq!((code, fields(&warnings)), (422, vec!["status.founded"]));
    let (code, warnings, _) = gate.send("PATCH", "fleets/a", MERGE, &founded("1989")).await;
    assert_eq!((code, warnings), (200, vec![]), "without the subresource the status stays as it is");
}

#[test]
fn the_webhook_is_called_where_something_is_immutable_and_is_in_nobodys_way() {
    let webhooks = Webhooks::new().mutate(immutable_fields("immutable", &Fleet::crd()).unwrap());
    let manifest = webhooks.manifests().unwrap().remove(0);
    assert_eq!((manifest.name.as_str(), manifest.kind), ("immutable.fleets.demo.example", WebhookKind::Mutating));
    assert_eq!((manifest.failure_policy, manifest.match_policy), (FailurePolicy::Ignore, MatchPolicy::Exact));
    assert_eq!(manifest.rules[0].resources, ["fleets", "fleets/status"]);
    assert_eq!((manifest.rules[0].operations.len(), manifest.timeout_seconds), (1, 2));

    let nothing: Result<_, RegistrationError> = immutable_fields("immutable", &Entity::crd());
    let said = nothing.map(|_| Value::Null).unwrap_err().to_string();
    assert!(said.contains("no field of entities has a rule"), "{said}");
}

/// What a schema can say of a field, with the ways that the Kubernetes documentation gives for it.
fn rulebook() -> CustomResourceDefinition {
    let rule = |rule: &str| json!({"rule": rule});
    let fixed = |kind: Value| {
        let mut schema = kind;
        schema["x-kubernetes-validations"] = json!([{"rule": "self == oldSelf", "messageExpression": "'it stays'"}]);
        schema
    };
    let spec = json!({
        "type": "object",
        "x-kubernetes-validations": [
            rule("!has(oldSelf.once) || (has(self.once) && self.once == oldSelf.once)"),
            rule("!has(oldSelf.guarded) || self.guarded == oldSelf.guarded"),
        ],
        "properties": {
            "plain": fixed(json!({"type": "string"})),
            "null": fixed(json!({"type": "string", "nullable": true})),
            "later": {"type": "string", "x-kubernetes-validations": [
                {"rule": "!oldSelf.hasValue() || self == oldSelf.value()", "optionalOldSelf": true}]},
            "other": {"type": "string", "x-kubernetes-validations": [
                {"rule": "oldSelf.orValue(self) == self", "optionalOldSelf": true}]},
            "once": {"type": "string"},
            "guarded": {"type": "string"},
            "number": fixed(json!({"type": "number"})),
            "either": fixed(json!({"x-kubernetes-int-or-string": true})),
            "list": fixed(json!({"type": "array", "maxItems": 5, "items": {"type": "integer"}})),
            "set": fixed(json!({"type": "array", "maxItems": 5, "x-kubernetes-list-type": "set", "items": {"type": "integer"}})),
            "map": fixed(json!({"type": "object", "maxProperties": 5, "additionalProperties": {"type": "integer"}})),
            "free": {"type": "string"},
        },
    });
    serde_json::from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "rulebooks.demo.example"},
        "spec": {
            "group": "demo.example", "scope": "Namespaced", "names": {"kind": "Rulebook", "plural": "rulebooks"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": spec}}}}],
        },
    }))
    .unwrap()
}

#[tokio::test]
async fn a_field_is_warned_of_where_the_api_server_refuses_its_change_and_nowhere_else() {
    let crd = rulebook();
    let gate = Gate::over(Webhooks::new().mutate(immutable_fields("rules", &crd).unwrap()), &[crd]).await;
    let object = json!({"apiVersion": "demo.example/v1", "kind": "Rulebook", "metadata": {"name": "a"}, "spec": {
        "plain": "a", "null": "a", "later": "a", "other": "a", "once": "a", "guarded": "a", "number": 1.5, "either": 1,
        "list": [1, 2], "set": [1, 2], "map": {"a": 1, "b": 2}, "free": "a"}});
    let (code, _, made) = gate.send("POST", "rulebooks", "application/json", &object).await;
    assert_eq!(code, 201, "{made}");
    for (field, change) in [
        ("plain", json!("b")),
        ("plain", json!("a")),
        ("null", json!("b")),
        ("later", json!("b")),
        ("other", json!("b")),
        ("once", json!("b")),
        ("guarded", json!("b")),
        ("number", json!(2)),
        ("number", json!(1.5)),
        ("either", json!("1")),
        ("either", json!(1)),
        ("list", json!([2, 1])),
        ("list", json!([1, 2])),
        ("set", json!([2, 1])),
        ("set", json!([1, 2, 3])),
        ("map", json!({"b": 2, "a": 1})),
        ("map", json!({"a": 2})),
        ("free", json!("b")),
        ("plain", Value::Null),
        ("later", Value::Null),
    ] {
        let mut spec = json!({});
        spec[field] = change;
        let (code, warnings, said) = gate.send("PATCH", "rulebooks/a?dryRun=All", MERGE, &json!({"spec": spec})).await;
        match code {
            200 => assert!(warnings.is_empty(), "{spec}: {warnings:?}"),
            422 => assert_eq!(fields(&warnings), [format!("spec.{field}")], "{spec}: {said}"),
            _ => panic!("{spec}: {said}"),
        }
    }
    // What is there and null, in the store.
    let null = json!([{"op": "replace", "path": "/spec/null", "value": null}]);
    let (code, warnings, said) = gate.send("PATCH", "rulebooks/a", "application/json-patch+json", &null).await;
    assert_eq!((code, warnings.as_slice()), (200, &[][..]), "{said}");
    assert!(said["spec"]["null"].is_null());
    // The API server begins an update with what its cache holds, tries again when that was old, and passes on the
    // warnings of both tries: this one is to see what is stored.
    wait_until("the cache to hold it", Duration::from_mins(1), || async {
        let (_, _, cached) = gate.send("GET", "rulebooks/a?resourceVersion=0", MERGE, &json!(null)).await;
        (cached["metadata"]["resourceVersion"] == said["metadata"]["resourceVersion"]).then_some(())
    })
    .await;
    let (code, warnings, said) = gate.send("PATCH", "rulebooks/a", MERGE, &json!({"spec": {"null": "b"}})).await;
    assert_eq!((code, warnings.as_slice()), (200, &[][..]), "{said}");
}
