//! Servers of the legacy HTTP+SSE transport behind the proxy (toolhive-runner §1.10, toolhive-0.63 §4.2).

use http::{Method, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::support::{INITIALIZE, Issuer, Recorded, Recorder, Runner, SdkClient, Server, Signer, eventually, within};

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];
const CALL: &str =
    r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"get-sum","arguments":{"a":1,"b":2}}}"#;

async fn runner(backend: &str, members: &Value) -> Runner {
    Runner::start("sse", members, &["--backend".into(), backend.into()], &[]).await
}

fn stream_of(runner: &Runner) -> String {
    format!("http://{}/sse", runner.address)
}

/// Opens a stream and returns it with the URL of its endpoint.
pub(crate) async fn open(runner: &Runner) -> (Response<Incoming>, String) {
    let request = runner.build(Method::GET, "/sse", &[("accept", "text/event-stream")], "");
    let mut stream = runner.send(request).await;
    assert_eq!(stream.status(), 200);
    let frame = within("the endpoint", stream.body_mut().frame()).await.unwrap().unwrap().into_data().unwrap();
    let text = String::from_utf8(frame.to_vec()).unwrap();
    let url = text.lines().find_map(|line| line.strip_prefix("data:")).unwrap().trim().to_owned();
    (stream, url)
}

/// The same at a server made of a socket; its end of the stream, too.
async fn open_at(server: &mut Recorder, runner: &Runner) -> (Response<Incoming>, String, Recorded) {
    let ((stream, url), request) = tokio::join!(open(runner), serve(server));
    (stream, url, request)
}

/// The server's end alone.
pub(crate) async fn serve(server: &mut Recorder) -> Recorded {
    let mut request = server.next().await;
    request.part("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n").await;
    request.part("event: endpoint\ndata: /message?sessionId=x\n\n").await;
    request
}

/// What comes next on a stream.
pub(crate) async fn heard(stream: &mut Response<Incoming>) -> String {
    let frame = within("what the client hears", stream.body_mut().frame()).await.unwrap().unwrap();
    String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap()
}

pub(crate) async fn post(runner: &Runner, url: &str) -> u16 {
    runner.request(Method::POST, url, &JSON, INITIALIZE).await.status
}

/// Shows the tool `echo` alone.
fn filtered() -> Value {
    let parameters = json!({"filter_tools": ["echo"]});
    json!({"middleware_configs": [
        {"type": "tool-filter", "parameters": parameters},
        {"type": "tool-call-filter", "parameters": parameters},
        {"type": "mcp-parser", "parameters": {}},
    ]})
}

/// Asks `hook` about every message.
fn reviewed(kind: &str, hook: &Recorder) -> Value {
    let webhook = json!({
        "name": "w", "url": hook.url(), "timeout": 5_000_000_000_u64, "failure_policy": "fail",
        "tls_config": {"insecure_skip_verify": true},
    });
    json!({"middleware_configs": [
        {"type": "auth", "parameters": {}},
        {"type": "mcp-parser", "parameters": {}},
        {"type": kind, "parameters": {"webhooks": [webhook], "server_name": "demo", "transport": "sse"}},
    ]})
}

async fn review(request: Recorded, allowed: bool) {
    let answer = json!({"version": "v0.1.0", "uid": "x", "allowed": allowed}).to_string();
    request.json("200 OK", "", &answer).await;
}

#[tokio::test]
async fn two_clients_at_once_get_their_own_answers_and_hear_their_own_progress() {
    let server = Server::node_sse().await;
    let runner = runner(&server.url(), &json!({})).await;
    let mut first = SdkClient::connect(&stream_of(&runner)).await;
    let mut second = SdkClient::connect(&stream_of(&runner)).await;
    // Their requests have the same ids.
    for round in 0..5 {
        let [one, other] = ["one", "other"].map(|name| format!("{name} {round}"));
        let answers =
            tokio::join!(first.call("echo", json!({"message": one})), second.call("echo", json!({"message": other})));
        assert_eq!(answers, (format!("Echo: {one}"), format!("Echo: {other}")));
    }
    let slow = json!({
        "do": "call", "name": "trigger-long-running-operation", "args": {"duration": 1, "steps": 2}, "progress": true,
    });
    tokio::join!(first.ask(slow), second.call("echo", json!({"message": "x"})));
    assert!(first.heard.iter().any(|line| line["progress"]["progress"] == 1), "{:?}", first.heard);
    second.ask(json!({"do": "ping"})).await;
    assert!(second.heard.iter().all(|line| line.get("progress").is_none()), "{:?}", second.heard);
}

