//! The number of series of metrics does not depend on clients.

use std::collections::BTreeSet;

use serde_json::json;

use crate::support::{CALL, Files, Proxy, post};

/// The series of a report, without their values.
fn series(text: &str) -> BTreeSet<&str> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.rsplit_once(' ').unwrap().0).collect()
}

// M6
#[tokio::test]
async fn ten_thousand_tools_and_callers_make_no_series() {
    let settings = Files::new().settings();
    let metrics = settings.metrics.clone();
    let tools = json!({"filter_tools": ["echo"]});
    let proxy = Proxy::with(
        settings,
        json!([
            {"type": "origin"}, {"type": "auth"}, {"type": "tool-filter", "parameters": tools},
            {"type": "tool-call-filter", "parameters": tools}, {"type": "mcp-parser"},
        ]),
    );
    let before = metrics.encode();
    for at in 0..10_000_u16 {
        let [high, low] = at.to_be_bytes();
        let call =
            json!({"jsonrpc": "2.0", "id": at, "method": "tools/call", "params": {"name": format!("tool-{at}")}});
        let mut request = post("application/json", call.to_string());
        request.headers_mut().insert("user-agent", format!("agent-{at}").parse().unwrap());
        proxy.send_from([10, 1, high, low], request).await;
    }
    let mut page = post("application/json", CALL);
    page.headers_mut().insert("origin", "https://evil.example".parse().unwrap());
    assert_eq!(proxy.send(page).await.status, 403);
    let report = metrics.encode();
    assert_eq!(series(&report), series(&before));
    assert!(
        report.contains(r#"mcp_runner_guard_decisions_total{guard="tool-call-filter",outcome="denied"} 10000"#),
        "{report}"
    );
}
