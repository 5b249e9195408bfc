//! With kube-controller-manager: workloads get their pods, and what is owned goes with its owner.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use portcullis_testing::{ControlPlane, wait_until};
use serde_json::json;

const DEADLINE: Duration = Duration::from_mins(1);

#[tokio::test]
async fn a_deployment_gets_its_pods_and_they_go_with_it() {
    let cluster = ControlPlane::shared_with_controller_manager().await;
    let namespace = cluster.namespace("workload").await;
    let deployments: Api<Deployment> = Api::namespaced(cluster.admin(), &namespace);
    let pods: Api<Pod> = Api::namespaced(cluster.admin(), &namespace);
    let deployment = serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": "web", "securityContext": {"privileged": true}}]},
            },
        },
    }))
    .unwrap();
    deployments.create(&PostParams::default(), &deployment).await.unwrap();
    let count = async |wanted: usize| {
        wait_until(&format!("{wanted} pods"), DEADLINE, || async {
            (pods.list(&ListParams::default()).await.unwrap().items.len() == wanted).then_some(())
        })
        .await;
    };
    count(2).await;
    deployments.delete("web", &DeleteParams::background()).await.unwrap();
    count(0).await;
}

#[tokio::test]
async fn what_is_owned_is_collected_when_its_owner_goes() {
    let cluster = ControlPlane::shared_with_controller_manager().await;
    let namespace = cluster.namespace("owner").await;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.admin(), &namespace);
    let map = |value| serde_json::from_value(value).unwrap();
    let owner = maps.create(&PostParams::default(), &map(json!({"metadata": {"name": "owner"}}))).await.unwrap();
    let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.metadata.uid});
    let dependent = json!({"metadata": {"name": "owned", "ownerReferences": [reference]}});
    maps.create(&PostParams::default(), &map(dependent)).await.unwrap();
    maps.delete("owner", &DeleteParams::default()).await.unwrap();
    wait_until("the owned config map to go", DEADLINE, || async {
        maps.get_opt("owned").await.unwrap().is_none().then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_deleted_namespace_goes() {
    let cluster = ControlPlane::shared_with_controller_manager().await;
    let namespace = cluster.namespace("gone").await;
    let namespaces: Api<Namespace> = Api::all(cluster.admin());
    namespaces.delete(&namespace, &DeleteParams::default()).await.unwrap();
    wait_until("the namespace to go", DEADLINE, || async {
        namespaces.get_opt(&namespace).await.unwrap().is_none().then_some(())
    })
    .await;
}
