//! ToolHive's metrics at `/metrics`, and the trace that the server is told of (toolhive-runner §2.12, toolhive-0.63 §10).

use std::collections::{BTreeMap, BTreeSet};

use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

use crate::shares::resident;
use crate::support::{Recorder, Runner, within};

const JSON: [(&str, &str); 2] =
    [("content-type", "application/json"), ("accept", "application/json, text/event-stream")];
/// The metrics that ToolHive has after the same requests, without the labels of the scope; of a bucket's count, `*`.
const METRICS: &str = include_str!("telemetry.txt");
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

/// A document with telemetry.
pub(crate) fn traced(config: &Value) -> Value {
    json!({"middleware_configs": [
        {"type": "bodylimit", "parameters": {"max_bytes": 4096}},
        {"type": "auth"},
        {"type": "mcp-parser"},
        {"type": "telemetry", "parameters": {"config": config, "server_name": "full", "transport": "streamable-http"}},
        {"type": "recovery"},
    ]})
}

fn call(tool: &str) -> String {
    json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": tool, "arguments": {"text": "hi"}}})
        .to_string()
}

/// The series in a text of ToolHive's metrics: their values by names and labels, without those of the scope.
fn series(text: &str) -> BTreeMap<(String, BTreeSet<String>), String> {
    let is_scope = |label: &String| label.starts_with("otel_scope_");
    let lines = text.lines().filter(|line| line.starts_with("toolhive_") || line.starts_with("mcp_server_"));
    let read = |line: &str| {
        let (name, rest) = line.split_once('{').unwrap();
        let (labels, value) = rest.rsplit_once("} ").unwrap();
        let labels = labels.strip_suffix('"').unwrap().split("\",").map(|label| {
            let (name, value) = label.split_once("=\"").unwrap();
            // A bound may be written as 1 or as 1.0.
            let number = value.parse::<f64>().ok().filter(|number| name == "le" && number.is_finite());
            number.map_or_else(|| format!("{name}={value}"), |number| format!("{name}={number:?}"))
        });
        ((name.to_owned(), labels.collect()), value.to_owned())
    };
    let series = lines.map(read).map(|((name, mut labels), value): ((_, BTreeSet<String>), _)| {
        if labels.iter().any(is_scope) {
            for scope in [
                "otel_scope_name=github.com/stacklok/toolhive/pkg/telemetry",
                "otel_scope_schema_url=",
                "otel_scope_version=",
            ] {
                assert!(labels.remove(scope), "{name} {labels:?} has no {scope}");
            }
        }
        ((name, labels), value)
    });
    series.collect()
}

#[tokio::test]
async fn metrics_have_the_names_labels_and_buckets_of_toolhive() {
    let mut backend = Recorder::start().await;
    let config = json!({
        "enablePrometheusMetricsPath": true, "serviceName": "full-svc", "customAttributes": {"team": "tools"},
    });
    let runner = Runner::http(&backend.url(), &traced(&config)).await;
    let initialize = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"rec","version":"1"}}}"#;
    let result = r#"{"jsonrpc":"2.0","id":2,"result":{}}"#;
    for (body, status, answer) in [
        (
            initialize,
            "200 OK",
            r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}"#,
        ),
        (r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, "202 Accepted", ""),
        (&call("echo"), "200 OK", result),
        (&call("echo"), "200 OK", result),
        (&call("fail"), "200 OK", r#"{"jsonrpc":"2.0","id":2,"result":{"isError":true,"content":[]}}"#),
        (&call("broken"), "200 OK", r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32000,"message":"broke"}}"#),
        (&call("http500"), "500 Oops", r#"{"error":"boom"}"#),
    ] {
        let ((), answer) = tokio::join!(
            async { backend.next().await.json(status, "", answer).await },
            runner.request(Method::POST, "/mcp", &JSON, body)
        );
        assert!(status.starts_with(&answer.status.to_string()), "{body}: {answer:?}");
    }
    // A request that is refused before telemetry is in no metric of its.
    for (body, status) in [("{}{".to_owned(), 400), (format!("{}{}", call("echo"), " ".repeat(5000)), 413)] {
        assert_eq!(runner.request(Method::POST, "/mcp", &JSON, &body).await.status, status);
    }
    let text = runner.get("/metrics").await.body;
    let found = series(&text);
    let expected = series(METRICS);
    assert_eq!(expected.len(), 63);
    for (key, value) in &expected {
        let found = found.get(key).unwrap_or_else(|| panic!("{key:?} is not in {text}"));
        assert!(value == "*" || value == found, "{key:?} is {found} and not {value}");
    }
    let is_beside = |(name, labels): &(String, BTreeSet<String>)| {
        name.ends_with("_sum") || labels.iter().any(|label| label.starts_with("le=") && label != "le=+Inf")
    };
    let more: Vec<_> = found.keys().filter(|key| !expected.contains_key(key) && !is_beside(key)).collect();
    assert!(more.is_empty(), "{more:?} are more than ToolHive has");
    // In OpenMetrics the suffix of a counter is not part of its name.
    for line in METRICS.replace("_total ", " ").lines().filter(|line| line.starts_with('#')) {
        assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
    }
    let target = text.lines().find(|line| line.starts_with("target_info{")).unwrap();
    for label in [r#"service_name="full-svc""#, r#"team="tools""#] {
        assert!(target.contains(label), "{target}");
    }
    assert_eq!(text.matches("# EOF").count(), 1);
    assert!(text.contains("mcp_runner_requests_total{"), "the proxy's own are in the same text");
}

