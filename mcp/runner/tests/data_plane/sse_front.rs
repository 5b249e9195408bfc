//! HTTP with server-sent events in front of one process that many clients share (toolhive-runner §1.12, toolhive-0.63 §4.3).

use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::stdio::{has_read, kill, node_stdio, read, recorded};
use crate::stdio_faults::faults;
use crate::support::{EventStream, INITIALIZE, Issuer, Runner, SdkClient, Signer, eventually, go, node_server, signal};
use crate::tool_filter::filter;

fn sse() -> Value {
    json!({"proxy_mode": "sse"})
}

fn url(runner: &Runner) -> String {
    format!("http://{}/sse", runner.address)
}

fn call(id: &Value, tool: &str, arguments: &Value) -> String {
    let params = json!({"name": tool, "arguments": arguments});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
}

#[tokio::test]
async fn a_client_of_the_sdk_lists_calls_hears_progress_and_cancels() {
    let directory = TempDir::new().unwrap();
    let runner = Runner::stdio(&recorded(directory.path(), &node_stdio()), &sse()).await;
    let mut client = SdkClient::connect(&url(&runner)).await;
    let tools = client.ask(json!({"do": "list"})).await;
    assert!(tools["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "echo"), "{tools}");
    assert!(client.call("echo", json!({"message": "there"})).await.ends_with("there"));
    let quick = json!({"duration": 1, "steps": 2});
    client.ask(json!({"do": "call", "name": "trigger-long-running-operation", "args": quick, "progress": true})).await;
    assert!(client.heard.iter().any(|line| line["progress"]["progress"] == 1), "{:?}", client.heard);

    let slow = json!({"do": "start", "name": "trigger-long-running-operation", "args": {"duration": 50, "steps": 100}, "progress": true});
    client.ask(slow).await;
    client.heard.clear();
    client.hears(|line| line["progress"]["progress"] == 1).await;
    client.ask(json!({"do": "cancel"})).await;
    let cancelled = eventually("the cancellation", || async {
        read(directory.path()).into_iter().find(|line| line["method"] == "notifications/cancelled")
    })
    .await;
    let call = read(directory.path()).into_iter().rfind(|line| line["method"] == "tools/call").unwrap();
    assert_eq!(
        cancelled["params"]["requestId"], call["id"],
        "the process knows the call by another id than the client"
    );
}

#[tokio::test]
async fn calls_with_the_same_ids_at_the_same_time_are_each_answered_to_their_own_session() {
    let runner = Runner::stdio(&[go().into()], &sse()).await;
    let mut sessions = Vec::new();
    for _ in 0..4 {
        sessions.push(EventStream::initialized(&runner).await);
    }
    let ids: Vec<_> = (0..20).map(|n| if n % 2 == 0 { json!(n) } else { json!(n.to_string()) }).collect();
    let name = |client: usize, id: &Value| format!("c{client} {id}");
    let posts = ids.iter().flat_map(|id| {
        sessions.iter().enumerate().map(|(client, session)| {
            let body = call(id, "greet", &json!({"name": name(client, id)}));
            let runner = &runner;
            async move { session.says(runner, &body).await }
        })
    });
    futures::future::join_all(posts).await;
    for (client, session) in sessions.iter_mut().enumerate() {
        let mut answered = Vec::new();
        for _ in &ids {
            let answer = session.message().await;
            assert_eq!(answer["result"]["content"][0]["text"], format!("Hi {}", name(client, &answer["id"])));
            answered.push(answer["id"].clone());
        }
        assert!(ids.iter().all(|id| answered.contains(id)), "{answered:?}");
    }
}

#[tokio::test]
async fn a_call_fails_on_the_stream_when_the_process_is_killed_and_the_session_goes_on_with_the_next() {
    let directory = TempDir::new().unwrap();
    let runner = Runner::stdio(&recorded(directory.path(), &node_stdio()), &sse()).await;
    let mut client = SdkClient::connect(&url(&runner)).await;
    client.ask(json!({"do": "start", "name": "trigger-long-running-operation", "args": {"duration": 50, "steps": 100}, "progress": true})).await;
    client.hears(|line| line["progress"]["progress"] == 1).await;
    kill(directory.path());
    let failure = client.fails(json!({"do": "finish"})).await;
    assert_eq!(failure["code"], -32603, "{failure}");
    assert!(failure["failed"].as_str().unwrap().contains("process ended"), "{failure}");
    assert!(client.call("echo", json!({"message": "again"})).await.ends_with("again"));
}

#[tokio::test]
async fn a_client_that_goes_on_without_a_handshake_is_served_by_a_server_that_insists_on_one() {
    // As after a restart of the proxy: clients open their stream again, and go on. The Go SDK refuses calls before a handshake.
    let runner = Runner::stdio(&[go().into()], &sse()).await;
    let mut session = EventStream::open(&runner, &[]).await;
    session.says(&runner, &call(&json!(1), "greet", &json!({"name": "Ada"}))).await;
    assert_eq!(session.message().await["result"]["content"][0]["text"], "Hi Ada");
}

#[tokio::test]
async fn a_call_that_is_not_answered_in_time_fails_on_the_stream_and_is_cancelled_at_the_process() {
    let directory = TempDir::new().unwrap();
    let record = directory.path().join("read");
    let environment = [("TOOLHIVE_PROXY_REQUEST_TIMEOUT", "2s")];
    let runner = Runner::stdio_with(&faults(&record), &sse(), &environment).await;
    let mut session = EventStream::open(&runner, &[]).await;
    // Until the process has started, the handshake is not answered in time either.
    loop {
        session.says(&runner, INITIALIZE).await;
        if session.message().await["result"].is_object() {
            break;
        }
    }
    session.says(&runner, &call(&json!("slow"), "deaf", &json!({}))).await;
    let error = json!({"jsonrpc": "2.0", "id": "slow", "error": {"code": -32000, "message": "Timeout"}});
    assert_eq!(session.message().await, error);
    let cancelled = eventually("the cancellation", || async {
        read(directory.path()).into_iter().find(|line| line["method"] == "notifications/cancelled")
    })
    .await;
    let asked = read(directory.path()).into_iter().find(|line| line["method"] == "tools/call").unwrap();
    assert_eq!(cancelled["params"]["requestId"], asked["id"]);
    session.says(&runner, &call(&json!(7), "ok", &json!({}))).await;
    assert_eq!(session.message().await["result"]["content"][0]["text"], "fine");
}

#[tokio::test]
async fn an_answer_comes_however_many_notifications_are_before_it() {
    let directory = TempDir::new().unwrap();
    let runner = Runner::stdio(&faults(&directory.path().join("read")), &sse()).await;
    let mut session = EventStream::initialized(&runner).await;
    let params = json!({"name": "flood", "_meta": {"progressToken": "mine"}});
    let flood = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}).to_string();
    session.says(&runner, &flood).await;
    loop {
        let message = session.message().await;
        if message["id"] == 7 {
            break assert_eq!(message["result"]["content"][0]["text"], "after the flood");
        }
        assert_eq!(message["params"]["progressToken"], "mine");
    }
}

