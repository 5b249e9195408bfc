//! `spec.telemetryConfigRef` comes, changes and goes under a client at fifty calls a second.

use portcullis_node::greeter::STREAMABLE;
use portcullis_node::{Namespace, Outcome};
use serde_json::{Value, json};

use crate::edits::{Setting, lost_its_session};

/// A metric that a proxy has with telemetry alone.
const METRIC: &str = "toolhive_mcp_requests_total";

/// Refers to a configuration, under the server's own name and then under another, and then to none. Returns the failed calls from
/// the first answer on.
async fn edited_under_load(era: &str) -> Vec<Outcome> {
    let config = json!({
        "apiVersion": "toolhive.stacklok.dev/v1beta1", "kind": "MCPTelemetryConfig", "metadata": { "name": "metrics" },
        "spec": { "prometheus": { "enabled": true } },
    });
    let edits = [
        json!({ "telemetryConfigRef": { "name": "metrics" } }),
        json!({ "telemetryConfigRef": { "name": "metrics", "serviceName": "hello" } }),
        json!({}),
    ];
    let setting = Setting { name: "telemetry", beside: vec![config], edits: edits.into(), ..Setting::default() };
    let check = async |namespace: &Namespace, pod: &str, edit: &Value| {
        let metrics = namespace.answer(pod, "metrics");
        let reference = &edit["telemetryConfigRef"];
        assert_eq!(metrics.contains(METRIC), !reference.is_null(), "{edit}: {metrics}");
        let is_renamed = metrics.contains(r#"service_name="hello""#);
        assert_eq!(is_renamed, reference["serviceName"] == "hello", "{edit}: {metrics}");
    };
    setting.edited_under_load(&STREAMABLE, era, check).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_of_telemetry_loses_no_call() {
    assert_eq!(edited_under_load("stateless").await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_of_telemetry_costs_a_session_one_404_at_most() {
    let failed = edited_under_load("legacy").await;
    assert!(failed.iter().all(lost_its_session), "{failed:?}");
}
