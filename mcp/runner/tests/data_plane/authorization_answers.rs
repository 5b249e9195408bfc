//! Answers of clients to requests of the MCP server, under authorization: each answers one that is open in its session.

use http::Method;
use serde_json::json;

use super::authorization::{DONE, EVERYDAY, World, call};
use crate::support::{Answer, EventStream, INITIALIZE};

/// A request of the server to its client.
fn elicitation(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"elicitation/create","params":{{"message":"Pay?"}}}}"#)
}

fn accept(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"action":"accept","content":{{}}}}}}"#)
}

async fn open(world: &mut World, who: &str, session: &str) {
    let headers = [("authorization", who)];
    let result = r#"{"jsonrpc":"2.0","id":"init","result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}"#;
    let opened = format!("mcp-session-id: {session}\r\n");
    let (answer, ()) = tokio::join!(world.runner.post(&headers, INITIALIZE), async {
        world.backend.next().await.json("200 OK", &opened, result).await;
    });
    assert_eq!(answer.header("mcp-session-id"), Some(session));
}

/// Sends a message with these headers to a path. The server answers with these events, or accepts it where there are none. Returns the answer, and
/// whether the server got the message.
async fn send(
    world: &mut World,
    path: &str,
    headers: &[(&str, &str)],
    message: &str,
    events: &[String],
) -> (Answer, bool) {
    let plain = [("content-type", "application/json"), ("accept", "application/json, text/event-stream")];
    let headers = [&plain, headers].concat();
    let asked = world.runner.request(Method::POST, path, &headers, message);
    let events = events.iter().flat_map(|event| ["event: message\ndata: ", event, "\n\n"]).collect::<String>();
    let status = if events.is_empty() { "202 Accepted" } else { "200 OK\r\ncontent-type: text/event-stream" };
    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{events}", events.len());
    tokio::pin!(asked);
    tokio::select! {
        request = world.backend.next() => {
            assert_eq!(String::from_utf8_lossy(&request.body), message);
            let (answered, ()) = tokio::join!(asked, request.answer(answer));
            (answered, true)
        }
        refused = &mut asked => (refused, false),
    }
}

#[tokio::test]
async fn an_answer_passes_once_to_a_request_that_is_open_in_its_session() {
    let mut world = World::start(&EVERYDAY, json!({})).await;
    let [ann, bob] = ["ann", "bob"].map(|subject| world.caller(subject, json!({})));
    for (who, session) in [(&ann, "a"), (&ann, "b"), (&bob, "c")] {
        open(&mut world, who, session).await;
    }
    let headers = [("authorization", &*ann), ("mcp-session-id", "a")];
    let events = [elicitation("1"), elicitation(r#""x""#), DONE.to_owned()];
    let (answer, _) = send(&mut world, "/mcp", &headers, &call("echo", &json!({})), &events).await;
    assert_eq!((answer.body.matches("Pay?").count(), answer.header("cache-control")), (2, Some("private, no-store")));
    for (case, who, session, id, passes) in [
        ("no session", &ann, None, "1", false),
        ("another session of the caller", &ann, Some("b"), "1", false),
        ("a session of another caller", &bob, Some("c"), "1", false),
        ("another caller in the session", &bob, Some("a"), "1", false),
        ("another id", &ann, Some("a"), "2", false),
        ("an id of another type", &ann, Some("a"), r#""1""#, false),
        ("the request", &ann, Some("a"), "1", true),
        ("the request once more", &ann, Some("a"), "1", false),
        ("the other request, written in another way", &ann, Some("a"), r#""\u0078""#, true),
    ] {
        let session = session.map(|session| ("mcp-session-id", session));
        let headers: Vec<_> = [("authorization", &**who)].into_iter().chain(session).collect();
        let (answer, got) = send(&mut world, "/mcp", &headers, &accept(id), &[]).await;
        assert_eq!((answer.status, got), (if passes { 202 } else { 403 }, passes), "{case}: {answer:?}");
        if !passes {
            // An id would be one of the client's own requests.
            let error = json!({"jsonrpc": "2.0", "error": {"code": 403, "message": "Unauthorized"}});
            assert_eq!(answer.message(), error, "{case}");
        }
    }
    // The stateless era has no sessions, whatever a request names.
    let headers = [("authorization", &*ann), ("mcp-protocol-version", "2026-07-28")];
    let (answer, got) = send(&mut world, "/mcp", &headers, &accept("1"), &[]).await;
    assert_eq!((answer.status, got), (403, false), "{answer:?}");
    assert!(world.backend.is_quiet());
}

#[tokio::test]
async fn a_request_on_a_stream_that_a_get_opened_is_answered_in_its_session() {
    let mut world = World::start(&EVERYDAY, json!({})).await;
    let ann = world.caller("ann", json!({}));
    open(&mut world, &ann, "a").await;
    let headers = [("authorization", &*ann), ("mcp-session-id", "a"), ("accept", "text/event-stream")];
    let asked = world.runner.request(Method::GET, "/mcp", &headers, "");
    let event = format!("data: {}\n\n", elicitation("1"));
    let stream =
        format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n{event}", event.len());
    let (answer, ()) = tokio::join!(asked, async { world.backend.next().await.answer(stream).await });
    assert_eq!((&*answer.body, answer.header("cache-control")), (&*event, Some("private, no-store")));
    let (answer, got) = send(&mut world, "/mcp", &headers, &accept("1"), &[]).await;
    assert_eq!((answer.status, got), (202, true), "{answer:?}");
}

#[tokio::test]
async fn over_sse_an_answer_passes_in_the_session_of_its_stream() {
    let mut world = World::over("sse", &EVERYDAY, json!({})).await;
    let ann = world.caller("ann", json!({}));
    let headers = [("authorization", &*ann), ("accept", "text/event-stream")];
    let mut streams = Vec::new();
    for session in ["x", "y"] {
        let (stream, server) = tokio::join!(EventStream::open(&world.runner, &headers), async {
            let mut server = world.backend.next().await;
            server.part("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n").await;
            server.part(&format!("event: endpoint\ndata: /messages?sessionId={session}\n\n")).await;
            server
        });
        streams.push((stream, server));
    }
    let (stream, server) = &mut streams[0];
    server.part(&format!("event: message\ndata: {}\n\n", elicitation("1"))).await;
    assert_eq!(stream.message().await["method"], "elicitation/create");
    for (at, id, passes) in [(1, "1", false), (0, "2", false), (0, "1", true), (0, "1", false)] {
        let path = streams[at].0.messages.clone();
        let (answer, got) = send(&mut world, &path, &headers, &accept(id), &[]).await;
        assert_eq!((answer.status, got), (if passes { 202 } else { 403 }, passes), "{at}, {id}: {answer:?}");
    }
}
