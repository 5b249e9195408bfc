//! The requests to webhooks, their order, and their effect on the request to the backend.

use std::sync::mpsc;
use std::time::Duration;

use http::HeaderValue;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::task::{spawn_blocking, yield_now};

use crate::endpoint::{Endpoint, Reply};
use crate::support::{CALL, Files, Log, Proxy, authority, chain, entry, local_server, post, webhook};

/// Webhooks under one authority, and the files to call them with.
struct Hooks {
    files: Files,
    ca: portcullis_pki::Ca,
}

impl Hooks {
    fn new() -> Self {
        let (files, ca) = (Files::new(), authority("ours"));
        files.write("/ca.crt", ca.cert_pem());
        Self { files, ca }
    }

    async fn endpoint(&self, reply: Reply) -> Endpoint {
        Endpoint::start(Some(local_server(&self.ca)), move |_| reply.clone()).await
    }

    fn proxy(&self, entries: Vec<Value>) -> Proxy {
        Proxy::new(&self.files, chain(entries))
    }
}

fn fail(endpoint: &Endpoint) -> Value {
    webhook(&endpoint.url, "fail", json!({}))
}

fn patch(path: &str, value: &str) -> Reply {
    Reply::patch(&format!(r#"[{{"op":"add","path":"/mcp_request/{path}","value":{value}}}]"#))
}

#[tokio::test]
async fn a_webhook_is_told_the_request_the_caller_and_the_place_and_nothing_more() {
    let hooks = Hooks::new();
    let endpoint = hooks.endpoint(Reply::allow()).await;
    let proxy = hooks.proxy(vec![entry("validating-webhook", vec![fail(&endpoint)])]);
    let mut request = post("application/json; charset=utf-8", CALL);
    request.headers_mut().insert("authorization", HeaderValue::from_static("Bearer secret"));
    assert_eq!(proxy.send(request).await.status, 200);

    let call = endpoint.calls().remove(0);
    let text = std::str::from_utf8(&call.body).unwrap();
    assert!(!text.contains("secret") && !call.headers.contains_key("authorization"), "{call:?}");
    assert!(!call.headers.contains_key("x-toolhive-signature"), "{call:?}");
    assert_eq!(call.headers["content-type"], "application/json");
    let position = |key: &str| text.find(&format!("\"{key}\":")).unwrap();
    let keys = ["version", "uid", "timestamp", "principal", "mcp_request", "context"];
    assert!(keys.windows(2).all(|pair| position(pair[0]) < position(pair[1])), "{text}");

    let mut review = call.json();
    let now = Timestamp::now().as_second();
    let timestamp: Timestamp = review["timestamp"].as_str().unwrap().parse().unwrap();
    assert!((now - timestamp.as_second()).abs() < 60);
    let uid: uuid::Uuid = review["uid"].as_str().unwrap().parse().unwrap();
    assert_eq!(uid.get_version_num(), 4);
    let issued = review["principal"]["claims"]["iat"].as_i64().unwrap();
    assert!((now - issued).abs() < 60);
    for key in ["uid", "timestamp"] {
        review[key] = Value::Null;
    }
    assert_eq!(
        review,
        json!({
            "version": "v0.1.0", "uid": null, "timestamp": null,
            "principal": {
                "sub": "alice", "name": "Local User: alice", "email": "alice@localhost",
                "claims": {"sub": "alice", "iss": "toolhive-local", "aud": "toolhive", "exp": issued + 86_400,
                    "iat": issued, "nbf": issued, "email": "alice@localhost", "name": "Local User: alice"},
            },
            "mcp_request": serde_json::from_str::<Value>(CALL).unwrap(),
            "context": {"server_name": "demo", "source_ip": "10.244.0.9:51874", "transport": "stdio"},
        })
    );
}

/// M4: mutating in order, then validating.
#[tokio::test]
async fn mutating_webhooks_see_each_others_work_and_validating_ones_the_whole_of_it() {
    let hooks = Hooks::new();
    let first = hooks.endpoint(patch("params/arguments/a", "1")).await;
    let broken = hooks.endpoint(Reply::ok("?")).await;
    let second = hooks.endpoint(patch("params/arguments/b", "2")).await;
    let judges = [hooks.endpoint(Reply::allow()).await, hooks.endpoint(Reply::allow()).await];
    let ignore = webhook(&broken.url, "ignore", json!({}));
    let proxy = hooks.proxy(vec![
        entry("mutating-webhook", vec![fail(&first), ignore, fail(&second)]),
        entry("validating-webhook", judges.iter().map(fail).collect()),
    ]);
    assert_eq!(proxy.post(CALL).await.status, 200);

    let arguments = |endpoint: &Endpoint| endpoint.calls()[0].json()["mcp_request"]["params"]["arguments"].clone();
    assert_eq!(arguments(&first), json!({"text": "hi"}));
    assert_eq!(arguments(&broken), json!({"text": "hi", "a": 1}));
    assert_eq!(arguments(&second), json!({"text": "hi", "a": 1}));
    for judge in &judges {
        assert_eq!(arguments(judge), json!({"text": "hi", "a": 1, "b": 2}));
    }
    let uid = |endpoint: &Endpoint| endpoint.calls()[0].json()["uid"].clone();
    assert_eq!(uid(&judges[0]), uid(&judges[1]));
    assert_ne!(uid(&first), uid(&second));
    assert_eq!(proxy.forwarded()[0].body, CALL.replace("\"hi\"", r#""hi","a":1,"b":2"#));
}

#[tokio::test]
async fn the_first_refusal_ends_it() {
    let hooks = Hooks::new();
    let deny = hooks.endpoint(Reply::ok(r#"{"allowed":false}"#)).await;
    let next = hooks.endpoint(Reply::allow()).await;
    for kind in ["mutating-webhook", "validating-webhook"] {
        let proxy = hooks.proxy(vec![entry(kind, vec![fail(&deny), fail(&next)])]);
        assert_eq!(proxy.post(CALL).await.status, 403, "{kind}");
        assert!(proxy.forwarded().is_empty());
    }
    assert!(next.calls().is_empty());
}

#[tokio::test]
async fn an_untouched_body_leaves_byte_for_byte_and_a_patched_one_keeps_what_the_patch_left_alone() {
    let hooks = Hooks::new();
    let body = "\t{ \"method\":\"tools/call\",\"id\" : -0,\"jsonrpc\":\"2.0\",\
                \"params\":{\"name\":\"echo\",\"arguments\":{\"n\":12345678901234567890.10, \"z\":[ 1 ],\"a\":\"\\u00e9\"}}} \n";
    let allow = hooks.endpoint(Reply::patch("[]")).await;
    let proxy = hooks.proxy(vec![entry("mutating-webhook", vec![fail(&allow)])]);
    assert_eq!(proxy.post(body).await.status, 200);
    assert_eq!(proxy.forwarded()[0].body, body);

    let change = hooks.endpoint(patch("params/arguments/b", "true")).await;
    let proxy = hooks.proxy(vec![entry("mutating-webhook", vec![fail(&change)])]);
    assert_eq!(proxy.post(body).await.status, 200);
    let forwarded = proxy.forwarded().remove(0);
    assert_eq!(
        forwarded.body,
        "{\"method\":\"tools/call\",\"id\":-0,\"jsonrpc\":\"2.0\",\"params\":{\"name\":\"echo\",\"arguments\":\
         {\"n\":12345678901234567890.10,\"z\":[ 1 ],\"a\":\"\\u00e9\",\"b\":true}}}"
    );
    assert_eq!(forwarded.headers["content-length"], forwarded.body.len().to_string());
}

#[tokio::test]
async fn the_routing_headers_follow_a_patched_name() {
    let hooks = Hooks::new();
    let rename = hooks.endpoint(patch("params/name", "\"échange\"")).await;
    let proxy = hooks.proxy(vec![entry("mutating-webhook", vec![fail(&rename)])]);
    let mut request = post("application/json", CALL);
    request.headers_mut().insert("mcp-method", HeaderValue::from_static("tools/call"));
    request.headers_mut().insert("mcp-name", HeaderValue::from_static("echo"));
    assert_eq!(proxy.send(request).await.status, 200);
    let headers = proxy.forwarded().remove(0).headers;
    assert_eq!(headers["mcp-method"], "tools/call");
    assert_eq!(headers["mcp-name"], "=?base64?w6ljaGFuZ2U=?=");
}

#[tokio::test]
async fn a_denial_echoes_the_id_as_it_was_written_and_none_for_a_notification() {
    let hooks = Hooks::new();
    let deny = hooks.endpoint(Reply::ok(r#"{"allowed":false,"message":"internal","reason":"hidden"}"#)).await;
    let proxy = hooks.proxy(vec![entry("validating-webhook", vec![fail(&deny)])]);
    for (id, echoed) in [
        (r#""id":0,"#, r#""id":0,"#),
        (r#""id":-3,"#, r#""id":-3,"#),
        (r#""id":"","#, r#""id":"","#),
        (r#""id":"7","#, r#""id":"7","#),
        ("", ""),
    ] {
        let answer = proxy.post(format!(r#"{{"jsonrpc":"2.0",{id}"method":"ping"}}"#)).await;
        let expected =
            format!(r#"{{"jsonrpc":"2.0",{echoed}"error":{{"code":403,"message":"Request denied by policy"}}}}"#);
        assert_eq!((answer.status, answer.text), (403, expected));
        assert!(!answer.headers.contains_key("mcp-session-id"));
    }
}

#[tokio::test]
async fn a_request_of_one_mebibyte_is_reviewed_and_a_byte_more_is_refused() {
    let hooks = Hooks::new();
    let allow = hooks.endpoint(Reply::allow()).await;
    for kind in ["mutating-webhook", "validating-webhook"] {
        let proxy = hooks.proxy(vec![entry(kind, vec![fail(&allow)])]);
        let body = |length: usize| CALL.replace("hi", &"x".repeat(length - CALL.len() + 2));
        assert_eq!(proxy.post(body(1 << 20)).await.status, 200);
        let answer = proxy.post(body((1 << 20) + 1)).await;
        let error = r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32600,"message":"Request body exceeds maximum size"}}"#;
        assert_eq!((answer.status, answer.text.as_str()), (413, error));
        assert_eq!(proxy.forwarded().len(), 1);
    }
}

/// M5.
#[tokio::test]
async fn a_server_that_only_echoes_denies_the_request_and_the_log_says_why() {
    let hooks = Hooks::new();
    let echo = Endpoint::start(Some(local_server(&hooks.ca)), |call| Reply::ok(call.body.to_vec())).await;
    for (kind, message) in
        [("mutating-webhook", "Request denied by webhook policy"), ("validating-webhook", "Request denied by policy")]
    {
        for policy in ["fail", "ignore"] {
            let log = Log::capture();
            let hook = webhook(&echo.url, policy, json!({"name": "echo-server"}));
            let proxy = hooks.proxy(vec![entry(kind, vec![hook])]);
            let answer = proxy.post(CALL).await;
            assert_eq!(answer.status, 403);
            assert!(answer.text.contains(message), "{}", answer.text);
            let log = log.text();
            let line =
                log.lines().find(|line| line.contains("without `allowed: true`")).unwrap_or_else(|| panic!("{log}"));
            assert!(line.contains("WARN") && line.contains("echo-server"), "{line}");
        }
    }
}

#[tokio::test]
async fn the_log_names_the_webhook_and_what_it_said_or_how_it_failed() {
    let hooks = Hooks::new();
    let deny = hooks.endpoint(Reply::ok("{\"allowed\":false,\"message\":\"no\\nway\",\"reason\":\"Policy\"}")).await;
    let broken = hooks.endpoint(Reply::ok("?")).await;
    for (endpoint, policy, parts) in [
        (&deny, "fail", ["INFO", "webhook denied the request", r"no\nway", "Policy"]),
        (&broken, "fail", ["ERROR", "the request is refused", "invalid response", "expected value"]),
        (&broken, "ignore", ["WARN", "is ignored", "invalid response", "expected value"]),
    ] {
        let log = Log::capture();
        let hook = webhook(&endpoint.url, policy, json!({"name": "the-judge"}));
        hooks.proxy(vec![entry("validating-webhook", vec![hook])]).post(CALL).await;
        let text = log.text();
        let found = text.lines().any(|line| line.contains("the-judge") && parts.iter().all(|part| line.contains(part)));
        assert!(found, "{parts:?} in {text}");
    }
}

#[tokio::test]
async fn one_connection_serves_many_calls() {
    let hooks = Hooks::new();
    let allow = hooks.endpoint(Reply::allow()).await;
    let proxy = hooks.proxy(vec![entry("validating-webhook", vec![fail(&allow)])]);
    for _ in 0..20 {
        assert_eq!(proxy.post(CALL).await.status, 200);
    }
    assert_eq!((allow.calls().len(), allow.connections()), (20, 1));
}

#[tokio::test]
async fn a_timeout_above_ten_seconds_is_honoured() {
    let hooks = Hooks::new();
    let slow = hooks.endpoint(Reply::After(Duration::from_millis(10_500))).await;
    let hook = webhook(&slow.url, "fail", json!({"timeout": "30s"}));
    let proxy = hooks.proxy(vec![entry("validating-webhook", vec![hook])]);
    // The clock stands, and does not jump ahead while the test waits for a socket: not while a thread is at work.
    let (running, stopped) = mpsc::channel::<()>();
    drop(spawn_blocking(move || stopped.recv()));
    tokio::time::pause();
    let (answer, ()) = tokio::join!(proxy.post(CALL), async {
        while slow.calls().is_empty() {
            yield_now().await;
        }
        // Past ten seconds first, and then on to the answer: a limit of ten seconds would end the call in between.
        for step in [10_200, 800] {
            tokio::time::advance(Duration::from_millis(step)).await;
            for _ in 0..100 {
                yield_now().await;
            }
        }
    });
    drop(running);
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn no_webhook_makes_a_call_of_a_hidden_tool() {
    let hooks = Hooks::new();
    let filter = json!({"type": "tool-call-filter", "parameters": {
        "filter_tools": ["say", "echo"], "tools_override": {"shout": {"name": "say"}}}});
    let call = |name: &str| CALL.replace("\"echo\"", &format!("{name:?}"));
    let ping = r#"{"jsonrpc":"2.0","id":7,"method":"ping","params":{}}"#.to_owned();
    let into_call = r#"[{"op":"replace","path":"/mcp_request/method","value":"tools/call"},
        {"op":"add","path":"/mcp_request/params/name","value":"danger"}]"#;
    for (sent, reply, forwarded, error) in [
        (call("say"), patch("params/name", "\"echo\""), Some("echo"), None),
        // Behind the filter, messages have the server's names.
        (call("echo"), patch("params/name", "\"shout\""), Some("shout"), None),
        (call("say"), patch("params/name", "\"danger\""), None, Some("tool not found")),
        (call("say"), patch("params/name", "\"say\""), None, Some("tool not found")),
        (call("say"), patch("params/name", "7"), None, Some("invalid tool call")),
        (ping, Reply::patch(into_call), None, Some("tool not found")),
    ] {
        let endpoint = hooks.endpoint(reply).await;
        let proxy = hooks.proxy(vec![filter.clone(), entry("mutating-webhook", vec![fail(&endpoint)])]);
        let answer = proxy.post(sent.clone()).await;
        let names: Vec<Value> = proxy
            .forwarded()
            .iter()
            .map(|request| serde_json::from_slice::<Value>(&request.body).unwrap()["params"]["name"].clone())
            .collect();
        assert_eq!(names, forwarded.into_iter().collect::<Vec<_>>(), "{sent}: {answer:?}");
        if let Some(error) = error {
            let message: Value = serde_json::from_str(&answer.text).unwrap();
            assert_eq!((&message["error"]["message"], &message["id"]), (&json!(error), &json!(7)), "{sent}");
        }
    }
}
