//! What is served before any middleware, and the refusals of the transport.

use http::Method;
use portcullis_testing::free_address;
use serde_json::json;

use crate::support::{Recorder, Runner, Server};

#[tokio::test]
async fn health_says_how_the_server_does_and_stays_200_while_the_proxy_serves() {
    let mut server = Server::go().await;
    let often = [("TOOLHIVE_HEALTH_CHECK_INTERVAL", "100ms")];
    let runner = Runner::http_with(&server.url(), &json!({}), &often).await;
    let report = crate::support::eventually("the first check", || async {
        let report = runner.get("/health").await;
        assert_eq!(report.status, 200);
        let report = report.message();
        assert_eq!(report["status"], "healthy", "{report}");
        report.get("mcp").is_some().then_some(report)
    })
    .await;
    assert_eq!((&report["status"], &report["transport"]), (&json!("healthy"), &json!("streamable-http")));
    assert_eq!(report["mcp"]["available"], true);
    for member in ["response_time_ms", "last_checked"] {
        assert!(report["mcp"].get(member).is_some(), "{report}");
    }
    server.kill().await;
    let report = crate::support::eventually("the report to change", || async {
        let report = runner.get("/health").await;
        // A check that is under way as it ends has another error. Addresses and what came of them are for the log.
        let report_is = |member: &str, is: &str| report.message().pointer(member).is_some_and(|found| found == is);
        let error = "the MCP server cannot be reached";
        (report_is("/status", "degraded") && report_is("/mcp/error", error)).then_some(report)
    })
    .await;
    assert_eq!(report.status, 200);
    runner.logged("cannot connect to the MCP server: ").await;
    assert_eq!(runner.get("/readyz").await.status, 200);
}

