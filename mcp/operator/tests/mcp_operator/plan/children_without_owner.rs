//! Whose child an object is that names no owner.

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::PartialObjectMeta;
use mcp_operator::controllers::Trace;
use portcullis::controller::apply::refusal;
use serde_json::{Value, json};

const KINDS: [&str; 3] = ["mcpserver", "mcpremoteproxy", "virtualmcpserver"];

/// The kinds that take an object with these labels, and with these entries of managers that applied it, for a child.
fn takers(labels: &Value, managers: &[&str]) -> Vec<&'static str> {
    let entries: Vec<_> = managers
        .iter()
        .map(|manager| json!({"manager": manager, "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": {}}))
        .collect();
    // A digest alone shows nobody's making: every kind writes it under the same name.
    let metadata = json!({
        "name": "web", "namespace": "n", "labels": labels, "managedFields": entries,
        "annotations": {"portcullis.dev/applied-digest": "x"},
    });
    let object: PartialObjectMeta<Deployment> = serde_json::from_value(json!({"metadata": metadata})).unwrap();
    let trace = Trace::read(object);
    let takes = |kind: &str| refusal(&trace.live, "uid", &format!("portcullis-{kind}")).is_none();
    KINDS.into_iter().filter(|kind| takes(kind)).collect()
}

#[test]
fn an_object_without_owner_is_a_child_of_the_kind_that_applied_it() {
    let of = |kind: &str| json!({"app": kind, "app.kubernetes.io/name": kind, "toolhive": "true"});
    let backend = json!({"app": "web", "toolhive": "true", "toolhive-name": "web"});
    let none = json!({});
    let cases: [(&str, &Value, &[&str], &[&str]); 7] = [
        ("a user's own", &none, &["kubectl"], &[]),
        ("nobody's", &none, &[], &[]),
        ("applied by a controller", &none, &["kubectl", "portcullis-mcpserver"], &["mcpserver"]),
        ("applied by another", &of("mcpremoteproxy"), &["portcullis-mcpremoteproxy"], &["mcpremoteproxy"]),
        (
            "applied by one, with the labels of another",
            &of("mcpremoteproxy"),
            &["portcullis-mcpserver"],
            &["mcpserver"],
        ),
        ("one with the labels of a proxy", &of("mcpserver"), &["thv-operator"], &[]),
        ("one with the labels of a server's pods", &backend, &["thv-proxyrunner"], &[]),
    ];
    for (case, labels, managers, expected) in cases {
        assert_eq!(takers(labels, managers), expected, "{case}");
    }
}
