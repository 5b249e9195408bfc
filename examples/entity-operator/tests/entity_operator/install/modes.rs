//! Each way in which an operator can be installed.

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use portcullis_testing::{wait_for_object, wait_until};
use serde_json::json;

use crate::install::home::{Home, person};
use crate::install::pod::{PATIENCE, Running};
use crate::install::secrets::filled;

/// Rules are kept, defaults are made, and objects are converted, through the API server.
async fn works(home: &Home, running: &Running) -> String {
    running.ready().await;
    let people = home.cluster.namespace("people").await;
    home.refuses_forbidden(&people, running).await;
    let made = wait_until("the mutating webhook to be in force", PATIENCE, || async {
        let made = home.create(&people, &person("plato", "overwrite"), true).await.ok()?;
        (made.data["spec"]["username"] == "random overwritten").then_some(made)
    });
    made.await;
    let ada = json!({
        "apiVersion": "demo.example/v1", "kind": "Entity", "metadata": { "name": "ada" },
        "spec": { "name": "Ada Lovelace", "username": "ada" },
    });
    home.create(&people, &ada, false).await.unwrap();
    let stored = home.entities("v3", &people).get("ada").await.unwrap();
    assert_eq!(stored.data["spec"]["lastname"], "Lovelace", "{}", running.log());
    people
}

const BOTH: [&str; 1] = ["entity-operator-?"];

// D1, D2
#[tokio::test]
async fn automatic_certificates_need_nothing_but_the_manifests() {
    let home = Home::new().await;
    let running = home.install(&[]).await;
    let people = works(&home, &running).await;
    // The PodDisruptionBudget selects both Pods.
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(home.cluster.admin(), &home.namespace);
    let counted = |budget: &PodDisruptionBudget| budget.status.as_ref().is_some_and(|status| status.expected_pods == 2);
    wait_for_object(&budgets, "entity-operator", "the budget to count", PATIENCE, counted).await;
    home.clean(&people, &BOTH).await;
}

// D4
#[tokio::test]
async fn cert_manager_makes_the_certificate_and_publishes_its_ca() {
    let home = Home::new().await;
    home.cert_manager().await;
    let running = home.install(&["--certificates", "cert-manager"]).await;
    let people = works(&home, &running).await;
    home.clean(&people, &BOTH).await;
}

// D5
#[tokio::test]
async fn external_certificates_take_a_secret_and_a_bundle() {
    let home = Home::new().await;
    let example = home.generate("certificates", &["--certificates", "external"]).await.remove(0);
    let (ca, secret) = filled(example, &format!("entity-operator-webhook.{}.svc", home.namespace));
    home.cluster.apply(&[secret]).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), ca).unwrap();
    let bundle = ["--certificates", "external", "--ca-bundle", file.path().to_str().unwrap()];
    let running = home.install(&bundle).await;
    let people = works(&home, &running).await;
    home.clean(&people, &BOTH).await;
}

// D6
#[tokio::test]
async fn a_restricted_operator_judges_its_namespace_only() {
    let home = Home::new().await;
    // The kinds are the business of the cluster-wide operator.
    home.ends_conversion().await;
    home.cluster.apply(&home.generate("crds", &["--webhooks", "off"]).await).await;
    let (team, others) = (home.cluster.namespace("team").await, home.cluster.namespace("others").await);
    let running = home.install(&["--restrict-to-namespace", &team]).await;
    running.ready().await;
    home.refuses_forbidden(&team, &running).await;
    home.create(&others, &person("free", "forbidden"), false).await.unwrap();
    home.clean(&others, &[&format!("entity-operator-?-{team}")]).await;
}

// D7: what the webhook would have refused, its controller finds.
#[tokio::test]
async fn only_the_stored_version_is_served_without_webhooks() {
    let home = Home::new().await;
    home.ends_conversion().await;
    let running = home.install(&["--webhooks", "off"]).await;
    running.ready().await;
    let people = home.cluster.namespace("people").await;
    home.create(&people, &person("refused-otherwise", "forbidden"), false).await.unwrap();
    // Stored, and found out.
    let told = wait_until("the verdict in the status", PATIENCE, || async {
        let stored = home.entities("v3", &people).get("refused-otherwise").await.ok()?;
        let conditions = stored.data["status"]["conditions"].as_array()?.clone();
        conditions.into_iter().find(|condition| condition["type"] == "Valid")
    });
    let Ok(told) = tokio::time::timeout(PATIENCE, told).await else { panic!("{}", running.log()) };
    assert_eq!((&told["status"], &told["reason"]), (&json!("False"), &json!("ValidationFailed")));
    assert_eq!(told["message"], "Validation failed: name may not be 'forbidden'.");
    let old = json!({ "apiVersion": "demo.example/v1", "kind": "Entity", "metadata": { "name": "old" }, "spec": {} });
    let said = home.create(&people, &old, false).await.unwrap_err();
    assert!(said.contains("not found"), "a version without a conversion is not served: {said}");
    home.create(&people, &person("ada", "ada"), false).await.unwrap();
    wait_until("what an entity that is valid gets", PATIENCE, || async {
        let ada = home.entities("v3", &people).get("ada").await.ok()?;
        (ada.data["status"]["fullName"] == "Ada Lovelace").then_some(())
    })
    .await;
    home.clean(&people, &[]).await;
}
