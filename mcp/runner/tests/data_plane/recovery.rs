//! Servers that go away and come back.

use serde_json::json;

use crate::support::{INITIALIZE, Recorder, Runner, SdkClient, Server, eventually};

async fn survives(mut server: Server, tool: &str, argument: &str) {
    let runner = Runner::http(&server.url(), &json!({})).await;
    let mut client = SdkClient::connect(&runner.url()).await;
    client.call(tool, json!({argument: "before"})).await;
    server.kill().await;
    let down = client.fails(json!({"do": "call", "name": tool, "args": {argument: "x"}})).await;
    assert!(down["failed"].as_str().unwrap().contains("cannot be reached"), "{down}");
    server.start().await;
    // The client knows nothing of it: the same session, the same client.
    let text = client.call(tool, json!({argument: "after"})).await;
    assert!(text.ends_with("after"), "{text}");
    client.ask(json!({"do": "list"})).await;
    client.ask(json!({"do": "leave"})).await;
}

#[tokio::test]
async fn a_session_outlives_a_restart_of_the_go_server() {
    survives(Server::go().await, "greet", "name").await;
}

#[tokio::test]
async fn a_session_outlives_a_restart_of_the_node_server() {
    survives(Server::node().await, "echo", "message").await;
}

/// Between the attempt to open its session anew and the last one to send the call.
#[tokio::test]
async fn a_server_that_comes_back_during_a_call_does_not_cost_its_session() {
    let mut server = Server::go().await;
    let runner = Runner::http(&server.url(), &json!({})).await;
    let session = runner.session().await;
    server.kill().await;
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"greet","arguments":{"name":"Ada"}}}"#;
    let named = [("mcp-session-id", session.as_str())];
    let (mut answer, ()) = tokio::join!(runner.post(&named, call), async {
        runner.logged("so its session is not opened anew").await;
        server.start().await;
    });
    if answer.status == 502 {
        // It took longer to start than a call waits.
        answer = runner.post(&named, call).await;
    }
    assert_eq!(
        (answer.status, &answer.message()["result"]["content"][0]["text"]),
        (200, &json!("Hi Ada")),
        "{answer:?}"
    );
}

/// The Go SDK's client ends its session at any answer but a stream.
#[tokio::test]
async fn a_stream_that_a_client_opens_while_its_server_is_away_comes_when_that_is_back() {
    let mut server = Server::go().await;
    let runner = Runner::http(&server.url(), &json!({})).await;
    let session = runner.session().await;
    server.kill().await;
    let headers = [("mcp-session-id", session.as_str()), ("accept", "text/event-stream")];
    let (stream, ()) = tokio::join!(runner.send(runner.build(http::Method::GET, "/mcp", &headers, "")), async {
        runner.logged("a stream waits for the MCP server").await;
        server.start().await;
    });
    assert_eq!(
        (stream.status().as_u16(), stream.headers()["content-type"].to_str().unwrap()),
        (200, "text/event-stream")
    );
}

#[tokio::test]
async fn a_lost_session_is_opened_once_for_all_who_wait_and_each_call_is_sent_once_more() {
    let mut backend = Recorder::start().await;
    let runner = Runner::http(&backend.url(), &json!({})).await;
    let (opened, ()) = tokio::join!(runner.post(&[("mcp-session-id", "mine")], INITIALIZE), async {
        let request = backend.next().await;
        assert_eq!(request.header("mcp-session-id"), None, "a client does not choose its session");
        request.json("200 OK", "mcp-session-id: first\r\n", r#"{"jsonrpc":"2.0","id":"init","result":{}}"#).await;
    });
    assert_eq!(opened.header("mcp-session-id"), Some("first"));
    let headers =
        [("mcp-session-id", "first"), ("authorization", "Bearer now"), ("mcp-protocol-version", "2025-11-25")];
    let call = |id: u8| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"t"}}}}"#);
    let lost = r#"{"jsonrpc":"2.0","id":0,"error":{"code":-32001,"message":"Session not found"}}"#;
    let (first, second) = (call(1), call(2));
    let (one, two, (handshakes, calls)) =
        tokio::join!(runner.post(&headers, &first), runner.post(&headers, &second), async {
            // Both are under way before either is answered.
            for request in [backend.next().await, backend.next().await] {
                assert_eq!(request.header("mcp-session-id"), Some("first"));
                request.json("404 Not Found", "", lost).await;
            }
            let (mut handshakes, mut calls) = (0, 2);
            while calls < 4 {
                let request = backend.next().await;
                let body = String::from_utf8(request.body.clone()).unwrap();
                match (request.header("mcp-session-id"), body.as_str()) {
                    (None, INITIALIZE) => {
                        handshakes += 1;
                        assert_eq!(request.header("authorization"), Some("Bearer now"));
                        assert_eq!(request.header("mcp-protocol-version"), None);
                        request
                            .json(
                                "200 OK",
                                "mcp-session-id: second\r\n",
                                r#"{"jsonrpc":"2.0","id":"init","result":{}}"#,
                            )
                            .await;
                    }
                    (Some("second"), body) if body.contains("notifications/initialized") => {
                        request.json("202 Accepted", "", "").await;
                    }
                    (Some("second"), body) => {
                        calls += 1;
                        let id = if body == first { 1 } else { 2 };
                        let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
                        request.json("200 OK", "mcp-session-id: second\r\n", &answer).await;
                    }
                    other => panic!("{other:?}"),
                }
            }
            (handshakes, calls)
        });
    assert_eq!((handshakes, calls), (1, 4));
    for (answer, id) in [(one, 1), (two, 2)] {
        assert_eq!((answer.status, answer.message()["id"].clone()), (200, json!(id)));
        assert_eq!(answer.header("mcp-session-id"), Some("first"), "the client keeps its id");
    }
    // 404 to the end of a session ends it here too, and is not recovered from.
    let delete = runner.build(http::Method::DELETE, "/mcp", &headers[..1], "");
    let (answer, ()) = tokio::join!(runner.send(delete), async {
        let request = backend.next().await;
        assert_eq!(request.header("mcp-session-id"), Some("second"));
        request.json("404 Not Found", "", lost).await;
    });
    assert_eq!(answer.status(), 404);
    let answer = runner.post(&headers, &first).await;
    assert_eq!(answer.message()["error"]["code"], -32001);
    assert!(backend.is_quiet());
}

