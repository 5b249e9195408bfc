//! An installation inside of the cluster: Deployment, pods, endpoints, policies, rights.

use serde_json::json;

use crate::broken::{Act, Variant, examine, variant};
use crate::clinic::{Clinic, POD, SLICE, Sort};

const DEPLOYMENT: Sort = ("apps", "v1", "Deployment", "deployments", true);
const BINDING: Sort = ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", false);
const ROLE: Sort = ("rbac.authorization.k8s.io", "v1", "Role", "roles", true);
const ACCOUNT: Sort = ("", "v1", "ServiceAccount", "serviceaccounts", true);

fn of(sort: Sort, path: &str, value: serde_json::Value) -> Vec<Act> {
    named(sort, if sort == SLICE { "shop-webhook" } else { "shop" }, path, value)
}

fn named(sort: Sort, name: &'static str, path: &str, value: serde_json::Value) -> Vec<Act> {
    vec![Act::Patch(sort, name, json!([{ "op": "add", "path": path, "value": value }]))]
}

/// Each is broken for good, so those come last that others would be hidden by.
fn variants(clinic: &Clinic) -> Vec<Variant> {
    let binding = format!("shop:{}", clinic.namespace).leak();
    vec![
        variant(
            "webhooks off",
            of(DEPLOYMENT, "/spec/template/spec/containers/0/args/-", json!("--webhooks=off")),
            &[("W9", "FAIL", "take --webhooks off out")],
        ),
        variant(
            "another installation under the same name",
            named(BINDING, binding, "/subjects/0/namespace", json!("elsewhere")),
            &[("H3", "FAIL", "give one of them another --release"), ("H4", "FAIL", "generate rbac")],
        ),
        variant(
            "role without the Secrets",
            of(ROLE, "/rules", json!([])),
            &[("H4", "FAIL", "generate rbac"), ("H4", "FAIL", "generate rbac")],
        ),
        variant("no account", vec![Act::Delete(ACCOUNT, "shop")], &[("H3", "FAIL", "generate rbac")]),
        variant(
            "endpoints that are not ready",
            of(SLICE, "/endpoints/0/conditions/ready", json!(false)),
            &[("C2", "FAIL", "get pods -l 'app.kubernetes.io/instance=shop")],
        ),
        variant(
            "a port that no pod has",
            vec![Act::Patch(
                crate::clinic::SERVICE,
                "shop-webhook",
                json!([{ "op": "replace", "path": "/spec/ports/0/targetPort", "value": 1 }]),
            )],
            &[("C3", "FAIL", "generate operator")],
        ),
        variant(
            "pods that are not ready",
            vec![
                Act::Status(
                    POD,
                    "shop-0",
                    json!({ "conditions": [{ "type": "Ready", "status": "False", "reason": "ContainersNotReady" }] }),
                ),
                Act::Status(
                    POD,
                    "shop-1",
                    json!({ "conditions": [{ "type": "Ready", "status": "False", "reason": "ContainersNotReady" }] }),
                ),
            ],
            &[("C1", "FAIL", "describe pod shop-0")],
        ),
    ]
}

// D10
#[tokio::test]
async fn inside_of_a_cluster_pods_policies_and_rights_are_looked_at() {
    let clinic = Clinic::open().await;
    clinic.move_in().await;
    let well = clinic.examine(&["--call-pods"]).await;
    let bad: Vec<_> = well.findings.iter().filter(|found| matches!(&*found.verdict, "WARN" | "FAIL")).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    // Both pods were called, and the rights were asked for.
    assert!(well.of("C4").is_empty() && well.of("H4").is_empty(), "{well:#?}");
    examine(&clinic, variants(&clinic).into_iter().map(|variant| variant.with(&["--call-pods"])).collect(), false)
        .await;
}
