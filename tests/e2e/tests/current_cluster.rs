//! `CLUSTER=current make demo`: the demo as a guest, in a cluster that is not its own.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::ListParams;
use kube::{Api, Resource, ResourceExt as _};
use portcullis_testing::{ControlPlane, wait_until};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

/// Kind, name and whether it has an owner: all that a guest could leave that is not in a namespace of its own.
async fn everything(cluster: &ControlPlane) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    add::<Namespace>(cluster, &mut found).await;
    add::<CustomResourceDefinition>(cluster, &mut found).await;
    add::<ClusterRole>(cluster, &mut found).await;
    add::<ValidatingWebhookConfiguration>(cluster, &mut found).await;
    add::<MutatingWebhookConfiguration>(cluster, &mut found).await;
    found
}

async fn add<K>(cluster: &ControlPlane, found: &mut BTreeSet<String>)
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + k8s_openapi::serde::de::DeserializeOwned,
{
    let listed = Api::<K>::all(cluster.admin()).list(&ListParams::default()).await.unwrap();
    found.extend(listed.iter().map(|object| format!("{} {}", K::kind(&()), object.name_any())));
}

fn demo(cluster: &ControlPlane, folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_demo"));
    command.arg("current").env("KUBECONFIG", cluster.kubeconfig_path()).env("TMPDIR", folder);
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().next().is_none()
}

// K6
#[tokio::test(flavor = "multi_thread")]
async fn a_guest_shows_the_same_and_leaves_nothing_however_it_ends() {
    let cluster = ControlPlane::builder().controller_manager().start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let before = everything(&cluster).await;

    let output = demo(&cluster, folder.path()).output().await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    for claim in [
        "refused by an enum",
        "refused by a CEL rule",
        "refused by the operator's admission webhook",
        "with a warning",
        "passed:",
        "mutated:",
        "denied:",
        "Everything is put in order",
    ] {
        assert!(text.contains(claim), "the demo does not show '{claim}':\n{text}");
    }
    assert_eq!(everything(&cluster).await, before);
    assert!(is_empty(folder.path()));

    // Ctrl-C, half way.
    let mut child = demo(&cluster, folder.path()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut said = String::new();
    while let Some(line) = lines.next_line().await.unwrap() {
        if line.contains("waiting for the cluster to call them") {
            let id = child.id().unwrap().to_string();
            assert!(Command::new("kill").args(["-INT", &id]).status().await.unwrap().success());
        }
        said.push_str(&line);
        said.push('\n');
    }
    assert_eq!(child.wait().await.unwrap().code(), Some(1), "{said}");
    assert!(said.contains("The demo stops here: interrupted"), "{said}");
    assert_eq!(everything(&cluster).await, before, "{said}");
    assert!(is_empty(folder.path()));

    // Where the kinds are somebody's, it does not begin.
    let crds: Api<CustomResourceDefinition> = Api::all(cluster.admin());
    let generate = Command::new(env!("CARGO_BIN_EXE_demo").replace("/demo", "/mcp-operator"))
        .args(["generate", "crds"])
        .output()
        .await
        .unwrap();
    let mut crd = portcullis_e2e::apply::documents(&String::from_utf8(generate.stdout).unwrap()).unwrap().remove(0);
    let name = crd["metadata"]["name"].as_str().unwrap().to_owned();
    for (labels, expected) in [
        (json!({}), "the cluster has "),
        (json!({ "portcullis.dev/demo": "true" }), "kubectl delete namespaces,crds -l portcullis.dev/demo"),
    ] {
        crd["metadata"]["labels"] = labels;
        cluster.install_crds(&[serde_json::from_value(crd.clone()).unwrap()]).await;
        let before = everything(&cluster).await;
        let output = demo(&cluster, folder.path()).output().await.unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(!output.status.success() && text.contains(expected), "{text}");
        assert_eq!(everything(&cluster).await, before);
        crds.delete(&name, &kube::api::DeleteParams::default()).await.unwrap();
        wait_until("the CRD to be gone", Duration::from_secs(30), || async {
            crds.get_opt(&name).await.unwrap().is_none().then_some(())
        })
        .await;
    }

    // Where no cluster answers, it says so in one sentence, and where it looked.
    let (server, kubeconfig) = (cluster.kubeconfig_path(), tempfile::NamedTempFile::new().unwrap());
    std::fs::copy(server, kubeconfig.path()).unwrap();
    let mut nowhere = demo(&cluster, folder.path());
    nowhere.env("KUBECONFIG", kubeconfig.path());
    cluster.stop().await;
    let output = nowhere.output().await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success() && text.contains("does not answer at https://"), "{text}");
    assert_eq!(text.matches("Connection refused").count(), 1, "{text}");
    assert!(!text.contains("1. "), "a chapter has begun:\n{text}");
    assert!(is_empty(folder.path()));
}

#[test]
fn a_word_that_names_no_cluster_is_refused() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_demo")).arg("mine").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success() && text.contains("CLUSTER=mine is neither 'own'"), "{text}");
}