#[tokio::test]
async fn a_call_that_the_server_may_have_acted_on_is_not_sent_again() {
    let mut backend = Recorder::start().await;
    let runner = Runner::http(&backend.url(), &json!({})).await;
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay"}}"#;
    let (answer, ()) = tokio::join!(runner.post(&[], body), async {
        drop(backend.next().await);
    });
    assert_eq!(answer.status, 502);
    assert_eq!(answer.message()["error"]["message"], "the MCP server ended the connection");
    // Its own later call is the next that the server sees.
    let (answer, ()) = tokio::join!(runner.post(&[], r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#), async {
        let request = backend.next().await;
        assert!(String::from_utf8_lossy(&request.body).contains("ping"));
        request.json("200 OK", "", r#"{"jsonrpc":"2.0","id":2,"result":{}}"#).await;
    });
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn a_server_killed_in_the_middle_of_a_stream_ends_that_stream_only() {
    let mut server = Server::node().await;
    let runner = Runner::http(&server.url(), &json!({})).await;
    let mut client = SdkClient::connect(&runner.url()).await;
    let slow = json!({"do": "start", "name": "trigger-long-running-operation", "args": {"duration": 30, "steps": 60}, "progress": true});
    client.ask(slow).await;
    client.hears(|line| line["progress"]["progress"] == 1).await;
    server.kill().await;
    server.start().await;
    eventually("the proxy to find the server again", || async {
        (runner.get("/health").await.message()["status"] == "healthy").then_some(())
    })
    .await;
    assert!(client.call("echo", json!({"message": "again"})).await.ends_with("again"));
}

#[tokio::test]
async fn an_error_that_the_server_breaks_off_or_never_ends_is_a_502_with_the_id_of_the_request() {
    let mut backend = Recorder::start().await;
    let runner = Runner::http(&backend.url(), &json!({})).await;
    tokio::join!(runner.post(&[], INITIALIZE), async {
        let request = backend.next().await;
        request.json("200 OK", "mcp-session-id: mine\r\n", r#"{"jsonrpc":"2.0","id":"init","result":{}}"#).await;
    });
    for ends in [true, false] {
        let call = r#"{"jsonrpc":"2.0","id":5,"method":"ping"}"#;
        let (answer, _held) = tokio::join!(runner.post(&[("mcp-session-id", "mine")], call), async {
            let mut request = backend.next().await;
            request.part("HTTP/1.1 404 Not Found\r\ncontent-length: 100\r\n\r\n{\"error\":").await;
            (!ends).then_some(request)
        });
        assert_eq!(answer.status, 502, "{answer:?}");
        assert!(answer.body.starts_with(r#"{"jsonrpc":"2.0","id":5,"error":{"code":-32603,"#), "{answer:?}");
    }
}

/// Opens the session `first` at a recorded server.
pub(crate) async fn opened(backend: &mut Recorder, runner: &Runner) {
    let (answer, ()) = tokio::join!(runner.post(&[], INITIALIZE), async {
        let request = backend.next().await;
        request.json("200 OK", "mcp-session-id: first\r\n", r#"{"jsonrpc":"2.0","id":"init","result":{}}"#).await;
    });
    assert_eq!(answer.header("mcp-session-id"), Some("first"));
}

#[tokio::test]
async fn a_lost_session_does_not_stay_lost_because_the_404_is_chunked() {
    let mut backend = Recorder::start().await;
    let runner = Runner::http(&backend.url(), &json!({})).await;
    opened(&mut backend, &runner).await;
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let (answer, ()) = tokio::join!(runner.post(&[("mcp-session-id", "first")], call), async {
        let body = "404 page not found\n";
        let chunked = "HTTP/1.1 404 Not Found\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n";
        backend.next().await.answer(format!("{chunked}{:x}\r\n{body}\r\n0\r\n\r\n", body.len())).await;
        let handshake = backend.next().await;
        assert_eq!((handshake.header("mcp-session-id"), &*handshake.body), (None, INITIALIZE.as_bytes()));
        handshake.json("200 OK", "mcp-session-id: second\r\n", r#"{"jsonrpc":"2.0","id":"init","result":{}}"#).await;
        backend.next().await.json("202 Accepted", "", "").await;
        let again = backend.next().await;
        assert_eq!((again.header("mcp-session-id"), &*again.body), (Some("second"), call.as_bytes()));
        again.json("200 OK", "", r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).await;
    });
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[tokio::test]
async fn a_call_that_is_answered_by_a_404_is_not_sent_again() {
    let mut backend = Recorder::start().await;
    let runner = Runner::http(&backend.url(), &json!({})).await;
    opened(&mut backend, &runner).await;
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay"}}"#;
    let error = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32002,"message":"no such invoice"}}"#;
    let (answer, ()) = tokio::join!(runner.post(&[("mcp-session-id", "first")], call), async {
        backend.next().await.json("404 Not Found", "", error).await;
    });
    assert_eq!((answer.status, &*answer.body), (404, error));
    assert!(backend.is_quiet());
}

#[tokio::test]
async fn a_chunked_error_that_is_too_long_to_look_into_loses_nothing() {
    let mut backend = Recorder::start().await;
    let runner = Runner::http(&backend.url(), &json!({})).await;
    opened(&mut backend, &runner).await;
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let (answer, ()) = tokio::join!(runner.post(&[("mcp-session-id", "first")], call), async {
        let chunk = format!("{:x}\r\n{}\r\n", 50 << 10, "x".repeat(50 << 10));
        let head = "HTTP/1.1 400 Bad Request\r\ntransfer-encoding: chunked\r\n\r\n";
        backend.next().await.answer(format!("{head}{chunk}{chunk}{chunk}0\r\n\r\n")).await;
    });
    assert_eq!((answer.status, answer.body.len()), (400, 150 << 10));
}

#[tokio::test]
async fn a_session_is_not_lost_to_clients_whatever_words_its_server_has_for_that() {
    let invalid = r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Bad Request"}}"#;
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}"#;
    let done = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
    for (status, body) in [
        ("400 Bad Request", "Bad Request: session ID is not valid"),
        ("400 Bad Request", invalid),
        ("401 Unauthorized", "Unauthorized: Session not found"),
        ("410 Gone", ""),
    ] {
        let mut backend = Recorder::start().await;
        let runner = Runner::http(&backend.url(), &json!({})).await;
        opened(&mut backend, &runner).await;
        let (answer, ()) = tokio::join!(runner.post(&[("mcp-session-id", "first")], call), async {
            for method in ["tools/call", "ping"] {
                let request = backend.next().await;
                assert_eq!(request.header("mcp-session-id"), Some("first"));
                assert!(String::from_utf8_lossy(&request.body).contains(method), "{}", request.head);
                request.json(status, "", body).await;
            }
            let session = "mcp-session-id: second\r\n";
            backend.next().await.json("200 OK", session, r#"{"jsonrpc":"2.0","id":"init","result":{}}"#).await;
            backend.next().await.json("202 Accepted", "", "").await;
            let again = backend.next().await;
            assert_eq!(again.header("mcp-session-id"), Some("second"));
            again.json("200 OK", "", done).await;
        });
        assert_eq!((answer.status, &*answer.body), (200, done), "{status} {body}");
    }
}

#[tokio::test]
async fn a_request_that_is_refused_for_itself_does_not_cost_its_session() {
    let mut backend = Recorder::start().await;
    let runner = Runner::http(&backend.url(), &json!({})).await;
    opened(&mut backend, &runner).await;
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}"#;
    let (answer, ()) = tokio::join!(runner.post(&[("mcp-session-id", "first")], call), async {
        backend.next().await.json("400 Bad Request", "", "no").await;
        backend.next().await.json("200 OK", "", r#"{"jsonrpc":"2.0","id":"portcullis","result":{}}"#).await;
    });
    assert_eq!((answer.status, &*answer.body), (400, "no"));
    // A challenge is for the client, whose token may have expired.
    let (answer, ()) = tokio::join!(runner.post(&[("mcp-session-id", "first")], call), async {
        backend.next().await.json("401 Unauthorized", "www-authenticate: Bearer\r\n", "").await;
    });
    assert_eq!(answer.status, 401);
    assert!(backend.is_quiet());
}
