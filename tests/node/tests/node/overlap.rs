//! Two proxies on one stdio server, as after a copy of the Deployment; the operator never makes two.

use k8s_openapi::api::apps::v1::Deployment;
use portcullis_node::greeter::{self, NAME, STDIO};
use portcullis_node::{Caller, Calls, Namespace, Node, Outcome, install_operator, kubectl_in};
use serde_json::{Value, json};

const SECOND: &str = "second";

/// Runs another proxy from the pod template of the first, behind a Service of its own, and returns its URL.
async fn second_proxy(namespace: &Namespace) -> String {
    let first = namespace.api::<Deployment>().get(NAME).await.unwrap();
    let mut spec = serde_json::to_value(first.spec.unwrap()).unwrap();
    // With the first's labels, its pods would be the operator's.
    let labels = json!({ "app": SECOND });
    spec["selector"] = json!({ "matchLabels": labels });
    spec["template"]["metadata"]["labels"] = labels.clone();
    let object = |version: &str, kind: &str, spec: Value| json!({ "apiVersion": version, "kind": kind, "metadata": { "name": SECOND }, "spec": spec });
    let ports = json!({ "selector": labels, "ports": [{ "port": 8080 }] });
    namespace.apply([object("apps/v1", "Deployment", spec), object("v1", "Service", ports)]).await;
    namespace.available(SECOND).await;
    format!("http://{SECOND}.{}.svc.cluster.local:8080/mcp", namespace.name)
}

/// One client of each era, named after its way.
async fn callers(namespace: &Namespace, url: &str, way: &str) -> Vec<(String, Caller)> {
    let mut callers = Vec::new();
    for era in ["legacy", "stateless"] {
        let name = format!("{way}-{era}");
        let caller = namespace.call(Calls { era, rate: 10, ..Calls::of(url, &name) }).await;
        callers.push((format!("Hi {name}"), caller));
    }
    callers
}

// P2
#[tokio::test(flavor = "multi_thread")]
async fn no_client_gets_an_answer_to_another_proxys_call() {
    let node = Node::running().await;
    install_operator().await;
    let namespace = node.namespace("overlap").await;
    let url = greeter::start_on(&namespace, &STDIO, json!({})).await;
    let first = callers(&namespace, &url, "first").await;
    for (answer, caller) in &first {
        caller.steady(10, answer).await;
    }

    let other = second_proxy(&namespace).await;
    let second = callers(&namespace, &other, SECOND).await;
    // Both proxies hold the streams of one process now.
    for (answer, caller) in first.iter().chain(&second) {
        caller.next(answer, |outcome| outcome.answers(answer)).await;
    }

    kubectl_in(&namespace.name, &["delete", &format!("deployment/{SECOND}"), "--cascade=foreground", "--timeout=2m"]);
    for (answer, caller) in &first {
        caller.steady(20, answer).await;
    }
    for (answer, caller) in first.into_iter().chain(second) {
        let outcomes = caller.finish().await;
        let answered = outcomes.iter().filter(|outcome| outcome.answers(&answer)).count();
        println!("'{answer}': {answered} of {} calls were answered", outcomes.len());
        let foreign = outcomes.iter().find(|outcome| matches!(outcome, Outcome::Answered { text } if *text != answer));
        assert_eq!(foreign, None, "the client of '{answer}' got an answer that is not its own");
    }
}
