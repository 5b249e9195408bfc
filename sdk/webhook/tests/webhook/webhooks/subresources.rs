//! Requests for something else than the object itself: scale, status, connections.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::Eviction;
use kube::CustomResourceExt;
use kube::api::{DeleteParams, PostParams};
use portcullis::webhooks::{Context, Mutate, Mutation, Operation, Scale, Validate, Verdict, Webhooks};
use portcullis_manifest::ScopeType;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::fleet::{Fleet, fleet};
use super::gate::Gate;

const MERGE: &str = "application/merge-patch+json";

/// `kubectl exec` sends one; k8s-openapi has no type for it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct PodExecOptions {
    #[serde(default)]
    command: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    container: Option<String>,
}

async fn judge_status(old: Arc<Fleet>, new: Arc<Fleet>, cx: Context) -> Verdict {
    let phase = |fleet: &Fleet| fleet.status.as_ref().and_then(|status| status.phase.clone());
    match phase(&new).as_deref() {
        Some("Lost") => {
            let told = format!("{} of {} was {:?}", cx.sub_resource.unwrap_or_default(), cx.kind.kind, phase(&old));
            Verdict::deny(told).code(409).cause("status.phase", "may not be 'Lost'")
        }
        _ => Verdict::allow(),
    }
}

fn webhooks() -> Webhooks {
    let limit = Validate::<Scale>::subresource_of::<Fleet>("limit", "scale").on_update(
        |old: Arc<Scale>, new: Arc<Scale>, cx: Context| async move {
            let replicas = |scale: &Scale| scale.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or_default();
            match replicas(&new) {
                11.. => Verdict::deny(format!("{} to {} is too many", replicas(&old), replicas(&new)))
                    .code(422)
                    .cause("spec.replicas", format!("{} of {}", cx.kind.kind, cx.resource.resource)),
                _ => Verdict::allow(),
            }
        },
    );
    let even = Mutate::<Scale>::subresource_of::<Fleet>("even", "scale").on_update(
        |_: Arc<Scale>, mut new: Scale, _: Context| async move {
            let spec = new.spec.get_or_insert_default();
            spec.replicas = spec.replicas.map(|replicas| replicas + replicas % 2);
            Mutation::modified(new)
        },
    );
    let phase = Mutate::<Fleet>::subresource_of::<Fleet>("phase", "status").on_update(
        |_: Arc<Fleet>, mut new: Fleet, _: Context| async move {
            new.status.get_or_insert_default().phase.get_or_insert_with(|| "Afloat".into());
            Mutation::modified(new)
        },
    );
    let no_shells = Validate::<PodExecOptions>::subresource_of::<Pod>("no-shells", "exec").on_connect(
        |options: Arc<PodExecOptions>, cx: Context| async move {
            assert_eq!((cx.operation, cx.sub_resource.as_deref()), (Operation::Connect, Some("exec")));
            match options.command.first().map(String::as_str) {
                Some("sh") => {
                    Verdict::deny(format!("no shell in {}/{}", cx.name.unwrap(), options.container.clone().unwrap()))
                }
                _ => Verdict::allow(),
            }
            .code(403)
        },
    );
    let into_app = Mutate::<PodExecOptions>::subresource_of::<Pod>("into-app", "exec").on_connect(
        |mut options: PodExecOptions, _: Context| async move {
            options.container = Some("app".into());
            Mutation::modified(options)
        },
    );
    let stay = Validate::<Eviction>::subresource_of::<Pod>("stay", "eviction").on_create(
        |eviction: Arc<Eviction>, _: Context| async move {
            Verdict::deny(format!("{} stays", eviction.metadata.name.as_deref().unwrap_or_default())).code(409)
        },
    );
    Webhooks::new()
        .validate(limit)
        .mutate(even)
        .validate(Validate::<Fleet>::subresource_of::<Fleet>("lost", "status").on_update(judge_status))
        .mutate(phase)
        .validate(no_shells)
        .mutate(into_app)
        .validate(stay)
}

#[test]
fn a_manifest_names_the_subresource_of_its_kind() {
    let manifests = webhooks().manifests().unwrap();
    let limit = &manifests[0];
    assert_eq!((limit.name.as_str(), limit.path.as_str()), ("limit.fleets.demo.example", "/validate/limit"));
    let rule = &limit.rules[0];
    // The group of the kind that is scaled, and not that of Scale.
    assert_eq!((rule.groups[0].as_str(), rule.resources[0].as_str()), ("demo.example", "fleets/scale"));
    assert_eq!((rule.scope, rule.operations[0].to_string().as_str()), (ScopeType::Namespaced, "UPDATE"));
    let exec = &manifests[4].rules[0];
    assert_eq!((exec.resources[0].as_str(), exec.operations[0].to_string().as_str()), ("pods/exec", "CONNECT"));
    assert_eq!(manifests[4].name, "no-shells.pods.core");

    let deployments = Validate::<Scale>::subresource_of::<Deployment>("limit", "scale")
        .on_update(|_: Arc<Scale>, _: Arc<Scale>, _: Context| async { Verdict::allow() });
    let manifests = Webhooks::new().validate(deployments).manifests().unwrap();
    assert_eq!(manifests[0].rules[0].groups, ["apps"]);
}

