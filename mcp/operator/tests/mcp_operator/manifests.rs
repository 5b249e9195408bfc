//! K4, K5: what is committed under deploy/ is what the binary generates, and an API server takes all of it as it is.

use std::{path::Path, process::Command, time::Duration};

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams},
};
use portcullis_testing::{ControlPlane, wait_until};
use serde_json::{Value, json};

const NAMESPACE: &str = "mcp-operator-system";
const IMAGE: &str = concat!("localhost/portcullis/mcp-operator:", env!("CARGO_PKG_VERSION"));

fn generate(words: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_mcp-operator")).arg("generate").args(words).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn deployed(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(file);
    serde_saphyr::from_multiple(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn the_committed_manifests_are_what_is_generated() {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    // As the Makefile's `generate`.
    let flags = ["operator", "--image", IMAGE, "--format", "kustomize", "--check", "--out", deploy.to_str().unwrap()];
    generate(&flags);
}

/// Sends it as server-side apply does, checked against the schemas and admitted, but not stored.
async fn tries(cluster: &ControlPlane, object: &Value, flags: &[&str]) {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = text("/apiVersion").rsplit_once('/').unwrap_or(("", text("/apiVersion")));
    // The kinds of cert-manager are not in this cluster; entity-operator is installed beside it in a test of its own.
    if group == "cert-manager.io" {
        return;
    }
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, text("/kind")));
    let api: Api<DynamicObject> = match text("/metadata/namespace") {
        "" => Api::all_with(cluster.admin(), &resource),
        namespace => Api::namespaced_with(cluster.admin(), namespace, &resource),
    };
    let params = PatchParams { dry_run: true, ..PatchParams::apply("manifests").force().validation_strict() };
    let tried = api.patch(text("/metadata/name"), &params, &Patch::Apply(object)).await;
    assert!(tried.is_ok(), "{flags:?}: {} {}: {}", text("/kind"), text("/metadata/name"), tried.unwrap_err());
}

/// In a namespace in which nothing runs that the `restricted` Pod security standard forbids.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_takes_what_is_committed_and_every_target_in_every_mode() {
    // Its own: what is committed calls a Service that nobody answers, about every namespace.
    let cluster = ControlPlane::builder().controller_manager().start().await.unwrap();
    for (name, enforce) in [(NAMESPACE, "restricted"), ("team", "privileged")] {
        let labels = json!({"pod-security.kubernetes.io/enforce": enforce});
        let namespace = json!({"metadata": {"name": name, "labels": labels}});
        let namespace: Namespace = serde_json::from_value(namespace).unwrap();
        Api::all(cluster.admin()).create(&PostParams::default(), &namespace).await.unwrap();
    }
    let kustomization = deployed("kustomization.yaml").remove(0);
    let files = kustomization["resources"].as_array().unwrap().iter().map(|file| file.as_str().unwrap());
    let objects: Vec<Value> = files.flat_map(deployed).collect();
    let first = cluster.apply(&objects).await;
    let pods: Api<Pod> = Api::namespaced(cluster.admin(), NAMESPACE);
    let of_operator = ListParams::default().labels("app.kubernetes.io/name=mcp-operator");
    wait_until("two Pods that the standard allows", Duration::from_mins(2), || async {
        (pods.list(&of_operator).await.unwrap().items.len() == 2).then_some(())
    })
    .await;
    // Applied again, as GitOps tools do all the time, it changes no spec.
    for (before, after) in first.iter().zip(cluster.apply(&objects).await) {
        assert_eq!(before.metadata.generation, after.metadata.generation, "{}", after.name_any());
    }

    let modes: [&[&str]; 6] = [
        &[],
        &["--certificates", "cert-manager"],
        &["--certificates", "external"],
        &["--webhooks", "off"],
        &["--release", "other", "--namespace", "team", "--service-port", "8443", "--replicas", "1"],
        &["--release", "tenant", "--namespace", "team", "--restrict-to-namespace", "team"],
    ];
    for mode in modes {
        for what in ["crds", "webhooks", "rbac", "operator", "certificates"] {
            let flags = [&[what, "--image", IMAGE], mode].concat();
            let text = generate(&flags);
            if text.lines().all(|line| line.is_empty() || line.starts_with('#')) {
                continue;
            }
            for object in serde_saphyr::from_multiple::<Value>(&text).unwrap() {
                tries(&cluster, &object, &flags).await;
            }
        }
    }
    cluster.stop().await;
}
