//! The control plane answers, and the helpers do what they say.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, DynamicObject, EvictParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind, ObjectMeta};
use kube::{Api, Client};
use portcullis_testing::{ControlPlane, Grant, KUBERNETES_VERSION, OperatorBinary, wait_until};
use serde_json::json;

fn config_map(name: &str) -> ConfigMap {
    ConfigMap { metadata: ObjectMeta { name: Some(name.to_owned()), ..Default::default() }, ..Default::default() }
}

fn rule(resources: &[&str], verbs: &[&str]) -> PolicyRule {
    let list = |items: &[&str]| items.iter().map(|item| (*item).to_owned()).collect::<Vec<_>>();
    PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(list(resources)),
        verbs: list(verbs),
        ..Default::default()
    }
}

fn refused<T: std::fmt::Debug>(result: kube::Result<T>) -> bool {
    matches!(result, Err(kube::Error::Api(status)) if status.code == 403)
}

#[tokio::test]
async fn a_test_has_a_namespace_of_its_own_on_the_api_server() {
    let cluster = ControlPlane::shared().await;
    assert_eq!(cluster.admin().apiserver_version().await.unwrap().git_version, KUBERNETES_VERSION);
    let (one, two) = (cluster.namespace("one").await, cluster.namespace("one").await);
    assert_ne!(one, two);
    let maps: Api<ConfigMap> = Api::namespaced(cluster.admin(), &one);
    maps.create(&PostParams::default(), &config_map("settings")).await.unwrap();
    let others: Api<ConfigMap> = Api::namespaced(cluster.admin(), &two);
    assert!(others.get_opt("settings").await.unwrap().is_none());
}

#[tokio::test]
async fn a_crd_is_served_when_install_returns() {
    let cluster = ControlPlane::shared().await;
    let crd: CustomResourceDefinition = serde_json::from_value(json!({
        "metadata": {"name": "gates.demo.example"},
        "spec": {
            "group": "demo.example", "scope": "Namespaced", "names": {"kind": "Gate", "plural": "gates", "singular": "gate"},
            "versions": (["v1", "v2"].map(|name| json!({
                "name": name, "served": true, "storage": name == "v2",
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }))),
        },
    }))
    .unwrap();
    cluster.install_crds(std::slice::from_ref(&crd)).await;
    cluster.install_crds(&[crd]).await;
    for version in ["v1", "v2"] {
        let resource =
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("demo.example", version, "Gate"), "gates");
        let gates: Api<DynamicObject> = Api::all_with(cluster.admin(), &resource);
        assert_eq!(gates.list(&ListParams::default()).await.unwrap().items.len(), 0);
    }
}

#[tokio::test]
async fn a_user_bound_to_rules_is_refused_beyond_them() {
    let cluster = ControlPlane::shared().await;
    let (inside, outside) = (cluster.namespace("in").await, cluster.namespace("out").await);
    let everywhere = [rule(&["configmaps"], &["get"])];
    let here = [rule(&["configmaps"], &["create"]), rule(&["configmaps/status"], &["patch"])];
    let user = cluster
        .user_with("op", &[Grant::ClusterRules(&everywhere), Grant::Rules { namespace: &inside, rules: &here }])
        .await;
    let maps = |client: &Client, namespace: &str| Api::<ConfigMap>::namespaced(client.clone(), namespace);
    let (mine, other) = (maps(&user.client, &inside), maps(&user.client, &outside));
    mine.create(&PostParams::default(), &config_map("a")).await.unwrap();
    mine.get("a").await.unwrap();
    assert!(other.get_opt("a").await.unwrap().is_none());
    assert!(refused(other.create(&PostParams::default(), &config_map("a")).await));
    assert!(refused(mine.delete("a", &DeleteParams::default()).await));
    assert!(refused(mine.list(&ListParams::default()).await));
}

#[tokio::test]
async fn a_user_may_be_bound_to_a_role_that_is_shipped() {
    let cluster = ControlPlane::shared().await;
    let namespace = cluster.namespace("shipped").await;
    let metadata = ObjectMeta { name: Some(format!("{namespace}-viewer")), ..Default::default() };
    let shipped = ClusterRole { metadata, rules: Some(vec![rule(&["configmaps"], &["list"])]), ..Default::default() };
    let shipped = Api::all(cluster.admin()).create(&PostParams::default(), &shipped).await.unwrap();
    let user = cluster.user_with("viewer", &[Grant::ClusterRole(&shipped.metadata.name.unwrap())]).await;
    let maps: Api<ConfigMap> = Api::namespaced(user.client, &namespace);
    maps.list(&ListParams::default()).await.unwrap();
    assert!(refused(maps.create(&PostParams::default(), &config_map("a")).await));
}