#[tokio::test]
async fn reserved_paths_never_reach_the_server() {
    let mut backend = Recorder::start().await;
    let runner = Runner::http(&backend.url(), &json!({})).await;
    runner.ready().await;
    for (method, path, status, body) in [
        (Method::POST, "/health", 405, "Method Not Allowed"),
        (Method::HEAD, "/health", 405, ""),
        (Method::DELETE, "/metrics", 405, "Method Not Allowed"),
        (Method::GET, "/readyz", 200, "ok\n"),
        (Method::GET, "/.well-known/oauth-protected-resource", 404, r#"{"error":"not_found"}"#),
        (Method::GET, "/.well-known/oauth-protected-resource/mcp", 404, r#"{"error":"not_found"}"#),
        (Method::GET, "/.well-known/oauth-authorization-server", 404, r#"{"error":"not_found"}"#),
    ] {
        let answer = runner.request(method.clone(), path, &[], "").await;
        assert_eq!((answer.status, answer.body.as_str()), (status, body), "{method} {path}");
    }
    let metrics = runner.get("/metrics").await;
    assert!(metrics.body.contains("mcp_runner_requests_total{code=\"2xx\"} 0\n"), "{}", metrics.body);
    assert!(backend.is_quiet());
}

#[tokio::test]
async fn refusals_of_the_transport_keep_policy_whole_and_do_not_reach_the_server() {
    let modern = ("mcp-protocol-version", "2026-07-28");
    let mut backend = Recorder::start().await;
    // The transport alone, without the parser in front of it.
    let runner =
        Runner::http(&backend.url(), &json!({"middleware_configs": [{"type": "recovery", "parameters": null}]})).await;
    let ping = r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#;
    for (method, headers, body, status, said) in [
        (Method::GET, vec![modern], "", 405, "Method Not Allowed"),
        (Method::DELETE, vec![modern], "", 405, "Method Not Allowed"),
        (
            Method::POST,
            vec![],
            " \n[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]",
            400,
            "batch requests are not supported",
        ),
        // Without `_meta`, without capabilities in it, and with another version in it.
        (Method::POST, vec![modern], ping, 400, "-32602"),
        (
            Method::POST,
            vec![modern],
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#,
            400,
            "-32602",
        ),
        (
            Method::POST,
            vec![modern],
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2030-01-01"}}}"#,
            400,
            "-32020",
        ),
        (
            Method::POST,
            vec![],
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2030-01-01"}}}"#,
            400,
            "-32022",
        ),
        (
            Method::POST,
            vec![("mcp-session-id", "nobody's")],
            ping,
            404,
            r#"{"jsonrpc":"2.0","id":"p","error":{"code":-32001,"message":"Session not found"}}"#,
        ),
        (
            Method::GET,
            vec![("mcp-session-id", "nobody's")],
            "",
            404,
            r#"{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"}}"#,
        ),
    ] {
        let mut all = vec![("content-type", "application/json")];
        all.extend_from_slice(&headers);
        let answer = runner.request(method.clone(), "/mcp", &all, body).await;
        assert_eq!(answer.status, status, "{method} {headers:?} {body}: {answer:?}");
        assert!(answer.body.contains(said), "{method} {headers:?} {body}: {answer:?}");
        if status == 405 {
            assert_eq!(answer.header("allow"), Some("POST, OPTIONS"));
        }
    }
    assert!(backend.is_quiet());
}

#[tokio::test]
async fn a_foreign_page_does_not_reach_a_server_on_a_loopback_address() {
    let mut backend = Recorder::start().await;
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let listed = json!({"allowed_origins": ["https://app.example"]});
    for members in [json!({}), listed.clone(), json!({"middleware_configs": []})] {
        let runner = Runner::http(&backend.url(), &members).await;
        for (name, value, message) in [
            ("host", "evil.example.com", "Host not allowed"),
            ("origin", "http://evil.example.com", "Origin not allowed"),
            ("origin", "null", "Origin not allowed"),
        ] {
            for method in [Method::POST, Method::GET, Method::DELETE] {
                let body = if method == Method::POST { ping } else { "" };
                let headers = [("content-type", "application/json"), (name, value)];
                let answer = runner.request(method, "/mcp", &headers, body).await;
                let refusal = answer.message();
                assert_eq!(
                    (answer.status, &refusal["error"]["code"]),
                    (403, &json!(-32600)),
                    "{members} {name}: {value}"
                );
                assert!(refusal["error"]["message"].as_str().unwrap().starts_with(message), "{refusal}");
            }
        }
        assert!(backend.is_quiet());
        let own = format!("http://localhost:{}", runner.address.port());
        let origin = if members == listed { "https://app.example" } else { &own };
        let headers = [("origin", origin)];
        let (answer, ()) = tokio::join!(runner.post(&headers, ping), async {
            backend.next().await.json("200 OK", "", r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).await;
        });
        assert_eq!(answer.status, 200, "{members}");
        // Probes come from the node under any name.
        assert_eq!(runner.request(Method::GET, "/health", &[("host", "10.0.0.1:8080")], "").await.status, 200);
    }
}

#[tokio::test]
async fn a_stateless_server_knows_post_only() {
    let backend = Recorder::start().await;
    let runner = Runner::http(&backend.url(), &json!({"stateless": true})).await;
    assert_eq!(runner.get("/mcp").await.status, 405);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_a_502_with_the_id_of_the_request() {
    let runner = Runner::http(&format!("http://{}", free_address()), &json!({})).await;
    let answer = runner.post(&[], r#"{"jsonrpc":"2.0","id":-0,"method":"ping"}"#).await;
    assert_eq!(answer.status, 502);
    assert_eq!(
        answer.body,
        r#"{"jsonrpc":"2.0","id":-0,"error":{"code":-32603,"message":"the MCP server cannot be reached"}}"#
    );
}

#[tokio::test]
async fn a_modern_request_passes_without_a_session() {
    let mut backend = Recorder::start().await;
    let runner = Runner::http(&backend.url(), &json!({})).await;
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
    let headers = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/list"),
        ("mcp-param-x", "=?base64?w6k=?="),
        ("mcp-session-id", "stale"),
    ];
    let (answer, ()) = tokio::join!(runner.post(&headers, body), async {
        let request = backend.next().await;
        assert_eq!(request.header("mcp-param-x"), Some("=?base64?w6k=?="));
        request.json("404 Not Found", "", r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"x"}}"#).await;
    });
    assert_eq!(answer.status, 404, "the server's status stands");
}