/// K1, K2: what `kubectl scale` sends.
#[tokio::test]
async fn a_scale_is_judged_and_edited_as_a_scale() {
    let gate = Gate::over(webhooks(), &[Fleet::crd()]).await;
    gate.of::<Fleet>().create(&PostParams::default(), &fleet("a")).await.unwrap();
    let scale = |replicas: i32| json!({"spec": {"replicas": replicas}});

    let (code, _, refused) = gate.send("PATCH", "fleets/a/scale", MERGE, &scale(11)).await;
    assert_eq!(code, 422, "{refused}");
    assert!(refused["message"].as_str().unwrap().ends_with("denied the request: 2 to 12 is too many"), "{refused}");
    assert_eq!(refused["details"]["causes"][0]["message"], "Scale of fleets");

    let (code, _, scaled) = gate.send("PATCH", "fleets/a/scale", MERGE, &scale(3)).await;
    assert_eq!((code, &scaled["kind"], &scaled["spec"]["replicas"]), (200, &json!("Scale"), &json!(4)));
    assert_eq!(gate.of::<Fleet>().get("a").await.unwrap().spec.replicas, 4);
}

#[tokio::test]
async fn a_status_is_reviewed_at_its_subresource_only() {
    let gate = Gate::over(webhooks(), &[Fleet::crd()]).await;
    gate.of::<Fleet>().create(&PostParams::default(), &fleet("a")).await.unwrap();
    let status = |status: Value| json!({"status": status});

    let (code, _, written) = gate.send("PATCH", "fleets/a/status", MERGE, &status(json!({"replicas": 2}))).await;
    assert_eq!((code, &written["status"]), (200, &json!({"replicas": 2, "phase": "Afloat"})));
    let lost = status(json!({"phase": "Lost"}));
    let (code, _, refused) = gate.send("PATCH", "fleets/a/status", MERGE, &lost).await;
    assert_eq!((code, &refused["details"]["causes"][0]["field"]), (409, &json!("status.phase")));
    assert!(refused["message"].as_str().unwrap().ends_with("status of Fleet was Some(\"Afloat\")"), "{refused}");
    assert_eq!(gate.send("PATCH", "fleets/a", MERGE, &lost).await.0, 200, "the webhook is for the subresource alone");
}

/// D9
#[tokio::test]
async fn the_status_of_an_object_being_deleted_is_not_judged() {
    let gate = Gate::over(webhooks(), &[Fleet::crd()]).await;
    let fleets = gate.of::<Fleet>();
    let mut held = fleet("a");
    held.metadata.finalizers = Some(vec!["demo.example/hold".into()]);
    fleets.create(&PostParams::default(), &held).await.unwrap();
    let lost = json!({"status": {"phase": "Lost"}});
    let claim = json!({"metadata": {"deletionTimestamp": "2026-11-21T00:00:00Z"}, "status": {"phase": "Lost"}});
    for (what, change) in [("it is judged as long as it stays", &lost), ("a claim is no deletion", &claim)] {
        assert_eq!(gate.send("PATCH", "fleets/a/status", MERGE, change).await.0, 409, "{what}");
    }
    fleets.delete("a", &DeleteParams::default()).await.unwrap();
    let (code, _, written) = gate.send("PATCH", "fleets/a/status", MERGE, &lost).await;
    assert_eq!((code, &written["status"]["phase"]), (200, &json!("Lost")));
    assert_eq!(gate.send("PATCH", "fleets/a", MERGE, &json!({"metadata": {"finalizers": null}})).await.0, 200);
    assert!(fleets.get_opt("a").await.unwrap().is_none());
}

/// K1: connect.
#[tokio::test]
async fn a_connection_and_an_eviction_are_judged_by_their_options() {
    let gate = Gate::over(webhooks(), &[Fleet::crd()]).await;
    let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": {
        "containers": [{"name": "app", "image": "i"}, {"name": "side", "image": "i"}]}}))
    .unwrap();
    gate.of::<Pod>().create(&PostParams::default(), &pod).await.unwrap();

    let exec = async |command: &str| {
        gate.send("POST", &format!("pods/p/exec?container=side&command={command}"), "text/plain", &Value::Null).await
    };
    let (code, _, refused) = exec("sh").await;
    assert_eq!(code, 403);
    // The mutating webhook came first, and chose another container.
    assert!(refused["message"].as_str().unwrap().ends_with("denied the request: no shell in p/app"), "{refused}");
    let (code, _, allowed) = exec("ls").await;
    assert!(code >= 400 && !allowed.to_string().contains("admission webhook"), "no node to connect to yet: {allowed}");

    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    let (code, _, refused) = gate.send("POST", "pods/p/eviction", "application/json", &eviction).await;
    assert_eq!(code, 409);
    assert!(refused["message"].as_str().unwrap().ends_with("p stays"), "{refused}");
}