#[tokio::test]
async fn a_client_neither_sees_nor_calls_a_tool_that_is_filtered_out() {
    let server = Server::node_sse().await;
    let runner = runner(&server.url(), &filtered()).await;
    let mut client = SdkClient::connect(&stream_of(&runner)).await;
    let listed = client.ask(json!({"do": "list"})).await;
    let tools: Vec<_> = listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(tools, ["echo"], "{listed}");
    assert_eq!(client.call("echo", json!({"message": "x"})).await, "Echo: x");
    let failed = client.fails(json!({"do": "call", "name": "get-sum", "args": {"a": 1, "b": 2}})).await;
    assert!(failed["failed"].as_str().unwrap().contains("tool not found"), "{failed}");

    // A denial is the answer to the POST: it never reaches the server, nor the stream.
    let (_stream, url) = open(&runner).await;
    let denied = runner.request(Method::POST, &url, &JSON, CALL).await;
    // An error status: a client does not wait for an answer on the stream then.
    assert_eq!(denied.status, 400, "{}", denied.body);
    assert!(denied.body.contains("tool not found"), "{}", denied.body);
}

#[tokio::test]
async fn a_client_does_not_wait_for_a_list_that_is_withheld() {
    let mut server = Recorder::start().await;
    let runner = runner(&server.url(), &filtered()).await;
    let (mut client, _, mut request) = open_at(&mut server, &runner).await;
    let list = r#"{"jsonrpc":"2.0","id":7,"result":{"tools":[{"name":"echo","NAME":"hidden"}]}}"#;
    request.part(&format!("event: message\ndata: {list}\n\n")).await;
    let error = r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"internal error"}}"#;
    assert_eq!(heard(&mut client).await, format!("event: message\ndata: {error}\n\n"));
}

#[tokio::test]
async fn a_call_that_a_webhook_denies_is_refused_at_once_and_does_not_reach_the_server() {
    for kind in ["validating-webhook", "mutating-webhook"] {
        let (mut server, mut hook) = (Recorder::start().await, Recorder::start().await);
        let runner = runner(&server.url(), &reviewed(kind, &hook)).await;
        let (_client, url, _request) = open_at(&mut server, &runner).await;
        let call = runner.request(Method::POST, &url, &JSON, CALL);
        let (denied, ()) = tokio::join!(call, async { review(hook.next().await, false).await });
        assert_eq!((denied.status, &denied.message()["id"]), (403, &json!(7)), "{kind}: {denied:?}");
        assert!(server.is_quiet(), "{kind}");
    }
}

#[tokio::test]
async fn a_client_does_not_wait_for_the_answer_to_a_call_that_a_webhook_denies() {
    let server = Server::node_sse().await;
    let mut hook = Recorder::start().await;
    let runner = runner(&server.url(), &reviewed("validating-webhook", &hook)).await;
    tokio::spawn(async move {
        loop {
            let request = hook.next().await;
            let is_call = String::from_utf8_lossy(&request.body).contains("tools/call");
            review(request, !is_call).await;
        }
    });
    let mut client = SdkClient::connect(&stream_of(&runner)).await;
    let failed = client.fails(json!({"do": "call", "name": "echo", "args": {"message": "x"}})).await;
    assert!(failed["failed"].as_str().unwrap().contains("403"), "{failed}");
}

#[tokio::test]
async fn a_message_that_is_too_long_does_not_reach_the_server() {
    let mut server = Recorder::start().await;
    let limit = json!({"middleware_configs": [
        {"type": "bodylimit", "parameters": {"max_bytes": INITIALIZE.len() - 1}},
        {"type": "mcp-parser", "parameters": {}},
    ]});
    let runner = runner(&server.url(), &limit).await;
    let (_client, url, _request) = open_at(&mut server, &runner).await;
    assert_eq!(post(&runner, &url).await, 413);
    assert!(server.is_quiet());
}

