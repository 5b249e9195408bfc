//! P5: the charts in a cluster: installed, upgraded, rolled back and removed, with the operator's process under the accounts that
//! they installed.

use std::collections::BTreeSet;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use portcullis_charts::{CRDS, Helm, OPERATOR, chart, inventory, repository};
use portcullis_testing::{ControlPlane, wait_until};
use serde_json::json;

use super::OPERATOR_RELEASE;
use super::process::{PATIENCE, Process, arguments};

const RELEASE: &str = OPERATOR_RELEASE[0];
const NAMESPACE: &str = OPERATOR_RELEASE[1];

/// Starts the operator under the ServiceAccount that the chart installed, with the arguments of its Deployment.
async fn start(cluster: &ControlPlane) -> Process {
    let user = format!("system:serviceaccount:{NAMESPACE}:{RELEASE}");
    let groups = ["system:serviceaccounts", &format!("system:serviceaccounts:{NAMESPACE}")];
    let deployments: Api<Deployment> = Api::namespaced(cluster.admin(), NAMESPACE);
    let deployment = serde_json::to_value(deployments.get(RELEASE).await.unwrap()).unwrap();
    let arguments = arguments(&[json!({ "kind": "Deployment", "spec": deployment["spec"] })], "Deployment");
    Process::start("mcp-operator", NAMESPACE, &arguments, &cluster.kubeconfig_as(&user, &groups))
}

/// The bundles and the failure policies of the webhooks.
async fn webhooks(cluster: &ControlPlane) -> Vec<(Option<Vec<u8>>, String)> {
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(cluster.admin());
    let configuration = configurations.get("mcp-operator-validating").await.unwrap();
    let webhooks = configuration.webhooks.unwrap().into_iter();
    webhooks.map(|it| (it.client_config.ca_bundle.map(|bundle| bundle.0), it.failure_policy.unwrap())).collect()
}

/// Whether what only the earlier charts have is there, and what only the current ones have: of the operator, and of a kind.
async fn parts(cluster: &ControlPlane) -> [bool; 3] {
    let objects = inventory(cluster.admin()).await;
    let kinds: Api<CustomResourceDefinition> = Api::all(cluster.admin());
    let kind = kinds.get("mcptoolconfigs.toolhive.stacklok.dev").await.unwrap();
    let columns =
        kind.spec.versions.into_iter().flat_map(|version| version.additional_printer_columns.unwrap_or_default());
    [
        objects.contains(&format!("ConfigMap {NAMESPACE}/mcp-operator-former")),
        objects.contains(&format!("NetworkPolicy {NAMESPACE}/{RELEASE}")),
        columns.into_iter().any(|column| column.name == "Valid"),
    ]
}

fn tool_configs(cluster: &ControlPlane) -> Api<DynamicObject> {
    let kind = kube::core::GroupVersionKind::gvk("toolhive.stacklok.dev", "v1beta1", "MCPToolConfig");
    Api::namespaced_with(cluster.admin(), "default", &ApiResource::from_gvk_with_plural(&kind, "mcptoolconfigs"))
}

