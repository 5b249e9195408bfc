//! A server reads in a request what the proxy has read, and nothing else.

use http::Method;
use serde_json::json;

use crate::support::{INITIALIZE, Recorder, Runner};

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
const PONG: &str = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;

/// The names of the headers that a server gets, but for those of the connection.
fn names(head: &str) -> Vec<String> {
    let lines = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    let mut names: Vec<_> = lines.map(|(name, _)| name.to_ascii_lowercase()).collect();
    names.retain(|name| !matches!(&**name, "host" | "content-length" | "content-type" | "accept"));
    names.sort_unstable();
    names
}

#[tokio::test]
async fn a_server_finds_no_session_or_claim_that_was_not_checked() {
    let mut backend = Recorder::start().await;
    let runner = Runner::http(&backend.url(), &json!({})).await;
    let headers = [
        ("mcp_session_id", "alice's"),
        ("mcp-session_id", "alice's"),
        ("mcp.session.id", "alice's"),
        ("last_event_id", "7"),
        ("x_forwarded_for", "10.0.0.1"),
        ("x_http_method_override", "DELETE"),
        ("mcp_method", "tools/call"),
        ("x-http-method-override", "DELETE"),
        ("x-http-method", "DELETE"),
        ("x-method-override", "DELETE"),
        ("x-forwarded", "for=10.0.0.1"),
        ("x-client-ip", "10.0.0.1"),
        ("x-original-uri", "/admin"),
        ("x-auth-request-user", "admin"),
        ("cookie", "a=b; mcp-session-id=alice"),
        ("mcp-param-user_id", "7"),
        ("x-own", "kept"),
    ];
    let all = [&[("content-type", "application/json"), ("accept", "application/json")][..], &headers].concat();
    let target = "/mcp?a=%2F&sid=alice&session=alice&Session[]=alice;b";
    let (answer, ()) = tokio::join!(runner.request(Method::POST, target, &all, PING), async {
        let request = backend.next().await;
        let kept = ["mcp-param-user_id", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-own"];
        assert_eq!(names(&request.head), kept, "{}", request.head);
        assert_eq!(request.header("x-forwarded-for"), Some("127.0.0.1"));
        assert!(request.head.starts_with("POST /mcp?a=%2F&b HTTP"), "{}", request.head);
        request.json("200 OK", "", PONG).await;
    });
    assert_eq!(answer.status, 200);
    let metrics = runner.get("/metrics").await;
    assert!(metrics.body.contains("mcp_runner_removed_headers_total 7\n"), "{}", metrics.body);
}

#[tokio::test]
async fn a_trusted_proxy_alone_says_whose_address_a_request_has() {
    for (trusted, client, source) in
        [(json!([]), "127.0.0.1", "127.0.0.1:"), (json!(["127.0.0.0/8"]), "192.0.2.7", "192.0.2.7:0")]
    {
        let (mut backend, mut webhook) = (Recorder::start().await, Recorder::start().await);
        let hook = json!({"name": "w", "url": webhook.url(), "timeout": 0, "failure_policy": "fail",
            "tls_config": {"insecure_skip_verify": true}});
        let members = json!({
            "portcullis": {"trusted_proxies": trusted},
            "middleware_configs": [
                {"type": "mcp-parser", "parameters": {}},
                {"type": "validating-webhook", "parameters": {"webhooks": [hook]}},
            ],
        });
        let runner = Runner::http(&backend.url(), &members).await;
        let headers = [("content-type", "application/json"), ("x-forwarded-for", "10.0.0.1, 192.0.2.7")];
        let (answer, ()) = tokio::join!(runner.request(Method::POST, "/mcp", &headers, PING), async {
            let asked = webhook.next().await;
            let body = String::from_utf8_lossy(&asked.body).into_owned();
            assert!(body.contains(&format!(r#""source_ip":"{source}"#)), "{body}");
            asked.json("200 OK", "", r#"{"version":"v0.1.0","uid":"x","allowed":true}"#).await;
            let request = backend.next().await;
            assert_eq!(request.header("x-forwarded-for"), Some(client));
            request.json("200 OK", "", PONG).await;
        });
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}

#[tokio::test]
async fn a_cookie_of_a_login_elsewhere_goes_on() {
    let mut backend = Recorder::start().await;
    let runner = Runner::http(&backend.url(), &json!({})).await;
    tokio::join!(runner.post(&[("cookie", "sessionid=x; session=y")], PING), async {
        let request = backend.next().await;
        assert_eq!(request.header("cookie"), Some("sessionid=x; session=y"));
        request.json("200 OK", "", PONG).await;
    });
}

/// An author may write any query into the URL of a server; a client has no say in it.
#[tokio::test]
async fn an_authors_query_and_headers_are_sent_as_written() {
    let mut backend = Recorder::start().await;
    let members = json!({
        "remote_url": format!("{}/v1/mcp?session=author&sid=1", backend.url()),
        "header_forward": {"add_plaintext_headers": {"X_Api_Key": "own"}},
    });
    let flags = ["--allow-endpoint-cidr", "127.0.0.0/8"].map(Into::into);
    let runner = Runner::start("streamable-http", &members, &flags, &[]).await;
    let headers = [
        ("content-type", "application/json"),
        ("x-api-key", "client"),
        ("x_api_key", "client"),
        ("x.api.key", "client"),
    ];
    let target = "/mcp?session=client&a=b&sid=2";
    let (answer, ()) = tokio::join!(runner.request(Method::POST, target, &headers, INITIALIZE), async {
        let request = backend.next().await;
        assert!(request.head.starts_with("POST /v1/mcp?session=author&sid=1&a=b HTTP"), "{}", request.head);
        assert_eq!(request.header("x_api_key"), Some("own"));
        assert!(!request.head.contains("client"), "{}", request.head);
        request.json("200 OK", "", r#"{"jsonrpc":"2.0","id":"init","result":{}}"#).await;
    });
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn a_webhook_that_blames_requests_is_counted_apart() {
    let (mut backend, mut webhook) = (Recorder::start().await, Recorder::start().await);
    let hook = json!({"name": "w", "url": webhook.url(), "timeout": 0, "failure_policy": "ignore",
        "tls_config": {"insecure_skip_verify": true}});
    let members = json!({"middleware_configs": [
        {"type": "mcp-parser", "parameters": {}},
        {"type": "validating-webhook", "parameters": {"webhooks": [hook]}},
    ]});
    let runner = Runner::http(&backend.url(), &members).await;
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"danger"}}"#;
    let (answer, ()) = tokio::join!(runner.post(&[], call), async {
        webhook.next().await.json("400 Bad Request", "", "{}").await;
    });
    assert_eq!(answer.status, 403, "{answer:?}");
    assert!(backend.is_quiet());
    let metrics = runner.get("/metrics").await.body;
    for (outcome, count) in [("allowed", 0), ("denied", 0), ("blamed", 1), ("failed", 0)] {
        let labels = format!(r#"webhook="w",type="validating-webhook",outcome="{outcome}""#);
        let line = format!("mcp_runner_webhook_calls_total{{{labels}}} {count}\n");
        assert!(metrics.contains(&line), "{metrics}");
    }
}