#[tokio::test]
async fn a_message_needs_the_session_of_an_open_stream() {
    let server = Server::node_sse().await;
    let runner = runner(&server.url(), &json!({"endpoint_prefix": "/gateway"})).await;
    let (stream, url) = open(&runner).await;
    let url = url.strip_prefix("/gateway").unwrap().to_owned();
    assert_eq!(post(&runner, &url).await, 202);
    for refused in ["/message", "/message?sessionId=absent", &format!("{url}&session_id=absent")] {
        assert_eq!(post(&runner, refused).await, 404, "{refused}");
    }
    drop(stream);
    eventually("the session to end", || async { (post(&runner, &url).await == 404).then_some(()) }).await;
}

#[tokio::test]
async fn no_message_waits_longer_than_its_session_is_open() {
    for (ends, by_client) in [("the client", true), ("the server", false)] {
        let mut server = Recorder::start().await;
        let runner = runner(&server.url(), &json!({})).await;
        let (stream, url, at_server) = open_at(&mut server, &runner).await;
        // The server has it and never answers: npm's does not when it has lost the session.
        let (status, _kept) = tokio::join!(post(&runner, &url), async {
            let request = server.next().await;
            let other_end = if by_client {
                drop(stream);
                Ok(at_server)
            } else {
                drop(at_server);
                Err(stream)
            };
            (request, other_end)
        });
        assert_eq!(status, 502, "{ends} ends the stream");
        assert_eq!(post(&runner, &url).await, 404, "{ends} ends the stream");
    }
}

#[tokio::test]
async fn a_stream_ends_with_its_server_and_another_can_be_opened() {
    let mut server = Server::node_sse().await;
    let runner = runner(&server.url(), &json!({})).await;
    let (stream, url) = open(&runner).await;
    server.kill().await;
    let _ = within("the end of the stream", stream.into_body().collect()).await;
    eventually("the session to end", || async { (post(&runner, &url).await == 404).then_some(()) }).await;
    server.start().await;
    let mut client = SdkClient::connect(&stream_of(&runner)).await;
    assert_eq!(client.call("echo", json!({"message": "again"})).await, "Echo: again");
}

#[tokio::test]
async fn a_stream_whose_endpoint_names_no_session_is_never_shown() {
    let mut server = Recorder::start().await;
    let runner = runner(&server.url(), &json!({})).await;
    let answer = async { runner.request(Method::GET, "/sse", &[], "").await };
    let serve = async {
        let mut request = server.next().await;
        request.part("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n").await;
        request.part("event: endpoint\ndata: //elsewhere.example/message?sessionId=x\n\n").await;
        request
    };
    let (answer, _open) = tokio::join!(answer, serve);
    assert_eq!(answer.status, 502, "{}", answer.body);
}

#[tokio::test]
async fn a_session_that_a_server_gives_out_twice_stays_with_its_first_stream_and_is_free_again_after_it() {
    let mut server = Recorder::start().await;
    let runner = runner(&server.url(), &json!({})).await;
    let (mut first, url, mut at_first) = open_at(&mut server, &runner).await;
    let (second, at_second) = tokio::join!(runner.request(Method::GET, "/sse", &[], ""), serve(&mut server));
    // Its client would be answered on the stream of the first, or the first on its.
    assert_eq!(second.status, 502, "{}", second.body);
    within("the server's second stream to end", at_second.left()).await;
    let (status, ()) = tokio::join!(post(&runner, &url), async {
        server.next().await.json("202 Accepted", "", "").await;
    });
    assert_eq!(status, 202, "the first goes on");
    at_first.part("data: 1\n\n").await;
    assert_eq!(heard(&mut first).await, "data: 1\n\n");

    drop(first);
    within("the server's stream to end", at_first.left()).await;
    within("the session to be free", async {
        let get = || runner.send(runner.build(Method::GET, "/sse", &[], ""));
        while tokio::join!(get(), serve(&mut server)).0.status() != 200 {}
    })
    .await;
}

#[tokio::test]
async fn all_that_the_server_says_passes_as_it_comes_and_its_stream_ends_with_the_clients() {
    let mut server = Recorder::start().await;
    let runner = runner(&server.url(), &json!({})).await;
    let (mut client, _, mut request) = open_at(&mut server, &runner).await;
    // Comments keep the stream open for those between. Events pass however they are written, and before they are whole.
    for said in [": ping - 1\r\n\r\n", "data: {}\nid: 7\n\n", ":\n", "event: message\ndata: {\"half\":", "true}\n\n"] {
        request.part(said).await;
        assert_eq!(heard(&mut client).await, said);
    }
    drop(client);
    within("the server's stream to end", request.left()).await;
}

