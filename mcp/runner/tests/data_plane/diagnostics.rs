//! Metrics beside the proxy's port, checks of the server, and what `Connection` may name.

use std::net::SocketAddr;

use http::Method;
use portcullis_testing::free_address;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{Recorder, Runner, eventually, within};

/// Where the runner's log says that metrics are served.
async fn diagnostics(runner: &Runner) -> SocketAddr {
    eventually("the address of the diagnostics", || async {
        let log = runner.log();
        log.split("diagnostics=\"").nth(1)?.split('"').next()?.parse().ok()
    })
    .await
}

async fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    within("an answer", stream.read_to_string(&mut answer)).await.unwrap();
    answer
}

#[tokio::test]
async fn metrics_are_served_beside_the_proxys_port_and_there_only_where_the_document_wants_it() {
    let backend = Recorder::start().await;
    for (mut telemetry, here) in [
        (json!({}), 200),
        (json!({"metricsOnTransportPort": true}), 200),
        (json!({"metricsOnTransportPort": false}), 404),
    ] {
        // The runner of before may not be gone yet.
        let free = free_address();
        telemetry["prometheusPort"] = json!(free.port());
        let runner = Runner::http(&backend.url(), &json!({"telemetry_config": telemetry})).await;
        assert_eq!(diagnostics(&runner).await, free, "{telemetry}");
        let metrics = get(free, "/metrics").await;
        assert!(metrics.starts_with("HTTP/1.1 200") && metrics.contains("mcp_runner_connections "), "{metrics}");
        assert!(get(free, "/mcp").await.starts_with("HTTP/1.1 404"), "no proxy without middleware");
        let answer = runner.get("/metrics").await;
        assert_eq!(answer.status, here, "{telemetry}");
        assert!(here == 200 || answer.body.contains("diagnostics listener"), "{}", answer.body);
    }
}

#[tokio::test]
async fn a_taken_diagnostics_port_does_not_stop_the_proxy() {
    let backend = Recorder::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let taken = listener.local_addr().unwrap();
    let telemetry = json!({"prometheusPort": taken.port(), "metricsOnTransportPort": false});
    let runner = Runner::http(&backend.url(), &json!({"telemetry_config": telemetry})).await;
    let free = diagnostics(&runner).await;
    assert_ne!(free, taken);
    assert_eq!(runner.log().matches("trying a free port").count(), 1);
    let elsewhere = runner.get("/metrics").await;
    assert!(elsewhere.body.contains(&format!("on port {}\n", free.port())), "{}", elsewhere.body);
    assert!(get(free, "/metrics").await.starts_with("HTTP/1.1 200"));
    runner.ready().await;
}

#[tokio::test]
async fn a_server_that_fails_its_checks_is_a_metric_and_never_the_end_of_the_proxy() {
    let environment = [("TOOLHIVE_HEALTH_CHECK_INTERVAL", "50ms"), ("TOOLHIVE_HEALTH_CHECK_PING_TIMEOUT", "1s")];
    let runner = Runner::http_with(&format!("http://{}", free_address()), &json!({}), &environment).await;
    // ToolHive ends its process after five.
    eventually("ten failed checks", || async {
        let metrics = runner.get("/metrics").await.body;
        let failed = metrics.lines().find_map(|line| line.strip_prefix("mcp_runner_backend_failed_checks_total "))?;
        (failed.parse::<u64>().unwrap() >= 10).then_some(())
    })
    .await;
    let health = runner.get("/health").await;
    assert_eq!((health.status, &health.message()["status"]), (200, &json!("degraded")));
    assert!(runner.get("/metrics").await.body.contains("mcp_runner_backend_up 0\n"));
    assert_eq!(runner.log().matches("fails its check").count(), 1, "said once, not each time");
}

#[tokio::test]
async fn health_is_the_last_check_and_asks_the_server_nothing() {
    // A server that accepts, and never answers: each question would take seconds.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let environment = [("TOOLHIVE_HEALTH_CHECK_INTERVAL", "1h"), ("TOOLHIVE_HEALTH_CHECK_PING_TIMEOUT", "1s")];
    let runner = Runner::http_with(&url, &json!({}), &environment).await;
    let (mut first, _) = within("the first check", listener.accept()).await.unwrap();
    let report = runner.get("/health").await.message();
    assert_eq!((&report["status"], report.get("mcp")), (&json!("healthy"), None), "before the first result");
    eventually("the first result", || async {
        (runner.get("/health").await.message()["status"] == "degraded").then_some(())
    })
    .await;
    let mut check = Vec::new();
    let _ = within("the end of the check", first.read_to_end(&mut check)).await;
    // The same check asks in the other way before it gives up.
    let _second = within("its second question", listener.accept()).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&check).matches("GET / HTTP/1.1").count(), 1);
    for _ in 0..20 {
        assert_eq!(runner.get("/health").await.message()["status"], "degraded");
    }
    let another = tokio::time::timeout(std::time::Duration::from_millis(100), listener.accept()).await;
    assert!(another.is_err(), "nothing was asked");
}

#[tokio::test]
async fn a_client_cannot_have_a_checked_header_dropped_by_naming_it_in_connection() {
    let mut backend = Recorder::start().await;
    let runner = Runner::http(&backend.url(), &json!({})).await;
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    for names in ["mcp-session-id", "close, x-user", "keep-alive,Authorization"] {
        let headers = [("content-type", "application/json"), ("connection", names)];
        let answer = runner.request(Method::POST, "/mcp", &headers, ping).await;
        assert_eq!(
            (answer.status, answer.body.trim_end()),
            (400, "Connection header may only name hop-by-hop headers"),
            "{names}"
        );
    }
    assert!(backend.is_quiet());
    let headers = [("content-type", "application/json"), ("connection", "Keep-Alive, TE")];
    let (answer, ()) = tokio::join!(runner.request(Method::POST, "/mcp", &headers, ping), async {
        backend.next().await.json("200 OK", "", r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).await;
    });
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn flags_that_an_old_operator_passes_do_not_stop_the_proxy() {
    let backend = Recorder::start().await;
    let arguments = ["--backend", &backend.url(), "--foreground=true", "--removed", "value"];
    let runner = Runner::with_flags(&arguments).await;
    runner.ready().await;
    runner.logged("flags=\"foreground, removed\"").await;
}
