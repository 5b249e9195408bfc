//! Which requests pass where guards judge messages (P6), and which web pages may send them.

use http::Method;
use serde_json::{Value, json};

use crate::support::{Answer, INITIALIZE, Recorder, Runner, SdkClient, Server};
use crate::tool_filter::filter;

const CALL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"say","arguments":{}}}"#;
const HIDDEN: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"danger","arguments":{}}}"#;
const JSON: [(&str, &str); 2] =
    [("content-type", "application/json"), ("accept", "application/json, text/event-stream")];

/// A filter that shows `say` alone, and these additions.
fn guarded(additions: &Value) -> Value {
    let mut members = filter("greet", &["say"]);
    members["portcullis"] = additions.clone();
    members
}

/// The runner's answer and the request line that the server got, where the server answers `{}`.
async fn passes(runner: &Runner, backend: &mut Recorder, method: Method, path: &str, body: &str) -> (Answer, String) {
    let (answer, line) = tokio::join!(runner.request(method, path, &JSON, body), async {
        let request = backend.next().await;
        let line = request.head.lines().next().unwrap().to_owned();
        request.json("200 OK", "", "{}").await;
        line
    });
    (answer, line)
}

// P6
#[tokio::test]
async fn no_other_path_of_a_guarded_server_is_reached() {
    let mut backend = Recorder::start().await;
    let runner = Runner::http(&backend.url(), &guarded(&json!({}))).await;
    let stream = ("accept", "text/event-stream");
    for (method, path, headers, body, status) in [
        (Method::GET, "/api/tools/danger?confirm=1", vec![], "", 404),
        (Method::GET, "/sse", vec![stream], "", 404),
        (Method::DELETE, "/api/items/5", vec![], "", 404),
        (Method::OPTIONS, "/api/items/5", vec![], "", 404),
        (Method::PUT, "/api/items/5", vec![], "{}", 404),
        (
            Method::POST,
            "/api/tools/danger",
            JSON.to_vec(),
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","tool":"x"}"#,
            404,
        ),
        (Method::POST, "/", JSON.to_vec(), CALL, 404),
        (Method::POST, "//mcp", JSON.to_vec(), CALL, 404),
        (Method::POST, "/mcp/../api", JSON.to_vec(), CALL, 404),
        (Method::POST, "/%6dcp", JSON.to_vec(), CALL, 404),
        (Method::GET, "/mcp", vec![], "", 405),
        (Method::HEAD, "/mcp", vec![stream], "", 405),
        (Method::PUT, "/mcp", JSON.to_vec(), CALL, 405),
        (Method::DELETE, "/mcp", vec![], "", 405),
    ] {
        let answer = runner.request(method.clone(), path, &headers, body).await;
        assert_eq!(answer.status, status, "{method} {path}: {answer:?}");
        let names = answer.body.contains("portcullis.dev/open-paths");
        assert!(names || method == Method::HEAD, "{method} {path}: {answer:?}");
    }
    assert!(backend.is_quiet());
    let metrics = runner.get("/metrics").await.body;
    for count in [r#"requests_misrouted_total{reason="path"} 10"#, r#"requests_misrouted_total{reason="method"} 4"#] {
        assert!(metrics.contains(count), "{metrics}");
    }
    let (answer, line) = passes(&runner, &mut backend, Method::POST, "/mcp/", CALL).await;
    assert_eq!((answer.status, line.as_str()), (200, "POST /mcp/ HTTP/1.1"));
}

#[tokio::test]
async fn every_path_of_a_server_without_a_guard_is_reached() {
    let mut backend = Recorder::start().await;
    let runner = Runner::http(&backend.url(), &json!({"portcullis": {"mcp_paths": ["/x"]}})).await;
    for (method, path) in [(Method::GET, "/api/items/5"), (Method::DELETE, "/api/items/5"), (Method::HEAD, "/mcp")] {
        let (answer, line) = passes(&runner, &mut backend, method.clone(), path, "").await;
        assert_eq!((answer.status, line), (200, format!("{method} {path} HTTP/1.1")));
    }
}

#[tokio::test]
async fn an_added_endpoint_is_judged() {
    let mut backend = Recorder::start().await;
    let runner = Runner::http(&backend.url(), &guarded(&json!({"mcp_paths": ["/", "/api/mcp"]}))).await;
    for path in ["/", "/api/mcp", "/api/mcp/"] {
        let refused = runner.request(Method::POST, path, &JSON, HIDDEN).await;
        assert_eq!(refused.message()["error"]["message"], "tool not found", "{path}");
        let (_, line) = passes(&runner, &mut backend, Method::POST, path, CALL).await;
        assert_eq!(line, format!("POST {path} HTTP/1.1"));
    }
    assert!(backend.is_quiet());
}

