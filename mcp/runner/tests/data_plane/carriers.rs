//! A session that is named in the query (toolhive-0.63 §4.2).

use http::Method;
use serde_json::json;

use crate::support::{Answer, INITIALIZE, Recorder, Runner, go};

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
const PONG: &str = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;

async fn ask(runner: &Runner, method: Method, target: &str, session: Option<&str>, body: &str) -> Answer {
    let mut headers = vec![("content-type", "application/json"), ("accept", "application/json")];
    headers.extend(session.map(|session| ("mcp-session-id", session)));
    runner.request(method, target, &headers, body).await
}

/// Each of these requests names `id` and another session, or `id` twice in one place: 404.
async fn refuses_what_disagrees(runner: &Runner, id: &str) {
    for (target, header) in [
        ("/mcp?sessionId=other".to_owned(), None),
        ("/mcp?session_id=other".to_owned(), Some(id)),
        (format!("/mcp?sessionid={id}"), Some("other")),
        (format!("/mcp?sessionId={id}&session_id=other"), None),
        (format!("/mcp?sessionId={id}&sessionId={id}"), None),
        (format!("/mcp?sessionId={id};session%5Fid=other"), None),
    ] {
        for (method, body) in [(Method::POST, PING), (Method::DELETE, "")] {
            let answer = ask(runner, method, &target, header, body).await;
            assert_eq!(
                (answer.status, &answer.message()["error"]["code"]),
                (404, &json!(-32001)),
                "{target} {header:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_query_neither_reaches_a_session_of_others_nor_loses_ones_own_when_the_server_restarts() {
    let mut backend = Recorder::start().await;
    let runner = Runner::http(&backend.url(), &json!({})).await;
    let initialized = |id: &str| format!("mcp-session-id: {id}\r\n");
    let result = r#"{"jsonrpc":"2.0","id":"init","result":{}}"#;
    let (opened, ()) =
        tokio::join!(ask(&runner, Method::POST, "/mcp?a=%2F&sessionId=mine", Some("mine"), INITIALIZE), async {
            let request = backend.next().await;
            assert!(request.head.starts_with("POST /mcp?a=%2F HTTP"), "a client does not choose: {}", request.head);
            assert_eq!(request.header("mcp-session-id"), None);
            request.json("200 OK", &initialized("first"), result).await;
        });
    assert_eq!(opened.header("mcp-session-id"), Some("first"));
    refuses_what_disagrees(&runner, "first").await;
    assert!(backend.is_quiet());
    let (answer, ()) = tokio::join!(ask(&runner, Method::POST, "/mcp?sessionId=first&b", Some("first"), PING), async {
        let request = backend.next().await;
        assert!(request.head.starts_with("POST /mcp?sessionId=first&b HTTP"), "{}", request.head);
        request.json("404 Not Found", "", "").await;
        let request = backend.next().await;
        assert!(request.head.starts_with("POST /mcp?b HTTP") && request.body == INITIALIZE.as_bytes());
        request.json("200 OK", &initialized("sec/ond"), result).await;
        let request = backend.next().await;
        assert!(request.head.starts_with("POST /mcp?b HTTP"), "{}", request.head);
        assert_eq!(request.header("mcp-session-id"), Some("sec/ond"));
        request.json("202 Accepted", "", "").await;
        let request = backend.next().await;
        assert!(request.head.starts_with("POST /mcp?sessionId=sec%2Fond&b HTTP"), "{}", request.head);
        assert_eq!(request.header("mcp-session-id"), Some("sec/ond"));
        request.json("200 OK", "", PONG).await;
    });
    assert_eq!(answer.status, 200);
    let (answer, ()) = tokio::join!(ask(&runner, Method::POST, "/mcp?session_id=first", None, PING), async {
        let request = backend.next().await;
        assert!(request.head.starts_with("POST /mcp?session_id=sec%2Fond HTTP"), "{}", request.head);
        request.json("200 OK", "", PONG).await;
    });
    assert_eq!(answer.status, 200);
    // The stateless era has no sessions.
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"}});
    let modern = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}).to_string();
    let headers =
        [("content-type", "application/json"), ("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/list")];
    let (answer, ()) = tokio::join!(runner.request(Method::POST, "/mcp?sessionId=first", &headers, &modern), async {
        let request = backend.next().await;
        assert!(request.head.starts_with("POST /mcp HTTP"), "{}", request.head);
        request.json("200 OK", "", PONG).await;
    });
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn a_stream_is_gone_on_with_only_where_its_session_is_named_and_checked() {
    let mut backend = Recorder::start().await;
    let runner = Runner::http(&backend.url(), &json!({})).await;
    let opening = [("content-type", "application/json"), ("last-event-id", "7")];
    tokio::join!(runner.request(Method::POST, "/mcp", &opening, INITIALIZE), async {
        let request = backend.next().await;
        assert_eq!(request.header("last-event-id"), None);
        request.json("200 OK", "mcp-session-id: first\r\n", r#"{"jsonrpc":"2.0","id":"init","result":{}}"#).await;
    });
    for (method, session, expected) in [
        (Method::GET, None, None),
        (Method::POST, None, None),
        (Method::GET, Some("first"), Some("7")),
        (Method::POST, Some("first"), Some("7")),
    ] {
        let body = if method == Method::POST { PING } else { "" };
        let mut headers = opening.to_vec();
        headers.extend(session.map(|session| ("mcp-session-id", session)));
        tokio::join!(runner.request(method.clone(), "/mcp", &headers, body), async {
            let request = backend.next().await;
            assert_eq!(request.header("last-event-id"), expected, "{method} {session:?}");
            request.json("200 OK", "", PONG).await;
        });
    }
}

#[tokio::test]
async fn in_front_of_a_process_a_session_is_known_by_the_query_as_well() {
    let runner = Runner::stdio(&[go().into()], &json!({})).await;
    let id = runner.session().await;
    refuses_what_disagrees(&runner, &id).await;
    let target = format!("/mcp?sessionId={id}");
    for header in [None, Some(&*id)] {
        assert_eq!(ask(&runner, Method::POST, &target, header, PING).await.status, 200, "{header:?}");
    }
    assert_eq!(ask(&runner, Method::DELETE, &target, None, "").await.status, 204);
    assert_eq!(ask(&runner, Method::POST, &target, None, PING).await.status, 404);
}
