//! `examples/plain-controller`: a controller without an operator and without webhooks.

use std::process::Stdio;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use portcullis_embedding::{PATIENCE, built, ended};
use portcullis_testing::{ControlPlane, Grant, wait_until};
use serde_json::json;
use tokio::process::Command;

fn rule(group: &str, resource: &str, verbs: &[&str]) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(vec![resource.to_owned()]),
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        ..PolicyRule::default()
    }
}

#[tokio::test]
async fn a_plain_controller_works_with_the_rights_of_its_readme() {
    let (cluster, binaries) = tokio::join!(ControlPlane::shared(), built("plain-controller"));
    let program = binaries.join("plain-controller");
    let printed = Command::new(&program).arg("crd").env_clear().output().await.unwrap();
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    cluster.install_crds(&[serde_json::from_slice(&printed.stdout).unwrap()]).await;

    let namespace = cluster.namespace("plain").await;
    let rules = [
        rule("plain.example", "configmapgenerators", &["get", "list", "watch"]),
        rule("plain.example", "configmapgenerators/finalizers", &["update"]),
        rule("", "configmaps", &["get", "list", "watch", "create", "patch", "delete"]),
    ];
    let user = cluster.user_with("plain-controller", &[Grant::Rules { namespace: &namespace, rules: &rules }]).await;
    let controller = Command::new(&program)
        .env_clear()
        .env("KUBECONFIG", &user.kubeconfig)
        .args(["run", "--namespaces", &namespace])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();

    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("plain.example", "v1", "ConfigMapGenerator"));
    let generators: Api<DynamicObject> = Api::namespaced_with(cluster.admin(), &namespace, &kind);
    let generator = json!({
        "apiVersion": "plain.example/v1", "kind": "ConfigMapGenerator", "metadata": { "name": "one" },
        "spec": { "content": "blue" },
    });
    let owner = generators.patch("one", &PatchParams::apply("test"), &Patch::Apply(&generator)).await.unwrap();

    let maps: Api<ConfigMap> = Api::namespaced(cluster.admin(), &namespace);
    let child = || async { maps.get_opt("one").await.unwrap() };
    let first = wait_until("the ConfigMap of the generator", PATIENCE, child).await;
    assert_eq!(first.data.unwrap()["content"], "blue");
    let owners = first.metadata.owner_references.unwrap();
    assert_eq!((&*owners[0].kind, Some(&owners[0].uid)), ("ConfigMapGenerator", owner.metadata.uid.as_ref()));

    maps.delete("one", &DeleteParams::default()).await.unwrap();
    let again = wait_until("the ConfigMap to be made again", PATIENCE, child).await;
    assert_ne!(again.metadata.uid, first.metadata.uid);

    let log = ended(controller).await;
    assert_eq!(log.matches("wrote the ConfigMap").count(), 2, "{log}");
}