#[tokio::test]
async fn an_open_path_passes_all_but_json_rpc() {
    let mut backend = Recorder::start().await;
    let additions = json!({"mcp_paths": ["/api/mcp"], "open_paths": ["/docs/*", "/status"]});
    let backend_url = backend.url();
    let runner = Runner::http(&backend_url, &guarded(&additions)).await;
    for (method, path, body) in [
        (Method::GET, "/docs/a.html?x=1", ""),
        (Method::GET, "/status", ""),
        (Method::POST, "/docs/search", r#"{"q":"tools/call"}"#),
        (Method::PUT, "/status", "no JSON"),
        (Method::DELETE, "/status", ""),
    ] {
        let (answer, line) = passes(&runner, &mut backend, method.clone(), path, body).await;
        assert_eq!((answer.status, line), (200, format!("{method} {path} HTTP/1.1")));
    }
    let session = [("mcp-session-id", "x"), ("mcp-protocol-version", "2026-07-28")];
    let (_, head) = tokio::join!(runner.request(Method::GET, "/status?sessionId=x&a=b", &session, ""), async {
        let request = backend.next().await;
        let head = request.head.clone();
        request.json("200 OK", "", "{}").await;
        head
    });
    assert!(head.starts_with("GET /status?a=b HTTP/1.1") && !head.contains("session"), "{head}");
    // A redirect is the client's to follow: the proxy decides whether the new path passes.
    let (answer, ()) = tokio::join!(runner.request(Method::GET, "/docs/login?next=x", &[], ""), async {
        let location = format!("location: {backend_url}/api/tools/danger?x=1\r\n");
        backend.next().await.json("302 Found", &location, "").await;
    });
    assert_eq!((answer.status, answer.header("location")), (302, Some("/api/tools/danger?x=1")));
    let tunnel = runner.request(Method::CONNECT, "/docs/x", &[], HIDDEN).await;
    assert_eq!((tunnel.status, tunnel.header("connection")), (405, Some("close")));
    let gzip = ("content-encoding", "gzip");
    let utf_7 = ("content-type", "application/json; charset=utf-7");
    let with_body = runner.request(Method::GET, "/docs/x", &[], "GET /api HTTP/1.1\r\n\r\n").await;
    assert_eq!(with_body.status, 400, "{with_body:?}");
    for (path, headers, body, status) in [
        ("/docs/x", JSON.to_vec(), CALL, 403),
        ("/status", vec![("content-type", "text/plain")], HIDDEN, 403),
        ("/status", JSON.to_vec(), "[{\"json\\u0072pc\":\"2.0\"}]", 403),
        ("/status", vec![gzip], "x", 415),
        ("/status", vec![utf_7], "x", 415),
        ("/docs/../mcp", vec![], "", 404),
        ("/docs/%2e%2e/mcp", vec![], "", 404),
    ] {
        let answer = runner.request(Method::POST, path, &headers, body).await;
        assert_eq!(answer.status, status, "{path} {headers:?}: {answer:?}");
    }
    assert!(backend.is_quiet());
}

#[tokio::test]
async fn a_guarded_server_of_http_and_sse_is_reached_by_its_stream() {
    let server = Server::node_sse().await;
    let flags = ["--backend".into(), server.url().into()];
    let runner = Runner::start("sse", &filter("echo", &["say"]), &flags, &[]).await;
    let mut client = SdkClient::connect(&format!("http://{}/sse", runner.address)).await;
    assert_eq!(client.call("say", json!({"message": "Ada"})).await, "Echo: Ada");
    for (method, path, body, status) in [
        (Method::GET, "/message", "", 404),
        (Method::GET, "/mcp", "", 404),
        (Method::GET, "/sse", "", 405),
        (Method::DELETE, "/sse", "", 405),
        (Method::POST, "/api/tools/danger", CALL, 404),
    ] {
        let headers = if method == Method::POST { &JSON[..] } else { &[] };
        let answer = runner.request(method, path, headers, body).await;
        assert_eq!(answer.status, status, "{path}: {answer:?}");
    }
}

// cases/15-preflight
#[tokio::test]
async fn a_preflight_is_answered_by_the_proxy_before_any_login() {
    let mut backend = Recorder::start().await;
    let page = "https://app.example";
    let oidc = json!({"Issuer": "https://issuer.example", "Audience": "a", "JWKSURL": "https://issuer.example/keys"});
    let members = json!({"allowed_origins": [page], "oidc_config": oidc});
    let runner = Runner::http(&backend.url(), &members).await;
    let asked = "authorization,content-type,mcp-protocol-version,mcp-session-id";
    let headers =
        [("origin", page), ("access-control-request-method", "POST"), ("access-control-request-headers", asked)];
    let answer = runner.request(Method::OPTIONS, "/mcp", &headers, "").await;
    assert_eq!(answer.status, 204, "{answer:?}");
    for (name, value) in [
        ("access-control-allow-origin", page),
        ("access-control-allow-methods", "GET, POST, DELETE"),
        ("access-control-allow-headers", asked),
        ("access-control-expose-headers", "Mcp-Session-Id, WWW-Authenticate"),
        ("vary", "Origin"),
    ] {
        assert_eq!(answer.header(name), Some(value), "{answer:?}");
    }
    assert_eq!(answer.header("access-control-allow-credentials"), None);
    let challenged = runner.post(&[("origin", page)], INITIALIZE).await;
    assert_eq!((challenged.status, challenged.header("access-control-allow-origin")), (401, Some(page)));
    assert!(challenged.header("www-authenticate").is_some(), "{challenged:?}");
    let foreign = runner.request(Method::OPTIONS, "/mcp", &[("origin", "https://evil.example")], "").await;
    assert_eq!((foreign.status, foreign.header("access-control-allow-origin")), (403, None));
    assert!(backend.is_quiet());
}

#[tokio::test]
async fn the_server_does_not_speak_to_browsers_for_the_proxy() {
    let mut backend = Recorder::start().await;
    let page = "https://app.example";
    let runner = Runner::http(&backend.url(), &json!({"allowed_origins": [page]})).await;
    let headers = [("origin", page)];
    let (answer, ()) = tokio::join!(runner.post(&headers, INITIALIZE), async {
        let theirs = "access-control-allow-origin: *\r\naccess-control-allow-credentials: true\r\nvary: accept\r\n";
        backend.next().await.json("200 OK", theirs, r#"{"jsonrpc":"2.0","id":"init","result":{}}"#).await;
    });
    assert_eq!(answer.headers.get_all("access-control-allow-origin").iter().collect::<Vec<_>>(), [page]);
    assert_eq!(answer.header("access-control-allow-credentials"), None);
    assert_eq!(answer.headers.get_all("vary").iter().collect::<Vec<_>>(), ["accept", "Origin"]);
}
