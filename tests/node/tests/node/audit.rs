//! `spec.audit` is turned on and off under a client at fifty calls a second.

use portcullis_node::greeter::{Route, STDIO, STREAMABLE};
use portcullis_node::{Namespace, Outcome};
use serde_json::{Value, json};

use crate::edits::{Setting, lost_its_session};

/// The events in what a pod wrote.
fn events(log: &str) -> Vec<Value> {
    log.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .filter(|line: &Value| line["msg"] == "audit_event")
        .collect()
}

/// Turns audit on, off and on again. Returns the failed calls from the first answer on.
async fn edited_under_load(route: &Route, era: &str) -> Vec<Outcome> {
    let edits = [true, false, true].map(|is_on| json!({ "audit": { "enabled": is_on } }));
    let setting = Setting { name: "audit", edits: edits.into(), ..Setting::default() };
    let check = async |namespace: &Namespace, pod: &str, edit: &Value| {
        let events = events(&namespace.log(pod).await);
        let told = events.iter().any(|event| {
            event["type"] == "mcp_tool_call" && event["outcome"] == "success" && event["target"]["name"] == "greet"
        });
        assert_eq!(json!(told), edit["audit"]["enabled"], "{events:?}");
    };
    setting.edited_under_load(route, era, check).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_of_audit_loses_no_call_of_the_stateless_era_and_keeps_the_deployment() {
    assert_eq!(edited_under_load(&STREAMABLE, "stateless").await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_of_audit_costs_a_session_of_the_legacy_era_one_404_at_most() {
    let failed = edited_under_load(&STREAMABLE, "legacy").await;
    assert!(failed.iter().all(lost_its_session), "{failed:?}");
}

/// The new pod takes the server's process over from the old one: what is called meanwhile is refused.
#[tokio::test(flavor = "multi_thread")]
async fn an_edit_of_audit_in_front_of_a_process_costs_the_calls_of_a_gap_that_is_told() {
    edited_under_load(&STDIO, "stateless").await;
}
