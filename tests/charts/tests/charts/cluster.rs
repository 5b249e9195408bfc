//! P5: the charts in a cluster: installed, upgraded, rolled back and removed, with the operator's process under the accounts that
//! they installed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, WebhookClientConfig,
};
use kube::api::{ApiResource, DynamicObject, ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use portcullis_charts::{CRDS, Helm, OPERATOR, chart, inventory, operator, repository};
use portcullis_testing::{ControlPlane, wait_until};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

const RELEASE: &str = "mcp-operator";
const NAMESPACE: &str = "mcp-operator-system";
const DEADLINE: Duration = Duration::from_mins(3);

/// The operator's process, under the ServiceAccount that the chart installed, with the arguments of its Deployment.
struct Operator {
    process: Child,
    health: SocketAddr,
}

impl Operator {
    fn start(cluster: &ControlPlane, folder: &Path, arguments: &[String]) -> Self {
        let [webhooks, health] = [(); 2].map(|()| TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap());
        let user = format!("system:serviceaccount:{NAMESPACE}:{RELEASE}");
        let groups = ["system:serviceaccounts", &format!("system:serviceaccounts:{NAMESPACE}"), "system:authenticated"];
        let log = std::fs::File::create(folder.join("operator.log")).unwrap();
        let process = Command::new(operator())
            .args(arguments)
            .args(["--namespace", NAMESPACE, "--bind", &webhooks.to_string(), "--health-bind", &health.to_string()])
            .arg("--kubeconfig")
            .arg(cluster.kubeconfig_as(&user, &groups))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self { process, health }
    }

    /// Returns when it says that it serves.
    async fn ready(&mut self, folder: &Path) {
        let log = || std::fs::read_to_string(folder.join("operator.log")).unwrap();
        let ended = async {
            let status = self.process.wait().await.unwrap();
            panic!("the operator ended ({status}):\n{}", log());
        };
        tokio::select! {
            () = wait_until("the operator to be ready", DEADLINE, || answers(self.health)) => {}
            () = ended => {}
        }
    }

    async fn stop(mut self) {
        let pid = self.process.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());
        assert!(tokio::time::timeout(DEADLINE, self.process.wait()).await.unwrap().unwrap().success());
    }
}

async fn answers(health: SocketAddr) -> Option<()> {
    let mut stream = TcpStream::connect(health).await.ok()?;
    stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.ok()?;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.ok()?;
    (&answer == b"HTTP/1.1 200").then_some(())
}

fn installed(cluster: &ControlPlane) -> Helm {
    Helm::new().with_kubeconfig(cluster.kubeconfig_path())
}

/// The arguments in the Deployment.
async fn arguments(cluster: &ControlPlane) -> Vec<String> {
    let deployments: Api<k8s_openapi::api::apps::v1::Deployment> = Api::namespaced(cluster.admin(), NAMESPACE);
    let deployment = deployments.get(RELEASE).await.unwrap();
    deployment.spec.unwrap().template.spec.unwrap().containers.remove(0).args.unwrap()
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
    let former: Api<ConfigMap> = Api::namespaced(cluster.admin(), NAMESPACE);
    let policies: Api<NetworkPolicy> = Api::namespaced(cluster.admin(), NAMESPACE);
    let kinds: Api<CustomResourceDefinition> = Api::all(cluster.admin());
    let kind = kinds.get("mcptoolconfigs.toolhive.stacklok.dev").await.unwrap();
    let columns =
        kind.spec.versions.into_iter().flat_map(|version| version.additional_printer_columns.unwrap_or_default());
    [
        former.get_opt("mcp-operator-former").await.unwrap().is_some(),
        policies.get_opt(RELEASE).await.unwrap().is_some(),
        columns.into_iter().any(|column| column.name == "Valid"),
    ]
}

fn tool_configs(cluster: &ControlPlane) -> Api<DynamicObject> {
    let kind = kube::core::GroupVersionKind::gvk("toolhive.stacklok.dev", "v1beta1", "MCPToolConfig");
    Api::namespaced_with(cluster.admin(), "default", &ApiResource::from_gvk_with_plural(&kind, "mcptoolconfigs"))
}