#[tokio::test]
async fn a_stream_is_counted_while_it_is_open() {
    let mut backend = Recorder::start().await;
    let runner = Runner::http(&backend.url(), &traced(&json!({"enablePrometheusMetricsPath": true}))).await;
    let get = |path| runner.build(Method::GET, path, &[("accept", "text/event-stream")], "");
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
    let mut open = Vec::new();
    for path in ["/sse", "/mcp"] {
        let (stream, server) = tokio::join!(runner.send(get(path)), async {
            let mut request = backend.next().await;
            request.part(head).await;
            request
        });
        open.push((stream, server));
    }
    let text = runner.get("/metrics").await.body;
    let count = |name: &str, labels: &[&str]| {
        let found = series(&text);
        let of = |(_, all): &&(String, BTreeSet<String>)| labels.iter().all(|label| all.contains(*label));
        found.keys().filter(|(found, _)| found == name).filter(of).map(|key| found[key].clone()).collect::<Vec<_>>()
    };
    assert_eq!(count("toolhive_mcp_active_connections", &["connection_type=sse"]), ["1"], "{text}");
    assert_eq!(count("toolhive_mcp_active_connections", &[]), ["1", "1"], "{text}");
    assert_eq!(count("toolhive_mcp_requests_total", &["mcp_method=sse_connection", "status_code=200"]), ["1"]);
    assert_eq!(count("toolhive_mcp_requests_total", &["mcp_method=unknown", "method=GET"]), ["1"], "{text}");
    assert_eq!(count("toolhive_mcp_request_duration_seconds_count", &[]), ["1"], "a session's stream has no duration");
}

#[tokio::test]
async fn scrapers_that_read_nothing_share_a_report() {
    let mut backend = Recorder::start().await;
    let runner = Runner::http(&backend.url(), &traced(&json!({"enablePrometheusMetricsPath": true}))).await;
    let mut serve = async |tool: &str| {
        let body = call(tool);
        let (answer, ()) = tokio::join!(runner.request(Method::POST, "/mcp", &JSON, &body), async {
            backend.next().await.json("200 OK", "", r#"{"jsonrpc":"2.0","id":2,"result":{}}"#).await;
        });
        assert_eq!(answer.status, 200, "{answer:?}");
    };
    // The kernel would take all of a shorter report. From their second call on, all of these have series of their own.
    for at in (0..256).chain(0..256) {
        serve(&format!("tool{at}{}", "x".repeat(100))).await;
    }
    let before = resident(&runner);
    let mut scrapers = Vec::new();
    for _ in 0..100 {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut stream = socket.connect(runner.address).await.unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        within("an answer", stream.read_exact(&mut [0; 100])).await.unwrap();
        scrapers.push(stream);
    }
    let grown = resident(&runner).saturating_sub(before);
    assert!(grown < 64, "{grown} MiB");
    serve("echo").await;
}

#[tokio::test]
async fn the_server_is_told_of_the_callers_trace() {
    let mut backend = Recorder::start().await;
    let client = format!("00-{TRACE}-b7ad6b7169203331-01");
    for (config, is_traced) in [
        (json!({"endpoint": "127.0.0.1:9", "insecure": true, "tracingEnabled": true, "samplingRate": "0.05"}), true),
        (json!({"enablePrometheusMetricsPath": true}), false),
    ] {
        let runner = Runner::http(&backend.url(), &traced(&config)).await;
        let headers = [&JSON[..], &[("traceparent", &*client), ("tracestate", "a=b")]].concat();
        let body = call("echo");
        let (told, answer) = tokio::join!(
            async {
                let request = backend.next().await;
                let told = ["traceparent", "tracestate"].map(|name| request.header(name).map(str::to_owned));
                request.json("200 OK", "", r#"{"jsonrpc":"2.0","id":2,"result":{}}"#).await;
                told.map(Option::unwrap)
            },
            runner.request(Method::POST, "/mcp", &headers, &body)
        );
        assert_eq!((answer.status, &*told[1]), (200, "a=b"), "{answer:?}");
        assert!(told[0].starts_with(&format!("00-{TRACE}-")) && told[0].ends_with("-01"), "{told:?}");
        assert_eq!(told[0] != client, is_traced, "{told:?}");
    }
}