/// Waits for a condition that only the controller of its kind sets, under its own account.
async fn valid(cluster: &ControlPlane, name: &str) {
    wait_until(&format!("{name} to be Valid"), PATIENCE, || async {
        let status = tool_configs(cluster).get(name).await.unwrap().data;
        let conditions = status["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|it| it["type"] == "Valid" && it["status"] == "True").then_some(())
    })
    .await;
}

async fn create_tool_config(cluster: &ControlPlane, name: &str) {
    let object = json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPToolConfig", "metadata": { "name": name },
        "spec": { "toolsFilter": ["echo"] },
    });
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let tool_configs = tool_configs(cluster);
    wait_until("the kind to be served", PATIENCE, || async {
        tool_configs.create(&PostParams::default(), &object).await.ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_installation_survives_upgrade_and_rollback() {
    let cluster = &ControlPlane::builder().controller_manager().start().await.unwrap();
    let helm = Helm::new().with_kubeconfig(cluster.kubeconfig_path());
    let fixture = |name: &str| repository(&format!("tests/charts/fixtures/{name}-0.0.1.tgz")).display().to_string();
    let current = |name: &str| chart(name).display().to_string();
    let before = inventory(cluster.admin()).await;

    // The charts of an earlier version.
    helm.run(&["install", CRDS, &fixture(CRDS), "--namespace", NAMESPACE, "--create-namespace"]).unwrap();
    // No node runs its Service, so the API server reaches no webhook.
    let few = helm.values(&json!({ "replicas": 1, "webhooks": { "failurePolicy": "Ignore", "timeoutSeconds": 1 } }));
    let notes =
        helm.run(&["install", RELEASE, &fixture(OPERATOR), "--namespace", NAMESPACE, "--values", &few]).unwrap();
    assert!(notes.contains("rollout status deployment/mcp-operator"), "{notes}");
    let mut process = start(cluster).await;
    process.ready().await;
    create_tool_config(cluster, "first").await;
    valid(cluster, "first").await;
    let published = webhooks(cluster).await;
    assert!(published.iter().all(|(bundle, policy)| bundle.is_some() && policy == "Ignore"), "{published:?}");

    assert_eq!(parts(cluster).await, [true, false, false]);

    // Bundles are the operator's, through whatever helm does.
    helm.run(&["upgrade", CRDS, &current(CRDS), "--namespace", NAMESPACE]).unwrap();
    let many = helm.values(&json!({ "replicas": 3, "webhooks": { "failurePolicy": "Fail" } }));
    let operator_chart = current(OPERATOR);
    let upgrade = ["upgrade", RELEASE, &operator_chart, "--namespace", NAMESPACE, "--values", &many];
    let notes_of_upgrade = helm.run(&upgrade).unwrap();
    assert!(notes_of_upgrade.contains("rollout status deployment/mcp-operator"), "{notes_of_upgrade}");
    assert_eq!(parts(cluster).await, [false, true, true]);
    let upgraded = webhooks(cluster).await;
    assert!(upgraded.iter().all(|(_, policy)| policy == "Fail"));
    let bundles = |webhooks: &[(Option<Vec<u8>>, String)]| webhooks.iter().map(|it| it.0.clone()).collect::<Vec<_>>();
    assert_eq!(bundles(&upgraded)[..], bundles(&published)[..]);
    helm.run(&["rollback", RELEASE, "1", "--namespace", NAMESPACE]).unwrap();
    assert_eq!(webhooks(cluster).await, published);
    // Kinds are a release of their own, and stay as they are.
    assert_eq!(parts(cluster).await, [true, false, true]);
    process.ready().await;
    create_tool_config(cluster, "second").await;
    valid(cluster, "second").await;
    process.stop().await;

    helm.run(&["uninstall", RELEASE, "--namespace", NAMESPACE]).unwrap();
    helm.run(&["uninstall", CRDS, "--namespace", NAMESPACE]).unwrap();
    let left: BTreeSet<String> = inventory(cluster.admin()).await.difference(&before).cloned().collect();
    let crds: Api<CustomResourceDefinition> = Api::all(cluster.admin());
    let kinds = crds.list(&ListParams::default()).await.unwrap().items;
    let kinds = kinds.iter().map(|crd| format!("CustomResourceDefinition /{}", crd.name_any()));
    let documented = [
        "MCPToolConfig default/first",
        "MCPToolConfig default/second",
        "ConfigMap mcp-operator-system/kube-root-ca.crt",
        "Lease mcp-operator-system/mcp-operator-leader",
        "Namespace /mcp-operator-system",
        "Secret mcp-operator-system/mcp-operator-digest",
        "Secret mcp-operator-system/mcp-operator-webhook-tls",
        "Secret mcp-operator-system/mcp-operator-webhook-tls-ca",
        "ServiceAccount mcp-operator-system/default",
    ];
    assert_eq!(left, kinds.chain(documented.map(str::to_owned)).collect());
    // The command in the notes names these Secrets.
    for secret in documented.iter().filter_map(|object| object.strip_prefix("Secret mcp-operator-system/")) {
        assert!(notes.contains(&format!("secret/{secret}")), "{notes}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kinds_go_with_their_chart_only_where_a_value_says_so() {
    let cluster = ControlPlane::shared().await;
    let helm = Helm::new().with_kubeconfig(cluster.kubeconfig_path());
    let chart = chart(CRDS).display().to_string();
    helm.run(&["install", CRDS, &chart, "--namespace", "default"]).unwrap();
    create_tool_config(cluster, "mine").await;
    helm.run(&["uninstall", CRDS, "--namespace", "default"]).unwrap();
    assert!(tool_configs(cluster).get_opt("mine").await.unwrap().is_some());
    // A later installation finds the objects again.
    helm.run(&["install", CRDS, &chart, "--namespace", "default", "--take-ownership", "--set", "keep=false"]).unwrap();
    assert!(tool_configs(cluster).get_opt("mine").await.unwrap().is_some());
    helm.run(&["uninstall", CRDS, "--namespace", "default", "--wait"]).unwrap();
    let crds: Api<CustomResourceDefinition> = Api::all(cluster.admin());
    wait_until("the kinds to be gone", PATIENCE, || async {
        let left = crds.list(&ListParams::default()).await.unwrap().items;
        (!left.iter().any(|crd| crd.spec.group == "toolhive.stacklok.dev")).then_some(())
    })
    .await;
}
