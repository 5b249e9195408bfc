//! Policies that are tried: what they count is what they refuse and hide once they decide.

use http::Response;
use mcp_http::{Body, full};
use mcp_middleware::{Finding, Found, Outcome};
use serde_json::{Value, json};

use crate::support::{Files, Proxy, chain, post};

const POLICIES: [&str; 4] = [
    r#"permit(principal, action == Action::"call_tool", resource == Tool::"echo");"#,
    r#"permit(principal, action == Action::"call_tool", resource == Tool::"deploy")
        when { context has arg_to && context.arg_to == "staging" };"#,
    r#"permit(principal == Client::"ann", action, resource);"#,
    r#"forbid(principal, action == Action::"get_prompt", resource == Prompt::"secret");"#,
];

/// The chain with these policies in a middleware of this type, for this caller.
fn policed(kind: &str, caller: &str) -> Value {
    chain(vec![
        json!({"type": "caller", "parameters": {"subject": caller, "logged_in": true}}),
        json!({"type": kind, "parameters": {"config_data": {"cedar": {"policies": POLICIES}}}}),
    ])
}

/// The calls that were recorded.
fn recorded() -> Vec<String> {
    let arguments = |to: &str| json!({"name": "deploy", "arguments": {"to": to}});
    let calls = [
        ("initialize", json!({})),
        ("tools/list", json!({})),
        ("tools/call", json!({"name": "echo"})),
        ("tools/call", json!({"name": "Echo"})),
        ("tools/call", arguments("staging")),
        ("tools/call", arguments("prod")),
        ("tools/call", json!({"name": 7})),
        ("tools/call", json!({})),
        ("prompts/get", json!({"name": "secret"})),
        ("prompts/get", json!({"name": "other"})),
        ("resources/read", json!({"uri": "file:///a"})),
        ("resources/subscribe", json!({"uri": "file:///a"})),
        ("completion/complete", json!({"ref": {"type": "ref/prompt", "name": "secret"}})),
        ("notifications/initialized", json!({})),
        ("own/method", json!({})),
    ];
    let message = |(method, params): (&str, Value)| {
        let id = if method.starts_with("notifications/") { Value::Null } else { json!(7) };
        let mut message = json!({"jsonrpc": "2.0", "method": method, "params": params});
        if !id.is_null() {
            message["id"] = id;
        }
        message.to_string()
    };
    calls.into_iter().map(message).collect()
}

#[tokio::test]
async fn shadow_counts_of_policies_are_what_enforcement_refuses() {
    let mut all = 0;
    for caller in ["ann", "bob"] {
        let settings = Files::new().settings();
        let metrics = settings.metrics.clone();
        let tried = Proxy::with(settings, policed("shadow-authorization", caller));
        let enforced = Proxy::new(&Files::new(), policed("authorization", caller));
        let mut refused = 0;
        for call in recorded() {
            let (context, answer) = tried.observed([10, 244, 0, 9], post("application/json", call.clone())).await;
            assert_eq!((answer.status, answer.text.as_str()), (200, "done"), "{call}");
            assert_eq!(tried.forwarded().pop().unwrap().body, call);
            let counted = context.shadows().is_some_and(|shadows| shadows.findings().iter().any(Finding::refuses));
            let is_refused = enforced.post(call.clone()).await.status == 403;
            assert_eq!(counted, is_refused, "{caller}: {call}");
            refused += usize::from(is_refused);
        }
        let line = format!(
            r#"mcp_runner_would_refuse_total{{guard="shadow-authorization",webhook="",subject="call"}} {refused}"#
        );
        let report = metrics.encode();
        assert!(report.lines().any(|found| found == line), "{line} is not in {report}");
        all += refused;
    }
    assert!(all > 8, "{all} refusals");
}

/// An answer, with its type, and the coding that it claims.
fn answered(text: &str, kind: &'static str, coding: Option<&'static str>) -> Response<Body> {
    let builder = Response::builder().header("content-type", kind);
    let builder = coding.into_iter().fold(builder, |builder, coding| builder.header("content-encoding", coding));
    builder.body(full(text.to_owned())).unwrap()
}