/// Waits for a condition that only the controller of its kind sets, under its own account.
async fn valid(cluster: &ControlPlane, name: &str) {
    wait_until(&format!("{name} to be Valid"), DEADLINE, || async {
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
    wait_until("the kind to be served", DEADLINE, || async {
        tool_configs.create(&PostParams::default(), &object).await.ok()
    })
    .await;
}

/// What helm is told of the operator here: no node runs its Service, so the API server reaches no webhook.
fn values(helm: &Helm, more: &Value) -> String {
    let mut values = json!({ "webhooks": { "failurePolicy": "Ignore", "timeoutSeconds": 1 } });
    values.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    helm.values(&values)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_installation_works_through_upgrade_and_rollback_and_leaves_what_is_documented() {
    let cluster = &ControlPlane::builder().controller_manager().start().await.unwrap();
    let (helm, folder) = (installed(cluster), tempfile::tempdir().unwrap());
    let fixture = |name: &str| repository(&format!("tests/charts/fixtures/{name}-0.0.1.tgz")).display().to_string();
    let current = |name: &str| chart(name).display().to_string();
    let before = inventory(cluster.admin()).await;

    // The charts of an earlier version.
    helm.run(&["install", CRDS, &fixture(CRDS), "--namespace", NAMESPACE, "--create-namespace"]).unwrap();
    let few = values(&helm, &json!({ "replicas": 1 }));
    let notes =
        helm.run(&["install", RELEASE, &fixture(OPERATOR), "--namespace", NAMESPACE, "--values", &few]).unwrap();
    assert!(notes.contains("rollout status deployment/mcp-operator"), "{notes}");
    let mut process = Operator::start(cluster, folder.path(), &arguments(cluster).await);
    process.ready(folder.path()).await;
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
    process.ready(folder.path()).await;
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
    let helm = installed(cluster);
    let chart = chart(CRDS).display().to_string();
    helm.run(&["install", CRDS, &chart, "--namespace", "default"]).unwrap();
    create_tool_config(cluster, "mine").await;
    helm.run(&["uninstall", CRDS, "--namespace", "default"]).unwrap();
    assert!(tool_configs(cluster).get_opt("mine").await.unwrap().is_some());
    // Whoever installs it again has what was there.
    helm.run(&["install", CRDS, &chart, "--namespace", "default", "--take-ownership", "--set", "keep=false"]).unwrap();
    assert!(tool_configs(cluster).get_opt("mine").await.unwrap().is_some());
    helm.run(&["uninstall", CRDS, "--namespace", "default", "--wait"]).unwrap();
    let crds: Api<CustomResourceDefinition> = Api::all(cluster.admin());
    wait_until("the kinds to be gone", DEADLINE, || async {
        let left = crds.list(&ListParams::default()).await.unwrap().items;
        (!left.iter().any(|crd| crd.spec.group == "toolhive.stacklok.dev")).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_bundle_of_a_conversion_stays_through_an_upgrade_of_its_kind() {
    let cluster = ControlPlane::shared().await;
    let (helm, folder) = (installed(cluster), tempfile::tempdir().unwrap());
    // A chart of another operator, of which all but its values are generated.
    let chart = folder.path().display().to_string();
    std::fs::write(folder.path().join("Chart.yaml"), "{apiVersion: v2, name: entity-crds, version: 0.1.0}").unwrap();
    let values = json!({
        "keep": false, "webhooks": { "enabled": true }, "certificates": { "mode": "automatic" },
        "operator": { "release": "entity-operator", "namespace": "default" }, "commonLabels": {},
    });
    std::fs::write(folder.path().join("values.yaml"), values.to_string()).unwrap();
    let templates = folder.path().join("templates").display().to_string();
    entity_operator(&["generate", "crds", "--format", "helm", "--out", &templates]).await.unwrap();
    let release = ["entities", &chart, "--namespace", "default"];
    let place = ["--namespace", "default", "--kubeconfig", &cluster.kubeconfig_path().display().to_string()];
    entity_operator(&[&["certs", "ensure"], &place[..]].concat()).await.unwrap();

    // By server-side apply, and by the merge of three documents that Helm did before and may still be told to do.
    for server_side in ["--server-side=true", "--server-side=false"] {
        helm.run(&[&["install", server_side], &release[..]].concat()).unwrap();
        // Configurations of webhooks are not here, and it waits for them: the kind has its bundle before.
        let publish = [&["certs", "publish", "--timeout", "1h"], &place[..]].concat();
        let mut publishing = Command::new(example()).args(publish).kill_on_drop(true).spawn().unwrap();
        let published = wait_until("the kind to have its bundle", DEADLINE, || async {
            let (client_config, _) = conversion(cluster).await;
            client_config.ca_bundle.is_some().then_some(client_config)
        })
        .await;
        publishing.kill().await.unwrap();
        assert_eq!(published.service.as_ref().unwrap().name, "entity-operator-webhook");

        helm.run(&[&["upgrade", "--set", "commonLabels.team=a"], &release[..]].concat()).unwrap();
        let (upgraded, labels) = conversion(cluster).await;
        assert_eq!((&upgraded, labels["team"].as_str()), (&published, "a"), "{server_side}");
        helm.run(&["rollback", "entities", "1", "--namespace", "default"]).unwrap();
        let (back, labels) = conversion(cluster).await;
        assert_eq!((&back, labels.get("team")), (&published, None), "{server_side}");
        helm.run(&["uninstall", "entities", "--namespace", "default", "--wait"]).unwrap();
    }
}

/// The example's binary.
fn example() -> PathBuf {
    operator().with_file_name("entity-operator")
}

/// What it says when it fails.
async fn entity_operator(words: &[&str]) -> Result<(), String> {
    let output = Command::new(example()).args(words).output().await.unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// How the example's kind is converted, and its labels.
async fn conversion(cluster: &ControlPlane) -> (WebhookClientConfig, BTreeMap<String, String>) {
    let crds: Api<CustomResourceDefinition> = Api::all(cluster.admin());
    let crds = crds.list(&ListParams::default()).await.unwrap().items;
    let crd = crds.into_iter().find(|crd| crd.spec.group == "demo.example").unwrap();
    (crd.spec.conversion.unwrap().webhook.unwrap().client_config.unwrap(), crd.metadata.labels.unwrap())
}
