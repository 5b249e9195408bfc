//! The OpenTelemetry Collector takes what the proxy exports, by each protocol.

use std::path::Path;
use std::process::{Command as StdCommand, Stdio};

use portcullis_testing::free_address;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};

use crate::support::{INITIALIZE, Runner, Server, within};

/// A collector that prints what it takes.
struct Printing {
    _child: Child,
    lines: Lines<BufReader<ChildStderr>>,
}

impl Printing {
    /// Listens at these addresses.
    async fn start(folder: &Path, grpc: &str, http: &str) -> Self {
        let config = json!({
            "receivers": { "otlp": { "protocols": { "grpc": { "endpoint": grpc }, "http": { "endpoint": http } } } },
            "exporters": { "debug": { "verbosity": "detailed" } },
            "service": {
                "telemetry": { "metrics": { "level": "none" } },
                "pipelines": {
                    "traces": { "receivers": ["otlp"], "exporters": ["debug"] },
                    "metrics": { "receivers": ["otlp"], "exporters": ["debug"] },
                },
            },
        });
        let file = folder.join("collector.yaml");
        std::fs::write(&file, config.to_string()).unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hack/collector/build.sh");
        let program = StdCommand::new(script).arg("where").output().unwrap().stdout;
        let program = String::from_utf8(program).unwrap();
        let mut child = Command::new(program.trim())
            .arg("--config")
            .arg(file)
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("{program}: {error}; run `hack/collector/build.sh`"));
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut collector = Self { _child: child, lines };
        collector.prints(&["Everything is ready"]).await;
        collector
    }

    /// Returns when each of these texts is in a line, in any order.
    async fn prints(&mut self, texts: &[&str]) {
        let mut left = texts.to_vec();
        let reading = async {
            while !left.is_empty() {
                let line = self.lines.next_line().await.unwrap().expect("the collector runs");
                left.retain(|text| !line.contains(text));
            }
        };
        within(&format!("the collector to print {texts:?}"), reading).await;
    }
}

#[tokio::test]
async fn the_collector_takes_spans_and_metrics_by_each_protocol() {
    let folder = tempfile::tempdir().unwrap();
    let [grpc, http] = [free_address(), free_address()].map(|address| address.to_string());
    let mut collector = Printing::start(folder.path(), &grpc, &http).await;
    let server = Server::go().await;
    for (protocol, endpoint) in [("http/protobuf", &http), ("grpc", &grpc)] {
        let telemetry = json!({
            "endpoint": endpoint, "insecure": true, "serviceName": protocol,
            "tracingEnabled": true, "metricsEnabled": true, "samplingRate": "1",
        });
        let members = json!({ "middleware_configs": [], "telemetry_config": telemetry });
        let environment = [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
            ("OTEL_BSP_SCHEDULE_DELAY", "100"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "100"),
        ];
        let runner = Runner::http_with(&server.url(), &members, &environment).await;
        let trace = "0af7651916cd43dd8448eb211c80319c";
        let answer = runner.post(&[("traceparent", &format!("00-{trace}-b7ad6b7169203331-01"))], INITIALIZE).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let service = format!("service.name: Str({protocol})");
        let (name, trace) = ("initialize t", format!("Trace ID       : {trace}"));
        collector
            .prints(&[
                &service,
                &trace,
                name,
                "-> Name: toolhive_mcp_requests",
                "-> Name: mcp.server.operation.duration",
            ])
            .await;
    }
}
