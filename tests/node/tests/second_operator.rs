//! The second operator, installed by Helm as its guide has it: hook Jobs make its certificates, and the guide's
//! instructions to look at is there. The rest of the guide is kept by the tests of dynamo/webhooks, without pods.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "in a test this is the failure")]

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use portcullis_charts::{Helm, chart};
use portcullis_node::{DEADLINE, KUBECTL, helm, kubectl, kubectl_in, try_kubectl};
use portcullis_testing::wait_until;
use serde_json::{Value, json};

const RELEASE: &str = "platform";
const NAME: &str = "platform-dynamo-operator";
const NAMESPACE: &str = "dynamo-system";
const SECRET: &str = "webhook-server-cert";

/// Refused by the webhook: the schema lets it pass.
const BAD: &str = "apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeployment
metadata: { name: without-services, namespace: default }
spec: { services: {} }
";
const REFUSAL: &str = "spec.services must have at least one service";

/// Installs or upgrades with these values, and returns when Helm says that all is done: hooks and pods.
async fn install(helm: &Helm, values: Value) {
    let mut all = json!({ "image": { "tag": env!("CARGO_PKG_VERSION"), "pullPolicy": "Never" } });
    all.as_object_mut().unwrap().extend(values.as_object().unwrap().clone());
    let (chart, values) = (chart("dynamo-webhooks").display().to_string(), helm.values(&all));
    let words = ["upgrade", RELEASE, &chart, "--install", "--values", &values, "--namespace", NAMESPACE];
    let words = [&words[..], &["--create-namespace", "--force-conflicts", "--wait", "--timeout", "4m"]].concat();
    tokio::task::block_in_place(|| helm.run(&words)).unwrap_or_else(|error| {
        panic!("{error}\n{}", try_kubectl(&["--namespace", NAMESPACE, "describe", "pods,jobs"]).unwrap_or_default())
    });
}

