//! Reviews as an API server sends them, over HTTPS to the running operator: what no request of a user leads to, and whose
//! namespaces a cluster-wide operator leaves alone.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use http::Request;
use http_body_util::BodyExt as _;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::{Api, Client, Config};
use portcullis_testing::{ControlPlane, wait_until};
use serde_json::{Value, json};

use crate::clusters::cluster_wide;

/// Nothing in these tests takes longer on a busy machine.
const PATIENCE: Duration = Duration::from_mins(2);
/// The Lease by which a restricted operator holds a namespace.
const LEASE: &str = "dynamo-operator-ns-lock";

/// A running operator, as the API server calls it.
struct Called {
    client: Client,
}

impl Called {
    /// The one that the generated configuration names. Whether its certificate fits is the API server's business.
    async fn of(cluster: &ControlPlane) -> Self {
        let configurations: Api<ValidatingWebhookConfiguration> = Api::all(cluster.admin());
        let generated = configurations.get("dynamo-operator-validating").await.unwrap();
        let service = generated.webhooks.unwrap().remove(0).client_config.service.unwrap();
        let mut config = Config::new(format!("https://127.0.0.1:{}", service.port.unwrap()).parse().unwrap());
        config.accept_invalid_certs = true;
        Self { client: Client::try_from(config).unwrap() }
    }

    /// Its answer.
    async fn reviews(&self, review: &Value) -> Value {
        let request =
            Request::post("/validate-nvidia-com-v1alpha1-dynamomodel").header("content-type", "application/json");
        let answer =
            self.client.send(request.body(Body::from(review.to_string().into_bytes())).unwrap()).await.unwrap();
        let status = answer.status();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        serde_json::from_slice(&body).unwrap_or_else(|_| panic!("{status}: {}", String::from_utf8_lossy(&body)))
    }

    /// Whether a model without a name is refused in this namespace.
    async fn judges(&self, namespace: &str) -> bool {
        self.reviews(&review("CREATE", namespace, None, Some(model("", "a")))).await["response"]["allowed"] == false
    }
}

fn model(model_name: &str, base_model_name: &str) -> Value {
    json!({
        "apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoModel", "metadata": {"name": "model"},
        "spec": {"modelName": model_name, "baseModelName": base_model_name, "modelType": "base"},
    })
}

/// The same while it is deleted.
fn terminating(mut model: Value, finalizers: &[&str]) -> Value {
    model["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    model["metadata"]["finalizers"] = json!(finalizers);
    model
}

fn review(operation: &str, namespace: &str, old: Option<Value>, new: Option<Value>) -> Value {
    let within = |object: Option<Value>| {
        let mut object = object?;
        object["metadata"]["namespace"] = json!(namespace);
        Some(object)
    };
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "1", "operation": operation, "name": "model", "namespace": namespace, "dryRun": true,
            "kind": {"group": "nvidia.com", "version": "v1alpha1", "kind": "DynamoModel"},
            "resource": {"group": "nvidia.com", "version": "v1alpha1", "resource": "dynamomodels"},
            "userInfo": {"username": "jane"}, "oldObject": within(old), "object": within(new),
        },
    })
}

/// Hands the namespace over to an operator of Dynamo's, as an administrator does: by the policy that is generated for a
/// restricted installation.
async fn hand_over(cluster: &ControlPlane, namespace: &str) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dynamo-webhooks"));
    command.args([
        "generate",
        "rbac",
        "--release",
        "tenant",
        "--namespace",
        namespace,
        "--restrict-to-namespace",
        namespace,
    ]);
    let output = command.env_clear().stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    cluster.apply(&serde_saphyr::from_multiple(&String::from_utf8(output.stdout).unwrap()).unwrap()).await;
}

/// As Dynamo's operator writes it. Its clock is years behind.
fn lease(name: &str, seconds: u32) -> Lease {
    let then = "2020-01-01T00:00:00.000000Z";
    let lease = json!({
        "metadata": {"name": name},
        "spec": {
            "holderIdentity": "namespace-restricted-operator-0.8.0", "leaseDurationSeconds": seconds,
            "acquireTime": then, "renewTime": then,
        },
    });
    serde_json::from_value(lease).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_depends_on_operation_version_and_namespace() {
    let (cluster, _) = cluster_wide().await;
    let called = Called::of(cluster).await;
    let ours = cluster.namespace("ours").await;
    let required = Some("spec.modelName is required");
    let immutable = Some("spec.baseModelName is immutable and cannot be changed after creation");
    let (old, changed) = (|| Some(terminating(model("a", "a"), &["x/y"])), || terminating(model("a", "b"), &["x/y"]));
    let beta = |mut review: Value| {
        review["apiVersion"] = json!("admission.k8s.io/v1beta1");
        review
    };
    let create = |model| review("CREATE", &ours, None, Some(model));
    let table = [
        ("a bad object", create(model("", "a")), required),
        ("the same in an older version of the review", beta(create(model("", "a"))), required),
        ("a good object in that version", beta(create(model("a", "a"))), None),
        ("what is immutable changes during the deletion", review("UPDATE", &ours, old(), Some(changed())), immutable),
        (
            "a finalizer goes from a bad object",
            review(
                "UPDATE",
                &ours,
                Some(terminating(model("", "a"), &["x/y"])),
                Some(terminating(model("", "a"), &[])),
            ),
            None,
        ),
    ];
    for (what, review, error) in table {
        let answer = called.reviews(&review).await;
        let expected = [&json!(error.is_none()), &json!(error), &review["apiVersion"]];
        let response = &answer["response"];
        assert_eq!([&response["allowed"], &response["status"]["message"], &answer["apiVersion"]], expected, "{what}");
        assert_eq!(response["uid"], "1", "{what}");
        assert!(error.is_none() || response["status"]["code"] == 403, "{what}: {answer}");
    }

    let name = LEASE;
    let team = cluster.namespace("team").await;
    let leases: Api<Lease> = Api::namespaced(cluster.admin(), &team);
    hand_over(cluster, &team).await;
    leases.create(&PostParams::default(), &lease(name, 250)).await.unwrap();
    let renewals = AtomicU32::new(1);
    let renew = async |seconds: u32| {
        let time = format!("2020-01-01T00:00:00.{:06}Z", renewals.fetch_add(1, Ordering::Relaxed));
        let patch = Patch::Merge(json!({"spec": {"renewTime": time, "leaseDurationSeconds": seconds}}));
        leases.patch(name, &PatchParams::default(), &patch).await.unwrap();
    };
    // That it is there says nothing of its holder; that it changes does.
    let excluded = || async {
        renew(250).await;
        (!called.judges(&team).await).then_some(())
    };
    wait_until(&format!("{team} to be left to the holder of {name}"), PATIENCE, excluded).await;
    let answer = called.reviews(&review("CREATE", &team, None, Some(model("", "a")))).await;
    assert_eq!(answer["response"], json!({"uid": "1", "allowed": true}), "there are no warnings either");

    // The last renewal before a crash.
    renew(1).await;
    let judged = || async { called.judges(&team).await.then_some(()) };
    wait_until(&format!("{name} to have expired"), PATIENCE, judged).await;
}