#[tokio::test]
async fn hidden_entries_are_counted_and_the_list_is_left_as_it_is() {
    let list = |member: &str, names: &[&str], more: &str| {
        let entries: Vec<_> = names.iter().map(|name| json!({"name": name, "description": more})).collect();
        json!({"jsonrpc": "2.0", "id": 7, "result": {member: entries}}).to_string()
    };
    let tools = list("tools", &["echo", "read", "write"], "");
    let event = format!("event: message\ndata: {tools}\n\n");
    let long = list("tools", &["echo", "read"], &"x".repeat(1 << 20));
    let odd = r#"{"jsonrpc":"2.0","id":7,"result":{"tools":[{"name":"a","name":"b"}]}}"#;
    let error = r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"broke"}}"#;
    for (name, method, text, kind, coding, hidden) in [
        ("a list", "tools/list", &*tools, "application/json", None, Some(2)),
        ("a list in an event", "tools/list", &event, "text/event-stream", None, Some(2)),
        ("prompts", "prompts/list", &list("prompts", &["secret", "x"], ""), "application/json", None, Some(2)),
        ("no list", "tools/list", error, "application/json", None, Some(0)),
        ("a list that can be read in two ways", "tools/list", odd, "application/json", None, None),
        ("a list in a coding", "tools/list", &tools, "application/json", Some("gzip"), None),
        ("a list that is too long to look at", "tools/list", &long, "application/json", None, None),
        ("a result that looks like a list", "tools/call", &tools, "application/json", None, Some(0)),
    ] {
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": {"name": "echo"}}).to_string();
        let copy = text.to_owned();
        let answer = move || answered(&copy, kind, coding);
        let settings = Files::new().settings();
        let tried = Proxy::answering(settings, policed("shadow-authorization", "bob"), answer.clone());
        let (context, seen) = tried.observed([10, 244, 0, 9], post("application/json", body.clone())).await;
        assert_eq!((seen.status, seen.text.as_str()), (200, text), "{name}");
        let shadows = context.own_shadows();
        shadows.done().await;
        let found: Vec<_> = shadows.findings().into_iter().map(|finding| finding.found).collect();
        let entries = found.iter().map(|found| if let Found::Hidden(entries) = found { *entries } else { 0 }).sum();
        let failed = found.iter().any(|found| matches!(found, Found::Decision(Outcome::Failed, ..)));
        assert_eq!((!failed).then_some(entries), hidden, "{name}: {found:?}");

        let enforced = Proxy::answering(Files::new().settings(), policed("authorization", "bob"), answer);
        let seen = enforced.post(body).await;
        let left = |text: &str| text.matches("\"name\"").count();
        match hidden {
            Some(hidden) if method.ends_with("/list") => assert_eq!(left(text) - left(&seen.text), hidden, "{name}"),
            // Enforcement filters a list that is too long to look at in shadow.
            None if text.len() < 1 << 20 => assert_eq!(seen.status, 500, "{name}: {seen:?}"),
            _ => {}
        }
    }
}

#[tokio::test]
async fn policies_in_shadow_and_in_force_each_count_their_own() {
    let all = json!({"type": "authorization", "parameters": {"config_data": {"cedar": {"policies": [
        "permit(principal, action, resource);",
        r#"forbid(principal, action, resource == Tool::"write");"#,
    ]}}}});
    let mut entries = policed("shadow-authorization", "bob");
    entries.as_array_mut().unwrap().insert(4, all);
    let proxy = Proxy::new(&Files::new(), entries);
    for (tool, status, counts) in [("echo", 200, false), ("read", 200, true), ("write", 403, false)] {
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": tool}}).to_string();
        let (context, answer) = proxy.observed([10, 244, 0, 9], post("application/json", body)).await;
        let counted = context.shadows().is_some_and(|shadows| shadows.findings().iter().any(Finding::refuses));
        assert_eq!((answer.status, counted), (status, counts), "{tool}");
    }
}
