//! The MCP operator, installed as its users install it.

use std::path::Path;

use portcullis_charts::{CRDS, Helm, OPERATOR, chart, repository};
use portcullis_testing::wait_until;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::namespace::pods_of;
use crate::node::{DEADLINE, KUBECONFIG, Node, kubectl, try_kubectl};

/// The release's name, and with it that of the Deployment.
pub const RELEASE: &str = "mcp-operator";
/// The namespace of the release.
pub const OPERATOR_NAMESPACE: &str = "mcp-operator-system";

/// Tests of one process install one at a time; all but the first find everything as it should be.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// Installs the charts, or brings what is installed to their state, and returns when the operator serves.
///
/// # Panics
/// When it does not come to that.
pub async fn install_operator() {
    let _one = ONE_AT_A_TIME.lock().await;
    let helm = helm();
    // A test's policy has pods of one namespace run the image from there.
    let values = json!({ "runner": { "imageMirrors": ["mirror.local"] } });
    for (name, values) in [(CRDS, json!({})), (OPERATOR, values)] {
        release(&helm, "upgrade", name, &chart(name), &values).await;
    }
}

/// Removes the operator with all that its users have of it, as docs/src/how-to/install.md says: the kinds while it runs, as some objects hold
/// a finalizer, then the releases, and the namespace with what the operator made itself.
///
/// # Panics
/// When one of that fails.
pub fn uninstall_operator() {
    kubectl(&["delete", "crd", "-l", "app.kubernetes.io/name=mcp-operator", "--timeout=2m"]);
    let helm = helm();
    for release in [RELEASE, CRDS] {
        uninstall(&helm, release);
    }
    kubectl(&["delete", "namespace", OPERATOR_NAMESPACE, "--ignore-not-found", "--timeout=2m"]);
}

/// Uninstalls a release, if it is there, and returns when what it had is gone.
///
/// # Panics
/// With what helm says when that fails.
pub fn uninstall(helm: &Helm, release: &str) {
    let arguments =
        ["uninstall", release, "--namespace", OPERATOR_NAMESPACE, "--ignore-not-found", "--wait", "--timeout", "3m"];
    helm.run(&arguments).unwrap_or_else(|error| panic!("helm uninstall {release}: {error}"));
}

/// Helm, with the node's cluster.
pub fn helm() -> Helm {
    Helm::new().with_kubeconfig(Path::new(KUBECONFIG).to_owned())
}

/// The folder of the charts that were there before these: tests/charts/fixtures/README.md.
pub fn former_chart(name: &str) -> std::path::PathBuf {
    repository(&format!("tests/charts/fixtures/{name}-0.0.1.tgz"))
}

/// Installs or upgrades the release of a chart, with the images that are on the node, and returns when all of it is ready and the API
/// server reaches the webhooks.
///
/// # Panics
/// With what helm says when that fails.
pub async fn release(helm: &Helm, verb: &str, name: &str, chart: &Path, values: &Value) {
    let version = env!("CARGO_PKG_VERSION");
    let mut all = if name == OPERATOR {
        json!({ "image": { "tag": version }, "runner": { "image": { "tag": version } } })
    } else {
        json!({})
    };
    if let (Some(all), Some(values)) = (all.as_object_mut(), values.as_object()) {
        all.extend(values.clone());
    }
    let (release, chart, values) =
        (if name == OPERATOR { RELEASE } else { name }, chart.display().to_string(), helm.values(&all));
    // An upgrade takes back fields that others changed.
    let more: &[&str] = if verb == "upgrade" { &["--install", "--force-conflicts"] } else { &[] };
    let arguments = [
        verb,
        release,
        &chart,
        "--values",
        &values,
        "--namespace",
        OPERATOR_NAMESPACE,
        "--create-namespace",
        "--wait",
        "--timeout",
        "3m",
    ];
    let done = tokio::task::block_in_place(|| helm.run(&[&arguments[..], more].concat()));
    done.unwrap_or_else(|error| panic!("helm {verb} {release}: {error}"));
    if name == OPERATOR {
        reached().await;
    }
}

/// The names of the operator's pods.
///
/// # Panics
/// When it is not installed.
pub async fn operator_pods(node: &Node) -> Vec<String> {
    pods_of(&node.client, OPERATOR_NAMESPACE, RELEASE).await
}

/// Returns when an object is refused by a webhook: kube-proxy may take up a Service after its pods are ready.
///
/// # Panics
/// When that does not come about.
pub async fn reached() {
    let refused = repository("examples/refused/by-webhook.yaml").display().to_string();
    wait_until("the API server to reach the webhooks", DEADLINE, || async {
        let said = try_kubectl(&["create", "--dry-run=server", "--filename", &refused]).err()?;
        said.contains("is invalid").then_some(())
    })
    .await;
}
