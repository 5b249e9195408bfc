//! Policies that are tried: what they count is what they refuse and hide once they decide.

use http::{Request, Response};
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
    // The last is an answer to a request that the server has not open.
    let answer = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#.to_owned();
    calls.into_iter().map(message).chain([answer]).collect()
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

/// The entries of a list that `authorization` hides in this answer, and whether it withholds a text.
async fn enforced(
    request: Request<Body>,
    text: &str,
    answer: impl Fn() -> Response<Body> + Clone + Send + Sync + 'static,
) -> (usize, bool) {
    let proxy = Proxy::answering(Files::new().settings(), policed("authorization", "bob"), answer);
    let (_, seen) = proxy.observed([10, 244, 0, 9], request).await;
    let is_withheld = seen.text.contains("internal error");
    let entries = |text: &str| text.matches("\"description\"").count();
    (if is_withheld { 0 } else { entries(text) - entries(&seen.text) }, is_withheld)
}

#[tokio::test]
async fn hidden_entries_are_those_that_enforcement_hides() {
    let list = |member: &str, names: &[&str], more: &str| {
        let entries: Vec<_> = names.iter().map(|name| json!({"name": name, "description": more})).collect();
        json!({"jsonrpc": "2.0", "id": 7, "result": {member: entries}}).to_string()
    };
    let event = |data: &str| format!("event: message\ndata: {data}\n\n");
    let (json, events) = ("application/json", "text/event-stream");
    let tools = list("tools", &["echo", "read", "write"], "");
    let prompts = list("prompts", &["secret", "x"], "");
    let [long, very_long] = [1 << 20, 7 << 20].map(|length| list("tools", &["echo", "read"], &"x".repeat(length)));
    let odd = r#"{"jsonrpc":"2.0","id":7,"result":{"tools":[{"name":"a","name":"b"}]}}"#;
    let error = r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"broke"}}"#;
    let stream = format!("{}{}{}", event(&tools), event(error), event(&tools));
    for (name, method, text, kind, coding, expected) in [
        ("a list", "tools/list", &*tools, json, None, (2, false)),
        ("a list in an event", "tools/list", &event(&tools), events, None, (2, false)),
        ("two lists in a stream", "tools/list", &stream, events, None, (4, false)),
        ("lists on a stream of the client's", "", &stream, events, None, (4, false)),
        ("a list that has no type of MCP", "tools/list", &tools, "text/plain", None, (2, false)),
        ("an event that has none", "tools/list", &event(&tools), "text/plain", None, (0, true)),
        ("prompts", "prompts/list", &prompts, json, None, (2, false)),
        ("no list", "tools/list", error, json, None, (0, false)),
        ("a list that can be read in two ways", "tools/list", odd, json, None, (0, true)),
        ("such a list in an event", "tools/list", &event(odd), events, None, (0, true)),
        ("a list in a coding", "tools/list", &tools, json, Some("gzip"), (0, true)),
        ("a long list", "tools/list", &long, json, None, (1, false)),
        ("a long list in an event", "tools/list", &event(&long), events, None, (1, false)),
        ("a very long list in an event", "tools/list", &event(&very_long), events, None, (1, false)),
        ("a very long list", "tools/list", &very_long, json, None, (1, false)),
        ("a result that looks like a list", "tools/call", &tools, json, None, (2, false)),
    ] {
        let request = || match method {
            "" => Request::get("/mcp").header("accept", events).body(full("")).unwrap(),
            _ => {
                post(json, json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": {"name": "echo"}}).to_string())
            }
        };
        let copy = text.to_owned();
        let answer = move || answered(&copy, kind, coding);
        assert_eq!(enforced(request(), text, answer.clone()).await, expected, "{name}");

        let settings = Files::new().settings();
        let tried = Proxy::answering(settings, policed("shadow-authorization", "bob"), answer);
        let (context, seen) = tried.observed([10, 244, 0, 9], request()).await;
        assert!(seen.status == 200 && seen.text == text, "{name}");
        let shadows = context.own_shadows();
        shadows.done().await;
        let found: Vec<_> = shadows.findings().into_iter().map(|finding| finding.found).collect();
        let entries: usize =
            found.iter().map(|found| if let Found::Hidden(entries) = found { *entries } else { 0 }).sum();
        let failed = found.iter().any(|found| matches!(found, Found::Decision(Outcome::Failed, ..)));
        assert_eq!((entries, failed), expected, "{name}: {found:?}");
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
