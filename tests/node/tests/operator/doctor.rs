//! Runs `mcp-operator doctor` on an installation whose pods run, and on a broken one.

use std::process::Command;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use portcullis_charts::{OPERATOR, binary, chart};
use portcullis_node::{
    DEADLINE, KUBECONFIG, OPERATOR_NAMESPACE, POD_IMAGE, RELEASE, helm, install_operator, kubectl, release,
};
use portcullis_pki::Ca;
use portcullis_testing::wait_until;
use serde_json::{Value, json};

use crate::alone;

type Break<'a> = &'a dyn Fn() -> String;

/// A bundle of a foreign CA.
fn foreign_bundle() -> ByteString {
    let (now, hour) = (Timestamp::now(), SignedDuration::from_hours(1));
    ByteString(Ca::generate("somebody else", now - hour, now + hour).unwrap().cert_pem().to_owned().into_bytes())
}

/// Puts the bundle into every webhook of the operator.
fn publish(bundle: &ByteString) -> String {
    let configuration = format!("validatingwebhookconfiguration/{RELEASE}-validating");
    let webhooks = kubectl(&["get", &configuration, "--output", "jsonpath={.webhooks[*].name}"]);
    let operation =
        |index| json!({ "op": "replace", "path": format!("/webhooks/{index}/clientConfig/caBundle"), "value": bundle });
    let patch: Vec<Value> = (0..webhooks.split_whitespace().count()).map(operation).collect();
    kubectl(&["patch", &configuration, "--type", "json", "--patch", &json!(patch).to_string()])
}

/// The ids of the checks that failed or warn, and everything that was found.
fn doctor() -> (Vec<String>, Value) {
    let output = Command::new(binary("mcp-operator"))
        .args(["doctor", "--call-pods", "--output", "json", "--kubeconfig", KUBECONFIG])
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    let bad = report["findings"].as_array().unwrap().iter();
    let bad = bad.filter(|finding| matches!(finding["verdict"].as_str(), Some("FAIL" | "WARN")));
    (bad.map(|finding| finding["id"].as_str().unwrap().to_owned()).collect(), report)
}

// P5
#[tokio::test(flavor = "multi_thread")]
async fn doctor_names_what_is_broken_until_it_is_repaired() {
    let _alone = alone().await;
    install_operator().await;
    let deployment = format!("deployment/{RELEASE}");
    let service = format!("service/{RELEASE}-webhook");
    let policy = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": { "name": RELEASE, "namespace": OPERATOR_NAMESPACE },
        "spec": { "podSelector": {}, "policyTypes": ["Ingress"], "ingress": [] },
    });
    let in_operators = |arguments: &[&str]| kubectl(&[&["--namespace", OPERATOR_NAMESPACE], arguments].concat());
    let patch = |object: &str, patch: &Value| {
        in_operators(&["patch", object, "--type", "merge", "--patch", &patch.to_string()])
    };
    let ports =
        |target: &str| json!({ "spec": { "ports": [{ "name": "webhooks", "port": 443, "targetPort": target }] } });
    // The Deployment keeps pods that are ready until others are: first there are none.
    let run_instead = |container: Value| {
        patch(&deployment, &json!({ "spec": { "replicas": 0 } }));
        in_operators(&["wait", "--for=delete", "pod", "-l", "app.kubernetes.io/name=mcp-operator", "--timeout=1m"]);
        let spec = json!({ "replicas": 2, "template": { "spec": { "containers": [container] } } });
        in_operators(&["patch", &deployment, "--type", "strategic", "--patch", &json!({ "spec": spec }).to_string()])
    };
    let breaks: [(&str, Break<'_>, &[&str]); 6] = [
        (
            "an unknown argument",
            &|| run_instead(json!({ "name": "operator", "args": ["run", "--unknown"] })),
            &["C1", "C2", "C8"],
        ),
        (
            "an image that is not there",
            &|| run_instead(json!({ "name": "operator", "image": "localhost/portcullis/none:0" })),
            &["C1"],
        ),
        (
            "another program in place of the operator, and a bundle that verifies no served certificate",
            &|| {
                run_instead(json!({
                    "name": "operator", "image": POD_IMAGE, "args": ["webhook", "-listen", ":9443"],
                    "livenessProbe": null, "readinessProbe": null,
                }));
                publish(&foreign_bundle())
            },
            &["C5", "X5", "X6"],
        ),
        ("another port", &|| patch(&service, &ports("other")), &["C3"]),
        ("no Service", &|| in_operators(&["delete", &service]), &["W4"]),
        // C4 is the policy at work: the doctor calls the pods from outside of the node, as the API server of a larger
        // cluster does.
        ("a policy that lets no client in", &|| patch(&format!("networkpolicy/{RELEASE}"), &policy), &["C4"]),
    ];
    let wait = async |what: &str, wanted: &dyn Fn(&[String]) -> bool| {
        let last = std::sync::Mutex::new(Value::Null);
        wait_until(what, DEADLINE, || async {
            let (bad, report) = doctor();
            *last.lock().unwrap() = report;
            wanted(&bad).then_some(())
        })
        .await;
    };
    wait("nothing to find", &|bad| bad.is_empty()).await;
    for (what, breaks, expected) in breaks {
        breaks();
        let all = |bad: &[String]| expected.iter().all(|id| bad.iter().any(|bad| bad == id));
        wait(&format!("the doctor to say {expected:?} of {what}"), &all).await;
        // With --force, helm takes back what others changed.
        release(&helm(), "upgrade", OPERATOR, &chart(OPERATOR), &json!({})).await;
        wait(&format!("nothing to find after {what}"), &|bad| bad.is_empty()).await;
    }
}