#[tokio::test]
async fn an_open_stream_shows_the_endpoint_of_its_session_and_ends_with_any_other() {
    let mut server = Recorder::start().await;
    let runner = runner(&server.url(), &json!({"endpoint_prefix": "/gateway"})).await;
    let (mut client, url, mut request) = open_at(&mut server, &runner).await;
    assert_eq!(url, "/gateway/message?sessionId=x");
    request.part("event:endpoint\r\ndata:/message?sessionId=x\r\n\r\n").await;
    let shown = heard(&mut client).await;
    assert_eq!(shown.trim_end(), "event: endpoint\ndata: /gateway/message?sessionId=x");
    request.part("data: 1\n\nevent: endpoint\ndata: /message?sessionId=y\n\ndata: 2\n\n").await;
    let rest = within("the end of the stream", client.into_body().collect()).await.unwrap().to_bytes();
    assert_eq!(rest, "data: 1\n\n");
    within("the server's stream to end", request.left()).await;
}

#[tokio::test]
async fn streams_end_when_the_proxy_is_asked_to_end() {
    let mut server = Recorder::start().await;
    let mut runner = runner(&server.url(), &json!({})).await;
    let (client, _, request) = open_at(&mut server, &runner).await;
    runner.terminate();
    within("the end of the stream", client.into_body().collect()).await.expect("a clean end");
    within("the server's stream to end", request.left()).await;
    assert_eq!(runner.ended().await.code(), Some(0), "{}", runner.log());
}

#[tokio::test]
async fn a_check_of_a_server_that_streams_at_its_root_leaves_no_stream_open() {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let runner = runner(&format!("http://{}", server.local_addr().unwrap()), &json!({})).await;
    let (mut check, _) = within("a check", server.accept()).await.unwrap();
    let mut head = [0; 6];
    check.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"GET / ");
    let stream =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\nevent: endpoint\ndata: /message?sessionId=x\n\n";
    check.write_all(stream.as_bytes()).await.unwrap();
    // An error is an end, too: not all that came was read.
    let _ = within("the check to end its stream", check.read_to_end(&mut Vec::new())).await;
    let report = eventually("the report", || async {
        let report = runner.get("/health").await.message();
        report["mcp"].is_object().then_some(report)
    })
    .await;
    assert_eq!((&report["status"], &report["mcp"]["available"]), (&json!("healthy"), &json!(true)), "{report}");
}

#[tokio::test]
async fn a_session_takes_messages_of_the_login_alone_that_opened_it() {
    let signer = Signer::ec("a");
    let issuer = Issuer::start(vec![signer.clone()]).await;
    let mut server = Recorder::start().await;
    let flags = ["--backend", &server.url(), "--allow-endpoint-cidr", "127.0.0.0/8"].map(Into::into);
    let runner = Runner::start("sse", &json!({"oidc_config": issuer.login(&json!({}))}), &flags, &[]).await;
    let [alice, bob] = ["alice", "bob"].map(|name| format!("Bearer {}", signer.sign("ES256", &issuer.claims(name))));
    let get = runner.build(Method::GET, "/sse", &[("authorization", &alice)], "");
    let (stream, _request) = tokio::join!(runner.send(get), async {
        let mut request = server.next().await;
        request.part("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n").await;
        request.part("event: endpoint\ndata: /message?sessionId=x\n\n").await;
        request
    });
    assert_eq!(stream.status(), 200);
    let says = |who: Option<&str>| {
        let headers: Vec<_> = who.into_iter().map(|who| ("authorization", who)).collect();
        let all = [&[("content-type", "application/json")], headers.as_slice()].concat();
        runner.send(runner.build(Method::POST, "/message?sessionId=x", &all, INITIALIZE))
    };
    assert_eq!(says(Some(&bob)).await.status(), 404);
    assert_eq!(says(None).await.status(), 401);
    // The next that the server hears is alice: nobody else's message reached it.
    let (accepted, ()) = tokio::join!(says(Some(&alice)), async {
        let mut request = server.next().await;
        assert!(request.head.starts_with("POST /message?sessionId=x"), "{}", request.head);
        request.part("HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n").await;
    });
    assert_eq!(accepted.status(), 202);
}
