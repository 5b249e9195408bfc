//! Stdio servers that do not keep to the protocol. The proxy lives on, within its memory, and says what is wrong.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ContainerState, Event, Pod};
use kube::api::ListParams;
use portcullis_node::greeter::{self, NAME, STDIO};
use portcullis_node::{Calls, DEADLINE, Namespace, Node, install_operator, kubectl_in};
use portcullis_testing::wait_until;
use serde_json::json;

/// The limit of the proxy's memory, MiB.
const MEMORY: u64 = 64;
/// The longest time until a server that never answers is replaced: three minutes of patience, and what a busy machine
/// adds.
const REPLACED: Duration = Duration::from_mins(6);

/// Starts a server that serves badly, and returns its URL and the name of its proxy's pod.
async fn start(namespace: &Namespace, how: &[&str]) -> (String, String) {
    let arguments = [&["serve", "stdio"], how].concat();
    let limits = json!({ "memory": format!("{MEMORY}Mi") });
    let members = json!({ "args": arguments, "resources": { "limits": limits } });
    let url = greeter::start_on(namespace, &STDIO, members).await;
    (url, namespace.pods(NAME).await.remove(0))
}

/// Returns when the operator has replaced the server's pod, and says so in an event.
async fn server_is_replaced(namespace: &Namespace, before: Option<&str>) {
    let first_pod = format!("{NAME}-0");
    wait_until("the operator to replace the server's pod", REPLACED, || async {
        let pod = namespace.api::<Pod>().get_opt(&first_pod).await.unwrap()?;
        (pod.metadata.uid.as_deref() != before).then_some(())
    })
    .await;
    wait_until("an event about it", DEADLINE, || async {
        let events = namespace.api::<Event>().list(&ListParams::default()).await.unwrap();
        events.items.iter().any(|event| event.reason.as_deref() == Some("ServerReplaced")).then_some(())
    })
    .await;
}

/// Fails when a process of the proxy's pod was ended for the memory that it took.
async fn assert_within_memory(node: &Node, namespace: &Namespace, proxy: &str) {
    let pod = namespace.pod(proxy).await;
    let container = &pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0];
    let ended = |state: &Option<ContainerState>| state.as_ref()?.terminated.clone()?.reason;
    let reasons = [ended(&container.state), ended(&container.last_state)];
    assert!(!reasons.iter().flatten().any(|reason| reason == "OOMKilled"), "{container:?}");
    if let Some(peak) = node.peak_memory(&pod) {
        println!("{proxy} had {} MiB of {MEMORY} at the most", peak >> 10);
    }
}

// P2
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ignores_the_end_of_its_input_is_replaced() {
    let node = Node::running().await;
    install_operator().await;
    let namespace = node.namespace("ignores-eof").await;
    let (url, proxy) = start(&namespace, &["--ignore-eof"]).await;
    let caller = namespace.call(Calls { rate: 10, ..Calls::of(&url, "Ada") }).await;
    caller.steady(10, "Hi Ada").await;
    let server = namespace.pod(&format!("{NAME}-0")).await.metadata.uid;

    let begun = Instant::now();
    kubectl_in(&namespace.name, &["delete", "pod", &proxy, "--wait=false"]);
    server_is_replaced(&namespace, server.as_deref()).await;
    println!("a server that ignores the end of its input was replaced after {:.1?}", begun.elapsed());
    caller.next_within(REPLACED, "an answer of the new server", |outcome| outcome.answers("Hi Ada")).await;
    println!("and its calls were answered after {:.1?}", begun.elapsed());
    caller.steady(10, "Hi Ada").await;
    caller.finish().await;
}

// P2
#[tokio::test(flavor = "multi_thread")]
async fn garbage_between_the_answers_of_a_server_costs_none_of_them() {
    let node = Node::running().await;
    install_operator().await;
    let namespace = node.namespace("garbage").await;
    let (url, proxy) = start(&namespace, &["--garbage"]).await;
    for era in STDIO.eras {
        let caller = namespace.call(Calls { era, rate: 10, ..Calls::of(&url, "Ada") }).await;
        caller.next("an answer", |outcome| outcome.answers("Hi Ada")).await;
        let begun = caller.outcomes().len();
        caller.steady(50, "Hi Ada").await;
        let outcomes = caller.finish().await;
        let failed: Vec<_> = outcomes[begun..].iter().filter(|outcome| !outcome.answers("Hi Ada")).collect();
        assert!(failed.is_empty(), "{era}: {} of {} calls failed: {failed:?}", failed.len(), outcomes.len() - begun);
    }
    assert_eq!(namespace.health(&proxy)["status"], "healthy");
    assert_within_memory(&node, &namespace, &proxy).await;
}

// P2
#[tokio::test(flavor = "multi_thread")]
async fn a_line_of_100_megabytes_is_dropped_and_logged() {
    let node = Node::running().await;
    install_operator().await;
    let namespace = node.namespace("long-line").await;
    let (url, proxy) = start(&namespace, &["--long-line", "104857600"]).await;
    let caller = namespace.call(Calls { rate: 2, ..Calls::of(&url, "Ada") }).await;
    caller.steady(5, "Hi Ada").await;
    assert_eq!(namespace.health(&proxy)["status"], "healthy");
    let log = namespace.log(&proxy).await;
    assert!(log.contains("too long"), "the proxy's log does not say it:\n{log}");
    assert_within_memory(&node, &namespace, &proxy).await;
    assert_eq!(namespace.pods(NAME).await, [proxy]);
    caller.finish().await;
}

// P2
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_never_reads_is_replaced_by_its_healthy_proxy() {
    let node = Node::running().await;
    install_operator().await;
    let namespace = node.namespace("deaf").await;
    let (url, proxy) = start(&namespace, &["--deaf"]).await;
    let server = namespace.pod(&format!("{NAME}-0")).await.metadata.uid;
    let caller = namespace.call(Calls { rate: 10, ..Calls::of(&url, "Ada") }).await;
    caller.next("a call that fails", |outcome| !outcome.answers("Hi Ada")).await;
    // It answers 200, as a restart of the proxy would not help.
    wait_until("/health to say that the server does not answer", DEADLINE, || async {
        (namespace.health(&proxy)["status"] == "degraded").then_some(())
    })
    .await;
    assert_within_memory(&node, &namespace, &proxy).await;
    wait_until("the proxy to say that its server does not answer", REPLACED, || async {
        let log = namespace.log(&proxy).await;
        ["answers nothing", "does not answer the handshake"].iter().any(|said| log.contains(said)).then_some(())
    })
    .await;
    server_is_replaced(&namespace, server.as_deref()).await;
    assert_within_memory(&node, &namespace, &proxy).await;
    let outcomes = caller.finish().await;
    assert!(!outcomes.iter().any(|outcome| outcome.answers("Hi Ada")), "{outcomes:?}");
}