#[tokio::test]
async fn a_user_is_in_each_of_its_groups() {
    let cluster = ControlPlane::shared().await;
    let client = cluster.client_as("somebody", &["nobodies", "system:masters"]);
    Api::<ConfigMap>::default_namespaced(client).list(&ListParams::default()).await.unwrap();
    let client = cluster.client_as("somebody", &["nobodies", "others"]);
    assert!(refused(Api::<ConfigMap>::default_namespaced(client).list(&ListParams::default()).await));
}

#[tokio::test]
async fn a_kubeconfig_file_makes_the_same_client() {
    let cluster = ControlPlane::shared().await;
    for (path, may) in [(cluster.kubeconfig_path(), true), (cluster.kubeconfig_as("some:body/else", &[]), false)] {
        let kubeconfig = Kubeconfig::read_from(&path).unwrap();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        let maps: Api<ConfigMap> = Api::default_namespaced(Client::try_from(config).unwrap());
        assert_eq!(!refused(maps.list(&ListParams::default()).await), may, "{}", path.display());
    }
}

#[tokio::test]
async fn writes_are_counted_exactly() {
    let cluster = ControlPlane::shared().await;
    let namespace = cluster.namespace("audit").await;
    let rules = [rule(&["configmaps"], &["create", "get", "list", "patch", "delete"])];
    let user = cluster.client_with_rules("writer", &rules).await;
    let maps: Api<ConfigMap> = Api::namespaced(user.client.clone(), &namespace);
    let log = cluster.audit();

    let before = log.mark();
    for index in 0..200 {
        maps.create(&PostParams::default(), &config_map(&format!("map-{index}"))).await.unwrap();
        let seen = log.writes_by(&user.name, before).await;
        assert_eq!(seen.len(), index + 1, "each write is in the log as soon as its answer is here");
    }
    assert_eq!(log.writes_by("nobody", before).await, []);

    let mark = log.mark();
    maps.list(&ListParams::default()).await.unwrap();
    let dry = PatchParams { dry_run: true, ..PatchParams::apply("me") };
    maps.patch("map-0", &dry, &Patch::Apply(config_map("map-0"))).await.unwrap();
    maps.delete("map-0", &DeleteParams::default()).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(user.client.clone(), &namespace);
    assert!(refused(pods.evict("map-1", &EvictParams::default()).await));
    let shown: Vec<String> = log.writes_by(&user.name, mark).await.iter().map(ToString::to_string).collect();
    let line = |rest: String| format!("{} {rest}", user.name);
    assert_eq!(
        shown,
        [
            line(format!("patch configmaps {namespace}/map-0: 200 (dry run)")),
            line(format!("delete configmaps {namespace}/map-0: 200")),
            line(format!("create pods/eviction {namespace}/map-1: 403")),
        ]
    );
}

#[tokio::test]
#[should_panic(expected = "waited 50ms in vain for pigs to fly")]
async fn a_wait_in_vain_names_what_it_waited_for() {
    wait_until("pigs to fly", Duration::from_millis(50), || async { None::<()> }).await;
}

#[tokio::test]
#[should_panic(expected = "waited 2s in vain for settings: its key; last seen: ConfigMap")]
async fn a_wait_for_an_object_shows_it_as_it_was_last() {
    let cluster = ControlPlane::shared().await;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.admin(), &cluster.namespace("wait").await);
    maps.create(&PostParams::default(), &config_map("settings")).await.unwrap();
    let has_key = |map: &ConfigMap| map.data.is_some();
    portcullis_testing::wait_for_object(&maps, "settings", "its key", Duration::from_secs(2), has_key).await;
}

/// The message is all that a reader of a failed CI run has.
#[tokio::test]
async fn an_operator_that_is_never_ready_fails_the_test_with_its_log() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("operator");
    let script = format!(
        r##"#!/bin/sh
case "$1 $2" in
"generate rbac") echo '{{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {{"name": "op", "namespace": "'$4'"}}}}' ;;
"generate "*) echo "# Nothing to apply." ;;
run*) echo $$ >{}; echo "error: no luck" >&2; exit 3 ;;
esac
"##,
        folder.path().join("pid").display()
    );
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
    let install = async move { OperatorBinary::new(program).install(ControlPlane::shared().await).await };
    let panic = tokio::spawn(install).await.expect_err("it fails").into_panic();
    let said = panic.downcast_ref::<String>().unwrap();
    for part in ["operator ended before it was ready (exit status: 3)", "the end of its log:\nerror: no luck"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let id = std::fs::read_to_string(folder.path().join("pid")).unwrap();
    assert!(!Path::new("/proc").join(id.trim()).exists(), "process {id} is left");
}
