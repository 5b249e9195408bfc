//! Webhooks off: the controllers ask the validators, and say in the status what they answer.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::time::Duration;

use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use portcullis_testing::{ControlPlane, OperatorBinary, RunningOperator, wait_until};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

/// Nothing in these tests takes longer on a busy machine.
const PATIENCE: Duration = Duration::from_secs(45);

struct Home {
    cluster: &'static ControlPlane,
    operator: &'static RunningOperator,
    namespace: String,
}

impl Home {
    async fn new() -> Self {
        static OPERATOR: OnceCell<RunningOperator> = OnceCell::const_new();
        let (cluster, binary) = (ControlPlane::shared().await, env!("CARGO_BIN_EXE_dynamo-webhooks"));
        let install = || async { OperatorBinary::at(binary).flags(["--webhooks", "off"]).install(cluster).await };
        Self { cluster, operator: OPERATOR.get_or_init(install).await, namespace: cluster.namespace("off").await }
    }

    fn objects(&self, kind: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("nvidia.com", "v1alpha1", kind));
        Api::namespaced_with(self.cluster.admin(), &self.namespace, &resource)
    }

    async fn create(&self, kind: &str, name: &str, spec: Value) {
        let object = json!({
            "apiVersion": "nvidia.com/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec,
        });
        let object = serde_json::from_value(object).unwrap();
        self.objects(kind).create(&PostParams::default(), &object).await.unwrap();
    }

    async fn change(&self, kind: &str, name: &str, spec: Value) -> kube::Result<DynamicObject> {
        let change = Patch::Merge(json!({ "spec": spec }));
        self.objects(kind).patch(name, &PatchParams::default(), &change).await
    }

    /// Waits until the object's status is so.
    async fn until(&self, kind: &str, name: &str, what: &str, so: impl Fn(&Value) -> bool) -> Value {
        let objects = self.objects(kind);
        wait_until(&format!("{kind} {name} to be {what}"), PATIENCE, || async {
            let status = objects.get(name).await.ok()?.data["status"].take();
            so(&status).then_some(status)
        })
        .await
    }
}

/// The condition `Valid`.
fn valid(status: &Value) -> Option<(&str, &str, &str)> {
    let valid = status["conditions"].as_array()?.iter().find(|condition| condition["type"] == "Valid")?;
    let text = |member: &str| valid[member].as_str().unwrap();
    Some((text("status"), text("reason"), text("message")))
}

#[tokio::test]
async fn what_a_webhook_would_have_refused_is_stored_and_found_out_and_what_is_sound_is_reconciled() {
    let home = Home::new().await;
    let request = json!({"model": "a", "backend": "vllm", "profilingConfig": {"profilerImage": ""}});
    let invalid = [
        ("DynamoComponentDeployment", json!({"replicas": -1}), "spec.replicas must be non-negative"),
        ("DynamoGraphDeployment", json!({"services": {}}), "spec.services must have at least one service"),
        ("DynamoModel", json!({"modelName": "", "baseModelName": "a"}), "spec.modelName is required"),
        (
            "DynamoGraphDeploymentRequest",
            request,
            "spec.profilingConfig.profilerImage is required\nspec.profilingConfig.config is required and must not be empty",
        ),
    ];
    for (kind, spec, error) in invalid {
        home.create(kind, "invalid", spec).await;
        let status = home.until(kind, "invalid", "judged", |status| valid(status).is_some()).await;
        let message = format!("Validation failed: {error}");
        assert_eq!(valid(&status), Some(("False", "ValidationFailed", &*message)), "{kind}");
        assert_eq!(status.get("observedGeneration"), None, "{kind} was reconciled");
    }

    home.create("DynamoModel", "sound", json!({"modelName": "a", "baseModelName": "a"})).await;
    home.change("DynamoModel", "invalid", json!({"modelName": "mended"})).await.unwrap();
    for (name, generation) in [("sound", 1), ("invalid", 2)] {
        let accepted = |status: &Value| status["observedGeneration"] == generation;
        let status = home.until("DynamoModel", name, "reconciled", accepted).await;
        assert_eq!(valid(&status), Some(("True", "ValidationPassed", "DynamoModel spec is valid")));
    }

    let log = home.operator.log();
    for line in [
        "Webhooks are disabled - controllers will validate (defense in depth)",
        "DynamoModel validation failed, refusing to reconcile",
        "DynamoModel is invalid, not reconciling until spec is fixed",
    ] {
        assert!(log.contains(line), "{line:?} is not in the log:\n{log}");
    }
    assert!(!log.contains("Registering validation webhooks"), "{log}");
}

/// The CRD's own rules hold without webhooks, and without any operator.
#[tokio::test]
async fn immutable_fields_stay_as_they_are_without_webhooks() {
    let home = Home::new().await;
    home.create("DynamoComponentDeployment", "fixed", json!({"backendFramework": "vllm"})).await;
    let refused = home.change("DynamoComponentDeployment", "fixed", json!({"backendFramework": "sglang"})).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("spec.backendFramework is immutable and cannot be changed after creation"), "{refused}");
}

/// What is profiled is immutable. Its status says which generation was accepted.
#[tokio::test]
async fn a_request_that_is_changed_while_it_is_profiled_keeps_its_generation_and_gets_an_event() {
    let home = Home::new().await;
    let kind = "DynamoGraphDeploymentRequest";
    let spec = json!({"model": "a", "backend": "vllm", "profilingConfig": {"profilerImage": "a", "config": {}}});
    home.create(kind, "profiled", spec).await;
    home.until(kind, "profiled", "accepted", |status| status["observedGeneration"] == 1).await;
    let requests = home.objects(kind);
    let state = Patch::Merge(json!({"status": {"state": "Profiling"}}));
    requests.patch_status("profiled", &PatchParams::default(), &state).await.unwrap();
    home.change(kind, "profiled", json!({"model": "b"})).await.unwrap();
    let events: Api<k8s_openapi::api::events::v1::Event> = Api::namespaced(home.cluster.admin(), &home.namespace);
    let note = wait_until("the event", PATIENCE, || async {
        let listed = events.list(&kube::api::ListParams::default()).await.ok()?;
        listed.items.into_iter().find(|event| event.reason.as_deref() == Some("SpecChangeRejected"))?.note
    })
    .await;
    assert!(note.starts_with("Cannot modify spec in state 'Profiling'."), "{note}");
    home.until(kind, "profiled", "as it was", |status| status["observedGeneration"] == 1).await;
}