#[tokio::test]
async fn http_around_the_pipe_follows_the_table() {
    let runner = Runner::stdio(&[go().into()], &sse()).await;
    let mut session = EventStream::initialized(&runner).await;
    let (known, unknown) = (session.messages.clone(), "/messages?session_id=nobodys".to_owned());
    let conflict = format!("{known}&sessionId=other");
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let modern = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
    let response = r#"{"jsonrpc":"2.0","id":9,"result":{}}"#;
    let json_type = ("content-type", "application/json");
    let text_type = ("content-type", "text/plain");
    for (method, path, header, body, status, said) in [
        (Method::GET, "/mcp", json_type, "", 404, "Not Found"),
        (Method::POST, "/sse", json_type, ping, 405, "Method Not Allowed"),
        (Method::DELETE, "/sse", json_type, "", 405, "Method Not Allowed"),
        (Method::GET, &*known, json_type, "", 405, "Method Not Allowed"),
        (Method::POST, "/messages", json_type, ping, 400, "session_id is missing"),
        (
            Method::POST,
            &*unknown,
            json_type,
            ping,
            404,
            r#""id":1,"error":{"code":-32001,"message":"Session not found"}"#,
        ),
        (Method::POST, &*conflict, json_type, ping, 404, "-32001"),
        (Method::POST, &*known, ("mcp-session-id", "other"), ping, 404, "-32001"),
        (Method::POST, &*known, text_type, ping, 415, "application/json"),
        (Method::POST, &*known, json_type, "{", 400, ""),
        (Method::POST, &*known, json_type, "[]", 400, "batch"),
        (Method::POST, &*known, json_type, response, 400, "Responses are not accepted"),
        (Method::POST, &*known, json_type, modern, 400, r#""code":-32022"#),
        (Method::POST, &*known, json_type, modern, 400, r#""supported":["2025-11-25"]"#),
    ] {
        let headers = if header == text_type { vec![header] } else { vec![json_type, header] };
        let headers = if header == json_type { vec![json_type] } else { headers };
        let answer = runner.request(method.clone(), path, &headers, body).await;
        assert_eq!(answer.status, status, "{method} {path} {body}: {answer:?}");
        assert!(answer.body.contains(said), "{method} {path} {body}: {answer:?}");
    }
    // None of these reached the stream.
    session.says(&runner, r#"{"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"debug"}}"#).await;
    assert_eq!(session.message().await, json!({"jsonrpc": "2.0", "id": 2, "result": {}}));
    session.says(&runner, r#"{"jsonrpc":"2.0","id":3,"method":"no/such"}"#).await;
    assert_eq!(session.message().await["error"]["code"], -32601);
}

#[tokio::test]
async fn a_client_is_told_a_url_through_the_proxies_in_front_that_the_document_trusts() {
    let mut members = json!({"proxy_mode": "sse", "trust_proxy_headers": true});
    let headers = [("x-forwarded-proto", "https"), ("x-forwarded-host", "mcp.example"), ("x-forwarded-prefix", "/a")];
    let trusting = Runner::stdio(&["cat".into()], &members).await;
    let endpoint = EventStream::open(&trusting, &headers).await.endpoint;
    assert!(endpoint.starts_with("https://mcp.example/a/messages?session_id="), "{endpoint}");
    members["trust_proxy_headers"] = json!(false);
    members["endpoint_prefix"] = json!("/b");
    let other = Runner::stdio(&["cat".into()], &members).await;
    let endpoint = EventStream::open(&other, &headers).await.endpoint;
    assert!(endpoint.starts_with(&format!("https://{}/b/messages?session_id=", other.address)), "{endpoint}");
}

#[tokio::test]
async fn a_session_takes_messages_of_the_principal_alone_that_opened_it() {
    let signer = Signer::ec("a");
    let issuer = Issuer::start(vec![signer.clone()]).await;
    let members = json!({"proxy_mode": "sse", "oidc_config": issuer.login(&json!({}))});
    let arguments = ["--allow-endpoint-cidr", "127.0.0.0/8", "--", go().to_str().unwrap()].map(Into::into);
    let runner = Runner::start("stdio", &members, &arguments, &[]).await;
    let token = |subject: &str| format!("Bearer {}", signer.sign("ES256", &issuer.claims(subject)));
    let (alice, bob) = (token("alice"), token("bob"));
    let mut session = EventStream::open(&runner, &[("authorization", &alice)]).await;
    let foreign = session.post(&runner, &[("authorization", &bob)], INITIALIZE).await;
    assert_eq!((foreign.status, &foreign.message()["error"]["code"]), (404, &json!(-32001)), "{foreign:?}");
    assert_eq!(session.post(&runner, &[], INITIALIZE).await.status, 401);
    assert_eq!(session.post(&runner, &[("authorization", &alice)], INITIALIZE).await.status, 202);
    assert_eq!(session.message().await["result"]["serverInfo"]["name"], "everything");
}

#[tokio::test]
async fn lists_that_change_are_told_to_every_session_and_nothing_that_the_server_says_of_them() {
    // Says that its tools changed, for one client as it were, and something that is for nobody, whenever it hears a notification.
    let script = r#"while read -r line; do case $line in
        *notifications/poke*) for method in roots/list_changed message tools/list_changed; do
            echo '{"jsonrpc":"2.0","method":"notifications/'$method'","params":{"secret":"of one client"}}'; done;;
    esac; done"#;
    let runner = Runner::stdio(&["sh".into(), "-c".into(), script.into()], &sse()).await;
    let mut sessions = [EventStream::open(&runner, &[]).await, EventStream::open(&runner, &[]).await];
    sessions[0].says(&runner, r#"{"jsonrpc":"2.0","method":"notifications/poke"}"#).await;
    for session in &mut sessions {
        let event = session.next().await.unwrap();
        assert_eq!(event.data.unwrap(), r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#);
    }
}

#[tokio::test]
async fn a_session_ends_with_its_stream_and_so_do_its_calls_and_subscriptions() {
    let directory = TempDir::new().unwrap();
    let record = directory.path().join("read");
    let runner = Runner::stdio(&faults(&record), &sse()).await;
    let mut session = EventStream::initialized(&runner).await;
    let subscribe = r#"{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"demo://a"}}"#;
    session.says(&runner, subscribe).await;
    assert_eq!(session.message().await, json!({"jsonrpc": "2.0", "id": 1, "result": {}}));
    session.says(&runner, &call(&json!(2), "deaf", &json!({}))).await;
    let methods = ["initialize", "notifications/initialized", "resources/subscribe", "tools/call"];
    has_read(directory.path(), &methods).await;
    let messages = session.messages.clone();
    drop(session);
    let methods = eventually("the process to hear of both", || async {
        let lines = read(directory.path());
        (lines.len() == 6).then(|| lines.iter().map(|line| line["method"].clone()).collect::<Vec<_>>())
    })
    .await;
    assert!(methods.contains(&json!("notifications/cancelled")), "{methods:?}");
    assert!(methods.contains(&json!("resources/unsubscribe")), "{methods:?}");
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let late = runner.request(Method::POST, &messages, &[("content-type", "application/json")], ping).await;
    assert_eq!(late.status, 404, "{late:?}");
}

#[tokio::test]
async fn a_message_that_waits_for_the_process_ends_with_its_session() {
    // It reads nothing, and ends with the runner: the handshake is not answered, and there is no room for many long messages.
    let deaf = ["sh".into(), "-c".into(), "exec tail -f --pid=$PPID /dev/null".into()];
    let runner = Runner::stdio(&deaf, &sse()).await;
    let long = |length| {
        json!({"jsonrpc": "2.0", "method": "notifications/x", "params": {"x": "x".repeat(length)}}).to_string()
    };
    // Together longer than the lines of one client that may wait for a process.
    let [first, second] = [3 << 20, 3 << 20].map(long);
    for (before, waits) in [(vec![], call(&json!(1), "echo", &json!({}))), (vec![first], second)] {
        let session = EventStream::open(&runner, &[]).await;
        for message in before {
            session.says(&runner, &message).await;
        }
        let messages = session.messages.clone();
        let (answer, ()) = tokio::join!(
            runner.request(Method::POST, &messages, &[("content-type", "application/json")], &waits),
            async {
                // The stream, the message, and the question.
                eventually("the message to wait", || async {
                    let metrics = runner.get("/metrics").await.body;
                    metrics.lines().any(|line| line == "mcp_runner_requests_in_flight 3").then_some(())
                })
                .await;
                drop(session);
            }
        );
        assert_eq!(answer.status, 404, "{answer:?}");
    }
}

#[tokio::test]
async fn more_calls_than_a_session_may_have_under_way_are_refused_and_none_is_lost() {
    let directory = TempDir::new().unwrap();
    let runner = Runner::stdio(&recorded(directory.path(), &node_stdio()), &sse()).await;
    let mut session = EventStream::initialized(&runner).await;
    let slow = json!({"duration": 30, "steps": 1});
    let mut accepted = 0;
    let refused = loop {
        let body = call(&json!(accepted), "trigger-long-running-operation", &slow);
        let answer = session.post(&runner, &[], &body).await;
        if answer.status != 202 {
            break answer;
        }
        accepted += 1;
    };
    assert_eq!((accepted, refused.status, &refused.message()["id"]), (100, 429, &json!(100)), "{refused:?}");
    // Another session is not concerned.
    let mut other = EventStream::open(&runner, &[]).await;
    other.says(&runner, r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).await;
    assert_eq!(other.message().await["id"], 1);
    kill(directory.path());
    let mut failed = 0;
    while failed < accepted {
        failed += i32::from(session.message().await["error"]["code"] == -32603);
    }
    session.says(&runner, &call(&json!("after"), "echo", &json!({"message": "x"}))).await;
    // The new process may say to all that its lists changed.
    while session.message().await["id"] != "after" {}
}

#[tokio::test]
async fn a_client_that_does_not_read_is_told_which_answers_did_not_fit_and_misses_none_silently() {
    let directory = TempDir::new().unwrap();
    let runner = Runner::stdio(&faults(&directory.path().join("read")), &sse()).await;
    let mut session = EventStream::initialized(&runner).await;
    for id in 0..10 {
        session.says(&runner, &call(&json!(id), "long", &json!({}))).await;
    }
    runner.logged("its client reads too slowly").await;
    let (mut results, mut errors) = (0, 0);
    for _ in 0..10 {
        let answer = session.message().await;
        match answer["error"]["message"].as_str() {
            Some(error) => errors += i32::from(error.contains("the answer was dropped")),
            None => results += i32::from(answer["result"]["content"][0]["text"].as_str().unwrap().len() == 4 << 20),
        }
    }
    assert!(results > 0 && errors > 0 && results + errors == 10, "{results} results, {errors} errors");
    // There is room again.
    session.says(&runner, &call(&json!("small"), "ok", &json!({}))).await;
    assert_eq!(session.message().await["result"]["content"][0]["text"], "fine");
}

#[tokio::test]
async fn a_stream_goes_on_while_the_proxy_ends_until_its_calls_are_answered() {
    let mut runner = Runner::stdio(&["node".into(), node_server().into(), "stdio".into()], &sse()).await;
    let mut idle = EventStream::initialized(&runner).await;
    let mut session = EventStream::open(&runner, &[]).await;
    session
        .says(&runner, &call(&json!(1), "trigger-long-running-operation", &json!({"duration": 3, "steps": 1})))
        .await;
    signal("TERM", runner.pid());
    // The server says to all that its lists changed, early on.
    while let Some(event) = idle.next().await {
        assert!(event.data.unwrap().contains("list_changed"), "nothing is due on it");
    }
    while session.message().await["id"] != 1 {}
    assert_eq!(session.next().await, None);
    assert_eq!(runner.ended().await.code(), Some(0));
}

#[tokio::test]
async fn a_tool_that_is_filtered_is_not_seen_on_the_stream_and_a_call_of_it_fails_at_once() {
    let mut members = filter("greet", &["say"]);
    members["proxy_mode"] = json!("sse");
    let runner = Runner::stdio(&[go().into()], &members).await;
    let mut client = SdkClient::connect(&url(&runner)).await;
    let listed = client.ask(json!({"do": "list"})).await;
    let tools: Vec<_> = listed["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert_eq!(tools, ["say"], "{listed}");
    assert_eq!(client.call("say", json!({"name": "Ada"})).await, "Hi Ada");
    let failed = client.fails(json!({"do": "call", "name": "greet", "args": {"name": "Ada"}})).await;
    assert!(failed["failed"].as_str().unwrap().contains("tool not found"), "{failed}");
}
