//! `kubectl rollout restart` of what the operator made.

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use portcullis_node::greeter::{self, NAME, STDIO, STREAMABLE};
use portcullis_node::{Calls, DEADLINE, Namespace, Node, install_operator, kubectl_in};
use portcullis_testing::wait_for_object;
use serde_json::json;

const RESTARTED: &str = "kubectl.kubernetes.io/restartedAt";

fn restarted(template: Option<&PodTemplateSpec>) -> Option<String> {
    template?.metadata.as_ref()?.annotations.as_ref()?.get(RESTARTED).cloned()
}

/// When Deployment and StatefulSet were restarted, as their templates say.
async fn restarts(namespace: &Namespace) -> [Option<String>; 2] {
    let deployment = namespace.api::<Deployment>().get(NAME).await.unwrap().spec.unwrap();
    let stateful_set = namespace.api::<StatefulSet>().get(NAME).await.unwrap().spec.unwrap();
    [restarted(Some(&deployment.template)), restarted(Some(&stateful_set.template))]
}

// P2
#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_restart_is_not_undone_by_the_operator() {
    let node = Node::running().await;
    install_operator().await;
    for route in [STREAMABLE, STDIO] {
        let namespace = node.namespace("restart").await;
        let url = greeter::start_on(&namespace, &route, json!({})).await;
        let caller = namespace.call(Calls { rate: 10, ..Calls::of(&url, route.name) }).await;
        let answer = format!("Hi {}", route.name);
        caller.steady(5, &answer).await;

        let proxies = namespace.pods(NAME).await;
        kubectl_in(&namespace.name, &["rollout", "restart", &format!("deployment/{NAME}")]);
        namespace.replaced(NAME, &proxies).await;
        caller.steady(20, &answer).await;

        let first_pod = format!("{NAME}-0");
        let server = namespace.pod(&first_pod).await.metadata.uid;
        kubectl_in(&namespace.name, &["rollout", "restart", &format!("statefulset/{NAME}")]);
        kubectl_in(&namespace.name, &["rollout", "status", &format!("statefulset/{NAME}"), "--timeout=2m"]);
        assert_ne!(namespace.pod(&first_pod).await.metadata.uid, server);
        caller.steady(20, &answer).await;

        let before = restarts(&namespace).await;
        assert!(before.iter().all(Option::is_some), "{before:?}");
        // The operator must keep what kubectl wrote, whatever it does with both from now on.
        let proxies = namespace.pods(NAME).await;
        let edit = r#"{ "spec": { "env": [{ "name": "EDITED", "value": "yes" }] } }"#;
        kubectl_in(&namespace.name, &["patch", "mcpserver", NAME, "--type=merge", "--patch", edit]);
        namespace.replaced(NAME, &proxies).await;
        wait_for_object(&namespace.api::<StatefulSet>(), NAME, "the edit", DEADLINE, |stateful_set| {
            let pod = stateful_set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
            let env = pod.and_then(|pod| pod.containers.first()?.env.as_deref()).unwrap_or_default();
            env.iter().any(|variable| variable.name == "EDITED")
        })
        .await;
        assert_eq!(restarts(&namespace).await, before);
        caller.steady(5, &answer).await;
        caller.finish().await;
    }
}
