//! Webhooks off: the controllers ask the validators, and say in the status what they answer.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use portcullis_testing::{ControlPlane, RunningOperator, wait_until};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::clusters::{binary, unguarded};

/// Nothing in these tests takes longer on a busy machine.
const PATIENCE: Duration = Duration::from_mins(2);

struct Home {
    cluster: &'static ControlPlane,
    operator: &'static RunningOperator,
    namespace: String,
}

impl Home {
    async fn new() -> Self {
        static OPERATOR: OnceCell<RunningOperator> = OnceCell::const_new();
        let cluster = unguarded().await;
        let install = || async { binary().flags(["--webhooks", "off"]).install(cluster).await };
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

    /// Counts the reconciles of requests that have ended.
    async fn reconciles(&self) -> u64 {
        let metrics = self.operator.get("/metrics").await.unwrap();
        let counted = |line: &&str| line.starts_with("portcullis_reconciles_total{controller=\"graph-requests\"");
        metrics.lines().filter(counted).map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
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

/// Status, reason and message of a condition.
fn says<'a>(status: &'a Value, condition: &str) -> Option<(&'a str, &'a str, &'a str)> {
    let found = status["conditions"].as_array()?.iter().find(|it| it["type"] == condition)?;
    let text = |member: &str| found[member].as_str().unwrap();
    Some((text("status"), text("reason"), text("message")))
}

/// The condition `Valid`.
fn valid(status: &Value) -> Option<(&str, &str, &str)> {
    says(status, "Valid")
}

/// A request that has a warning beside.
fn request(more: &Value) -> Value {
    let mut profiling = json!({"profilerImage": "a", "config": {"engine": {"backend": "sglang"}}});
    profiling.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"model": "a", "backend": "vllm", "profilingConfig": profiling})
}

#[tokio::test]
async fn an_invalid_object_is_found_with_webhooks_off() {
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

/// Refused graphs and requests have a state, too, which goes when their spec is fixed.
#[tokio::test]
async fn a_refused_graph_or_request_is_in_dynamos_failed_state() {
    let home = Home::new().await;
    let (no_services, no_image) =
        ("spec.services must have at least one service", "spec.profilingConfig.profilerImage is required");
    let rows = [
        (
            "DynamoGraphDeployment",
            json!({"services": {}}),
            json!({"services": {"main": {}}}),
            ("failed", "Ready", format!("Validation failed: {no_services}")),
        ),
        (
            "DynamoGraphDeploymentRequest",
            request(&json!({"profilerImage": ""})),
            json!({"profilingConfig": {"profilerImage": "a"}}),
            ("Failed", "Validation", no_image.to_owned()),
        ),
    ];
    for (kind, refused, mended, (state, condition, message)) in rows {
        home.create(kind, "refused", refused).await;
        let status = home.until(kind, "refused", "refused", |status| status["state"] == state).await;
        assert_eq!(says(&status, condition), Some(("False", "ValidationFailed", &*message)), "{kind}");
        assert_eq!(status.get("observedGeneration"), None, "{kind} was reconciled");

        home.change(kind, "refused", mended).await.unwrap();
        let status = home.until(kind, "refused", "accepted", |status| status["observedGeneration"] == 2).await;
        assert_eq!((status.get("state"), says(&status, condition)), (None, None), "{kind}");
        assert_eq!(valid(&status).unwrap().0, "True", "{kind}");
    }
    // There is no request that a warning could answer.
    let warning = "spec.profilingConfig.config.engine.backend (sglang) will be overwritten by spec.backend (vllm)";
    let log = home.operator.log();
    let mut lines = log.lines().filter(|line| line.contains("Validation warning") && line.contains(&home.namespace));
    assert!(lines.any(|line| line.contains(warning)), "{log}");
}

#[tokio::test]
async fn a_request_waits_for_its_config_map_and_entry() {
    let home = Home::new().await;
    let kind = "DynamoGraphDeploymentRequest";
    let maps: Api<ConfigMap> = Api::namespaced(home.cluster.admin(), &home.namespace);
    let set = async |data: Value| {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "graph"}, "data": data});
        maps.patch("graph", &PatchParams::apply("user").force(), &Patch::Apply(map)).await.unwrap();
    };
    let refused = async |message: String| {
        let so = |status: &Value| says(status, "Validation") == Some(("False", "ValidationFailed", &*message));
        let status = home.until(kind, "waiting", &message, so).await;
        assert_eq!((&status["state"], valid(&status).unwrap().0), (&json!("Failed"), "True"));
    };
    home.create(kind, "waiting", request(&json!({"configMapRef": {"name": "graph"}}))).await;
    refused(format!("ConfigMap graph not found in namespace {}", home.namespace)).await;
    set(json!({"other.yaml": ""})).await;
    // The key is the default of Dynamo's schema.
    refused("key disagg.yaml not found in ConfigMap graph".to_owned()).await;
    set(json!({"disagg.yaml": ""})).await;
    let status = home.until(kind, "waiting", "accepted", |status| status["observedGeneration"] == 1).await;
    assert_eq!((status.get("state"), says(&status, "Validation")), (None, None));
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

/// A request is immutable while it is profiled. Its status has the generation that was accepted.
#[tokio::test]
async fn a_request_changed_during_profiling_keeps_its_generation() {
    let home = Home::new().await;
    let kind = "DynamoGraphDeploymentRequest";
    let spec = json!({"model": "a", "backend": "vllm", "profilingConfig": {"profilerImage": "a", "config": {}}});
    home.create(kind, "profiled", spec).await;
    home.until(kind, "profiled", "accepted", |status| status["observedGeneration"] == 1).await;
    let requests = home.objects(kind);
    let state = Patch::Merge(json!({"status": {"state": "Profiling"}}));
    requests.patch_status("profiled", &PatchParams::default(), &state).await.unwrap();
    // An invalid spec is not accepted either.
    let profiling = json!({"profilerImage": "", "configMapRef": {"name": "graph"}});
    home.change(kind, "profiled", json!({"model": "b", "profilingConfig": profiling})).await.unwrap();
    let events: Api<k8s_openapi::api::events::v1::Event> = Api::namespaced(home.cluster.admin(), &home.namespace);
    let notes = || async {
        let listed = events.list(&kube::api::ListParams::default()).await.unwrap();
        let of_change = listed.into_iter().filter(|event| event.reason.as_deref() == Some("SpecChangeRejected"));
        of_change.map(|event| event.note.unwrap()).collect::<Vec<_>>()
    };
    let notes_there = || async { Some(notes().await).filter(|notes| !notes.is_empty()) };
    let note = wait_until("the event", PATIENCE, notes_there).await.remove(0);
    assert!(note.starts_with("Cannot modify spec in state 'Profiling'."), "{note}");
    let as_it_was = |status: &Value| {
        let rejected =
            says(status, "Validation").is_some_and(|said| (said.0, said.1) == ("False", "SpecChangeRejected"));
        status["observedGeneration"] == 1 && status["state"] == "Profiling" && rejected
    };
    home.until(kind, "profiled", "as it was", as_it_was).await;
    // Further reconciles, as after a restart, publish nothing.
    let maps: Api<ConfigMap> = Api::namespaced(home.cluster.admin(), &home.namespace);
    for round in 0..3 {
        let before = home.reconciles().await;
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "graph"}, "data": {"round": round.to_string()}});
        maps.patch("graph", &PatchParams::apply("user").force(), &Patch::Apply(map)).await.unwrap();
        let another = || async { (home.reconciles().await > before).then_some(()) };
        wait_until("another reconcile", PATIENCE, another).await;
    }
    assert_eq!(notes().await.len(), 1);
}
