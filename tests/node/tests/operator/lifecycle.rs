//! The charts from their installation to their removal, with a server that serves all the while.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt as _};
use mcp_api::v1beta1::MCPServer;
use portcullis_charts::{CRDS, OPERATOR, chart, inventory};
use portcullis_node::{
    DEADLINE, Node, OPERATOR_NAMESPACE, Outcome, RELEASE, former_chart, greeter, helm, kubectl, release, uninstall,
    uninstall_operator,
};
use portcullis_testing::wait_until;
use serde_json::json;

use crate::alone;

// P5
#[tokio::test(flavor = "multi_thread")]
async fn a_server_serves_through_the_operators_upgrade_and_rollback() {
    let _alone = alone().await;
    let (node, helm) = (Node::running().await, helm());
    // Another test's installation.
    uninstall_operator();
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(node.client.clone());
    wait_until("the namespaces of other tests to be gone", DEADLINE, || async {
        let all = namespaces.list(&ListParams::default()).await.unwrap().items;
        all.iter().all(|namespace| namespace.metadata.deletion_timestamp.is_none()).then_some(())
    })
    .await;
    let before = inventory(node.client.clone()).await;

    for name in [CRDS, OPERATOR] {
        release(&helm, "install", name, &former_chart(name), &json!({})).await;
    }
    let namespace = node.namespace("lifecycle").await;
    let url = greeter::start(&namespace, json!({})).await;
    let caller = namespace.caller("stateless", 10, &url, "Ada").await;
    caller.next("an answer", |outcome| outcome.answers("Hi Ada")).await;
    let begun = caller.outcomes().len();
    let pods = namespace.pods(greeter::NAME).await;

    for name in [CRDS, OPERATOR] {
        release(&helm, "upgrade", name, &chart(name), &json!({ "commonLabels": { "team": "a" } })).await;
    }
    let deployments: Api<Deployment> = Api::namespaced(node.client.clone(), OPERATOR_NAMESPACE);
    assert_eq!(deployments.get(RELEASE).await.unwrap().labels()["team"], "a");
    helm.run(&["rollback", RELEASE, "1", "--namespace", OPERATOR_NAMESPACE, "--wait", "--timeout", "3m"]).unwrap();
    assert!(!deployments.get(RELEASE).await.unwrap().labels().contains_key("team"));
    caller.next("an answer", |outcome| outcome.answers("Hi Ada")).await;
    let outcomes = caller.finish().await;
    let failed: Vec<&Outcome> = outcomes[begun..].iter().filter(|outcome| !outcome.answers("Hi Ada")).collect();
    assert!(failed.is_empty(), "{} of {} calls failed: {failed:?}", failed.len(), outcomes.len() - begun);
    assert_eq!(namespace.pods(greeter::NAME).await, pods, "the operator's upgrade replaced a proxy that it need not");

    // Users have to delete objects with finalizers first, while the operator runs.
    let servers = namespace.api::<MCPServer>();
    servers.delete(greeter::NAME, &DeleteParams::default()).await.unwrap();
    wait_until("the server to be gone", DEADLINE, || async {
        servers.get_opt(greeter::NAME).await.unwrap().is_none().then_some(())
    })
    .await;
    kubectl(&["delete", "namespace", &namespace.name]);
    for name in [RELEASE, CRDS] {
        uninstall(&helm, name);
    }
    let left: BTreeSet<String> = inventory(node.client.clone()).await.difference(&before).cloned().collect();
    let crds: Api<CustomResourceDefinition> = Api::all(node.client.clone());
    let kinds = crds.list(&ListParams::default()).await.unwrap().items;
    let kinds = kinds.iter().map(|crd| format!("CustomResourceDefinition /{}", crd.name_any()));
    // docs/src/how-to/install.md
    let documented = [
        "ConfigMap mcp-operator-system/kube-root-ca.crt",
        "Lease mcp-operator-system/mcp-operator-leader",
        "Namespace /mcp-operator-system",
        "Secret mcp-operator-system/mcp-operator-digest",
        "Secret mcp-operator-system/mcp-operator-webhook-tls",
        "Secret mcp-operator-system/mcp-operator-webhook-tls-ca",
        "ServiceAccount mcp-operator-system/default",
    ];
    assert_eq!(left, kinds.chain(documented.map(str::to_owned)).collect());
    // The rest, as the page says.
    uninstall_operator();
    wait_until("the cluster to be as it was", DEADLINE, || async {
        (inventory(node.client.clone()).await == before).then_some(())
    })
    .await;
}