/// The answer to the bad object.
fn answer(file: &str) -> String {
    match try_kubectl(&["create", "--dry-run=server", "--filename", file]) {
        Ok(_) => "taken".to_owned(),
        Err(said) => said,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn helm_installs_dynamo_webhooks_as_the_guide_describes() {
    let helm = helm();
    let folder = tempfile::tempdir().unwrap();
    let bad = folder.path().join("bad.yaml").display().to_string();
    std::fs::write(&bad, BAD).unwrap();
    install(&helm, json!({})).await;
    // kube-proxy may take up a Service after its pods are ready.
    wait_until("the webhooks to be reached", DEADLINE, || async { answer(&bad).contains(REFUSAL).then_some(()) }).await;

    let deployment = format!("deployment/{NAME}");
    let configuration = format!("{NAME}-validating");
    let [generated, injected] = ["cert-gen", "ca-inject"].map(|job| format!("job/{NAME}-webhook-{job}-1"));
    let inject = format!("{NAME}-webhook-ca-inject");
    // As all roles in the cluster, after the namespace too: two releases of one name do not meet.
    let cluster_role = format!("{NAME}:{NAMESPACE}:webhook-ca-inject");
    let commands: [(&[&str], &[&str]); 12] = [
        (&["get", "validatingwebhookconfiguration"], &[&configuration]),
        (&["get", "service"], &["webhook-service"]),
        (&["get", "secret", SECRET], &[SECRET]),
        (&["get", "pods", "-l", "app.kubernetes.io/name=dynamo-operator"], &["Running"]),
        (&["get", &deployment, "--output", "yaml"], &["containerPort: 9443"]),
        (
            &["logs", &deployment, "--all-pods=true"],
            &[
                "Webhooks are enabled - webhooks will validate, controllers will skip validation",
                "Starting webhook server",
            ],
        ),
        (&["get", "jobs"], &["webhook-cert-gen-1", "webhook-ca-inject-1"]),
        (&["logs", &generated], &["a certificate for"]),
        (&["logs", &injected], &["published: "]),
        (&["get", "serviceaccount", &inject], &[&inject]),
        (&["get", "clusterrole", &cluster_role], &[&cluster_role]),
        (&["get", "clusterrolebinding", &cluster_role], &[&cluster_role]),
    ];
    for (words, expected) in commands {
        let said = kubectl_in(NAMESPACE, words);
        for part in expected {
            assert!(said.contains(part), "{words:?} has no {part:?}:\n{said}");
        }
    }
    let denied = kubectl_in(NAMESPACE, &["logs", &deployment, "--all-pods=true"]);
    assert!(denied.contains("validate create") && denied.contains("without-services"), "{denied}");
    assert!(!denied.contains("ERROR"), "{denied}");
    assert!(port_forwarded(), "the guide's port-forward finds no server on 9443");

    // The guide's manual rotation: admission is lost between the two commands at most while there is no certificate.
    let before = certificate();
    kubectl_in(NAMESPACE, &["delete", "secret", SECRET]);
    // As it has one do it again that failed.
    kubectl_in(NAMESPACE, &["delete", &injected]);
    install(&helm, json!({})).await;
    assert_ne!(certificate(), before);
    assert!(kubectl_in(NAMESPACE, &["get", "jobs"]).contains("webhook-ca-inject-2"));
    wait_until("the new certificate to be served", DEADLINE, || async { answer(&bad).contains(REFUSAL).then_some(()) })
        .await;

    // To the rotation by the operator itself and back, under writes.
    let stop = Arc::new(AtomicBool::new(false));
    let writer = {
        let (stop, bad) = (stop.clone(), bad.clone());
        std::thread::spawn(move || {
            let mut answers = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                answers.push(answer(&bad));
            }
            answers
        })
    };
    install(&helm, json!({ "webhook": { "rotation": "operator" } })).await;
    let again = injected.replace("-inject-1", "-inject-2");
    kubectl_in(NAMESPACE, &["delete", &again]);
    let rollback = ["rollback", RELEASE, "2", "--namespace", NAMESPACE, "--wait", "--timeout", "4m"];
    tokio::task::block_in_place(|| helm.run(&rollback)).unwrap();
    assert!(kubectl_in(NAMESPACE, &["logs", &again]).contains("published: "), "the hooks have run again");
    stop.store(true, Ordering::Relaxed);
    let answers = writer.join().unwrap();
    let lost: Vec<&String> = answers.iter().filter(|said| !said.contains(REFUSAL)).collect();
    assert!(!answers.is_empty() && lost.is_empty(), "{} of {}: {lost:?}", lost.len(), answers.len());

    helm.run(&["uninstall", RELEASE, "--namespace", NAMESPACE, "--wait", "--timeout", "3m"]).unwrap();
    kubectl(&["delete", "crd", "-l", "app.kubernetes.io/name=dynamo-operator", "--timeout=2m"]);
    kubectl(&["delete", "namespace", NAMESPACE, "--timeout=2m"]);
}

/// The certificate that is stored.
fn certificate() -> String {
    kubectl_in(NAMESPACE, &["get", "secret", SECRET, "--output", "jsonpath={.data.tls\\.crt}"])
}

/// Whether a TLS server is behind `kubectl port-forward`.
fn port_forwarded() -> bool {
    let words = ["--namespace", NAMESPACE, "port-forward", &format!("deployment/{NAME}"), ":9443"];
    let mut forward = Command::new(KUBECTL).args(words).stdout(Stdio::piped()).spawn().unwrap();
    // It ends when its output is closed.
    let (mut said, mut line) = (BufReader::new(forward.stdout.take().unwrap()), String::new());
    // "Forwarding from 127.0.0.1:40000 -> 9443"
    said.read_line(&mut line).unwrap();
    let address = line.split_whitespace().nth(2).unwrap_or_else(|| panic!("{line}"));
    let client = Command::new("openssl").args(["s_client", "-connect", address]).stdin(Stdio::null()).output().unwrap();
    forward.kill().unwrap();
    forward.wait().unwrap();
    String::from_utf8_lossy(&client.stdout).contains("BEGIN CERTIFICATE")
}
