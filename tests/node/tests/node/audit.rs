//! `spec.audit` is turned on and off under a client at fifty calls a second.

use k8s_openapi::api::apps::v1::Deployment;
use portcullis_node::greeter::{self, Route, STDIO, STREAMABLE};
use portcullis_node::{Node, Outcome, install_operator};
use serde_json::{Value, json};

/// The events in what a pod wrote.
fn events(log: &str) -> Vec<Value> {
    log.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .filter(|line: &Value| line["msg"] == "audit_event")
        .collect()
}

/// Turns audit on, off and on again. Returns the failed calls from the first answer on.
async fn edited_under_load(route: &Route, era: &str) -> Vec<Outcome> {
    let node = Node::running().await;
    install_operator().await;
    let namespace = node.namespace("audit").await;
    let url = greeter::start_on(&namespace, route, json!({})).await;
    let deployments = namespace.api::<Deployment>();
    let uid = deployments.get(greeter::NAME).await.unwrap().metadata.uid;
    let caller = namespace.caller(era, 50, &url, "Ada").await;
    caller.next("an answer", |outcome| outcome.answers("Hi Ada")).await;
    let begun = caller.outcomes().len();
    for is_on in [true, false, true] {
        let before = namespace.pods(greeter::NAME).await;
        let edited = route.spec(json!({ "audit": { "enabled": is_on } }));
        namespace.apply([greeter::manifest(greeter::NAME, edited)]).await;
        let pods = namespace.replaced(greeter::NAME, &before).await;
        caller.steady(50, "Hi Ada").await;
        let events = events(&namespace.log(&pods[0]).await);
        let told = events.iter().any(|event| {
            event["type"] == "mcp_tool_call" && event["outcome"] == "success" && event["target"]["name"] == "greet"
        });
        assert_eq!(told, is_on, "{events:?}");
    }
    assert_eq!(deployments.get(greeter::NAME).await.unwrap().metadata.uid, uid, "the Deployment was made anew");
    let outcomes = caller.finish().await;
    let failed: Vec<_> = outcomes[begun..].iter().filter(|outcome| !outcome.answers("Hi Ada")).cloned().collect();
    println!("audit, {} {era}: {} of {} calls failed: {failed:?}", route.name, failed.len(), outcomes.len() - begun);
    failed
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_of_audit_loses_no_call_of_the_stateless_era_and_keeps_the_deployment() {
    assert_eq!(edited_under_load(&STREAMABLE, "stateless").await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_of_audit_costs_a_session_of_the_legacy_era_one_404_at_most() {
    let failed = edited_under_load(&STREAMABLE, "legacy").await;
    let without_session = |outcome: &Outcome| matches!(outcome, Outcome::Lost { text } if text.to_lowercase().contains("session not found"));
    assert!(failed.iter().all(without_session), "{failed:?}");
}

/// The new pod takes the server's process over from the old one: what is called meanwhile is refused.
#[tokio::test(flavor = "multi_thread")]
async fn an_edit_of_audit_in_front_of_a_process_costs_the_calls_of_a_gap_that_is_told() {
    edited_under_load(&STDIO, "stateless").await;
}
