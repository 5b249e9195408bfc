//! `CLUSTER=current make demo`: the demo as a guest, in a cluster that is not its own.

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
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::Command;
use tokio::sync::{Mutex, MutexGuard, OnceCell};

/// A cluster for one guest at a time: it has the kinds in all of it.
async fn cluster() -> (&'static ControlPlane, MutexGuard<'static, ()>) {
    static ALONE: Mutex<()> = Mutex::const_new(());
    static CLUSTER: OnceCell<ControlPlane> = OnceCell::const_new();
    let alone = ALONE.lock().await;
    let start = || async { ControlPlane::builder().controller_manager().start().await.unwrap() };
    (CLUSTER.get_or_init(start).await, alone)
}

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
async fn a_guest_shows_the_same_and_leaves_nothing() {
    let (cluster, _alone) = cluster().await;
    let folder = tempfile::tempdir().unwrap();
    let before = everything(cluster).await;

    let output = demo(cluster, folder.path()).output().await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    for claim in [
        "running its controllers here too, with your rights",
        "refused by an enum",
        "refused by a CEL rule",
        "refused by the operator's admission webhook",
        "with a warning",
        "passed:",
        "mutated:",
        "denied:",
        "401, WWW-Authenticate: Bearer realm=",
        "Everything is put in order",
    ] {
        assert!(text.contains(claim), "the demo does not show '{claim}':\n{text}");
    }
    assert_eq!(everything(cluster).await, before);
    assert!(is_empty(folder.path()));

    // Where the kinds exist already, it does not begin.
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
        (json!({ "portcullis.dev/demo": "guest-1" }), "kubectl delete crds -l portcullis.dev/demo=guest-1"),
    ] {
        crd["metadata"]["labels"] = labels;
        cluster.install_crds(&[serde_json::from_value(crd.clone()).unwrap()]).await;
        let before = everything(cluster).await;
        let output = demo(cluster, folder.path()).output().await.unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(!output.status.success() && text.contains(expected), "{text}");
        assert_eq!(everything(cluster).await, before);
        crds.delete(&name, &kube::api::DeleteParams::default()).await.unwrap();
        wait_until("the CRD to be gone", Duration::from_mins(1), || async {
            crds.get_opt(&name).await.unwrap().is_none().then_some(())
        })
        .await;
    }

    // Where no cluster answers, it says so in one sentence, and where it looked.
    let kubeconfig = tempfile::NamedTempFile::new().unwrap();
    // The discard port has no listener.
    let there = std::fs::read_to_string(cluster.kubeconfig_path()).unwrap();
    std::fs::write(kubeconfig.path(), there.replace(cluster.url(), "https://127.0.0.1:9")).unwrap();
    let mut nowhere = demo(cluster, folder.path());
    nowhere.env("KUBECONFIG", kubeconfig.path());
    let output = nowhere.output().await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success() && text.contains("does not answer at https://"), "{text}");
    assert_eq!(text.matches("Connection refused").count(), 1, "{text}");
    assert!(!text.contains("1. "), "a chapter has begun:\n{text}");
    assert!(is_empty(folder.path()));
}

/// An event that ends a demo.
#[derive(Clone, Copy, Debug)]
enum Blow {
    /// A signal to its whole process group, as a terminal sends it.
    Group(&'static str),
    /// The reader ends.
    Pipe,
    /// Its processes of the operator are killed, and then Ctrl-C.
    Operator,
}

async fn kill(arguments: [&str; 3]) {
    assert!(Command::new("kill").args(arguments).status().await.unwrap().success(), "{arguments:?}");
}

/// The process ids of the operator that this demo has started: webhooks and controllers.
fn operator_of(demo: u32) -> Vec<u32> {
    let pids = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let is_operator = |pid: &u32| {
        let read = |what| std::fs::read_to_string(format!("/proc/{pid}/{what}")).unwrap_or_default();
        read("status").contains(&format!("PPid:\t{demo}\n")) && read("cmdline").contains("mcp-operator\0")
    };
    pids.filter(is_operator).collect()
}

/// Runs a demo up to the line that contains `at`, and returns what it says from the start to its end, on both outputs.
async fn struck(cluster: &ControlPlane, folder: &Path, at: &str, blow: Blow) -> String {
    let mut command = demo(cluster, folder);
    let mut child = command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id().unwrap();
    let (mut lines, mut errors) = (BufReader::new(child.stdout.take().unwrap()).lines(), child.stderr.take().unwrap());
    let mut said = String::new();
    let (mut awaited, group) = (true, format!("-{pid}"));
    while let Some(line) = lines.next_line().await.unwrap() {
        said = format!("{said}{line}\n");
        if !awaited || !line.contains(at) {
            continue;
        }
        awaited = false;
        match blow {
            Blow::Group(signal) => kill([signal, "--", &group]).await,
            Blow::Pipe => break,
            Blow::Operator => {
                let operators = operator_of(pid);
                assert_eq!(operators.len(), 2, "{operators:?}");
                for operator in operators {
                    kill(["-KILL", "--", &operator.to_string()]).await;
                }
                kill(["-INT", "--", &group]).await;
            }
        }
    }
    drop(lines);
    errors.read_to_string(&mut said).await.unwrap();
    assert_eq!(child.wait().await.unwrap().code(), Some(1), "{said}");
    assert!(!awaited, "'{at}' did not come:\n{said}");
    said
}

// K6: Ctrl-C and a closed terminal reach every process of the demo's group.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_ends_a_guest_early_nothing_is_left() {
    let (cluster, _alone) = cluster().await;
    let folder = tempfile::tempdir().unwrap();
    let before = everything(cluster).await;
    for (at, blow, expected) in [
        ("installing the CRDs", Blow::Group("-INT"), "interrupted"),
        ("serving the operator's webhooks", Blow::Group("-INT"), "interrupted"),
        ("calls the tool `greet`", Blow::Group("-INT"), "interrupted"),
        ("calls the tool `greet`", Blow::Group("-HUP"), "the terminal is closed"),
        ("calls the tool `greet`", Blow::Pipe, "its output is closed"),
        ("calls the tool `greet`", Blow::Operator, "interrupted"),
    ] {
        let said = struck(cluster, folder.path(), at, blow).await;
        let end = format!("The demo stops here: {expected}\nEverything this demo started is ended and removed.");
        assert!(said.contains(&end), "{at}, {blow:?}: {said}");
        assert!(!said.contains("panicked"), "{at}, {blow:?}: {said}");
        assert_eq!(said.contains("taking the finalizers off"), matches!(blow, Blow::Operator), "{said}");
        assert_eq!(everything(cluster).await, before, "{at}, {blow:?}: {said}");
        assert!(is_empty(folder.path()), "{at}, {blow:?}");
    }
}

#[test]
fn an_unknown_cluster_is_refused_before_anything_is_built() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../hack/prerequisites.sh");
    let mut first = std::process::Command::new(script);
    let mut last = std::process::Command::new(env!("CARGO_BIN_EXE_demo"));
    for command in [first.arg("demo").env("CLUSTER", "mine"), last.arg("mine")] {
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(!output.status.success() && text.contains("CLUSTER=mine is none of 'own'"), "{text}");
    }
}
