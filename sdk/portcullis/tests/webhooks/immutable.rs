//! D8: changes that CEL refuses, and the warnings that name their fields.

use kube::CustomResourceExt;
use kube::api::PostParams;
use portcullis::webhooks::{RegistrationError, Webhooks, immutable_fields};
use portcullis_manifest::{FailurePolicy, MatchPolicy, WebhookKind};
use serde_json::{Value, json};

use crate::fixture::Entity;
use crate::fleet::{Fleet, fleet};
use crate::gate::Gate;

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
