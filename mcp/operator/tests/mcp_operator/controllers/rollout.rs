//! R1, R2, M3: what rolls the proxy's pods, and what does not.

use mcp_plan::workload::ChildKind;
use portcullis_pki::Pair;
use serde_json::{Value, json};

use super::{
    Place,
    support::{children_of, every_override, labelled, pem},
};

const CHECKSUM: &str = "toolhive.stacklok.dev/runconfig-checksum";

fn template(deployment: &Value) -> &Value {
    &deployment["spec"]["template"]
}

/// R2: overrides survive beside the checksum, cannot replace it, and Deployment-level annotations stay off the pods.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_checksum_survives_pod_template_overrides_and_deployment_annotations_stay_off_the_pods() {
    let place = Place::new("overrides").await;
    let _operator = place.operator();
    for object in every_override("full") {
        place.objects.create(object).await;
    }
    let deployment = place.objects.child(ChildKind::Deployment, "full", "to exist", |it| !it.is_null()).await;
    let run_config = place.objects.get(ChildKind::ConfigMap, "full-runconfig").await;
    let metadata = &template(&deployment)["metadata"];
    assert_eq!(
        metadata["annotations"][CHECKSUM],
        run_config["metadata"]["annotations"]["toolhive.stacklok.dev/content-checksum"]
    );
    assert_eq!(metadata["annotations"]["vault.hashicorp.com/agent-inject"], "true");
    assert_eq!(metadata["labels"]["sidecar"], "vault");
    assert_eq!(deployment["metadata"]["annotations"]["deploy/team"], "core");
    assert_eq!(deployment["metadata"]["labels"]["deploy/tier"], "gold");
    assert!(metadata["annotations"].get("deploy/team").is_none(), "{metadata}");
    assert!(metadata["labels"].get("deploy/tier").is_none(), "{metadata}");
}

/// M3, R1: an edit of the webhook configuration reaches the template; an edit of its Secret reaches the mounted files
/// and rolls nothing; an edit of a Secret that the MCP server takes by environment rolls the MCP server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_config_edit_rolls_the_template_and_an_edit_of_its_secret_does_not() {
    let place = Place::new("config-edit").await;
    let operator = place.operator();
    for object in every_override("full") {
        place.objects.create(object).await;
    }
    place.objects.has_children("full", &children_of("full")).await;
    operator.idle(place.cluster).await;
    let before = place.objects.get(ChildKind::Deployment, "full").await;
    let workload = place.objects.get(ChildKind::StatefulSet, "full").await;
    let hash = place.objects.servers().get("full").await.unwrap().status.unwrap().webhook_config_hash;

    let since = place.cluster.audit().mark();
    let Pair { cert_pem, key_pem } = pem::client();
    let rotated = json!({"stringData": {"hmac": "other", "tls.crt": cert_pem, "tls.key": key_pem}});
    place.objects.merge("v1", "Secret", "full-keys", rotated).await;
    operator.wrote_nothing(place.cluster, since, "after a Secret edit").await;

    place.objects.merge("v1", "Secret", "full-keys", json!({"stringData": {"token": "other"}})).await;
    let rolled = place
        .objects
        .child(ChildKind::StatefulSet, "full", "another template", |now| template(now) != template(&workload));
    rolled.await;
    assert_eq!(template(&place.objects.get(ChildKind::Deployment, "full").await), template(&before));

    let edit = json!({"spec": {"validating": [{"name": "policy", "url": "https://other.example.svc/check"}]}});
    place.objects.merge("toolhive.stacklok.dev/v1alpha1", "MCPWebhookConfig", "full-gate", edit).await;
    let checksum = |object: &Value| template(object)["metadata"]["annotations"][CHECKSUM].clone();
    let after = place
        .objects
        .child(ChildKind::Deployment, "full", "another checksum", |now| checksum(now) != checksum(&before));
    let after = after.await;
    let run_config = place.objects.get(ChildKind::ConfigMap, "full-runconfig").await;
    assert!(run_config["data"]["runconfig.json"].as_str().unwrap().contains("other.example.svc"));
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"], "rolled, not made anew");
    let changed = |server: &mcp_api::v1beta1::MCPServer| {
        server.status.as_ref().is_some_and(|status| status.webhook_config_hash != hash)
    };
    place.objects.server("full", "another webhookConfigHash", changed).await;
}

/// `kubectl rollout restart`, an autoscaler: what we never send stays as others set it, through our own writes too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollout_restart_and_an_autoscalers_replicas_survive_our_writes() {
    let place = Place::new("restart").await;
    let operator = place.operator();
    // Without it, more than one replica is worth a warning.
    let shared = json!({"sessionStorage": {"provider": "redis", "address": "redis:6379"}});
    place.objects.create(labelled("web", shared)).await;
    place.objects.has_children("web", &children_of("web")).await;
    operator.idle(place.cluster).await;
    let restart = json!({"spec": {
        "replicas": 3,
        "template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "2026-11-21T00:00:00Z"}}},
    }});
    let since = place.cluster.audit().mark();
    place.objects.merge("apps/v1", "Deployment", "web", restart).await;
    operator.wrote_nothing(place.cluster, since, "after a rollout restart").await;
    place.objects.edit("web", json!({"args": ["--other"]})).await;
    let generation = |it: &Value| template(it)["metadata"]["annotations"][CHECKSUM].clone();
    let before = generation(&place.objects.get(ChildKind::Deployment, "web").await);
    let after = place.objects.child(ChildKind::Deployment, "web", "our write", |it| generation(it) != before).await;
    let annotations = &template(&after)["metadata"]["annotations"];
    assert_eq!(annotations["kubectl.kubernetes.io/restartedAt"], "2026-11-21T00:00:00Z");
    assert_eq!(after["spec"]["replicas"], 3);
}
