//! Spans and metrics on their way to a collector: by gRPC and HTTP, and to one that fails (toolhive-runner §2.12).

use portcullis_testing::free_address;
use serde_json::{Value, json};

use crate::support::{
    Collector, Protocol, Recorder, Runner, TlsFront, broken_collector, eventually, parting_collector, spans, text,
};
use crate::telemetry::traced;

/// Spans that the proxy holds at most.
const QUEUED: usize = 2048;
/// Variables by which exports are soon, and a collector is soon given up.
const QUICK: [(&str, &str); 3] =
    [("OTEL_BSP_SCHEDULE_DELAY", "100"), ("OTEL_METRIC_EXPORT_INTERVAL", "200"), ("OTEL_EXPORTER_OTLP_TIMEOUT", "500")];

/// A document whose traces and metrics go to `endpoint`, all of them.
fn exporting(endpoint: &str, members: &Value) -> Value {
    let mut config = json!({
        "endpoint": endpoint, "serviceName": "demo", "tracingEnabled": true, "metricsEnabled": true,
        "samplingRate": "1", "insecure": true,
    });
    for (name, value) in members.as_object().unwrap() {
        config[name] = value.clone();
    }
    traced(&config)
}

/// Has the proxy pass so many calls on.
async fn serves(runner: &Runner, backend: &mut Recorder, calls: usize) {
    let call = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo"}}"#;
    for _ in 0..calls {
        let (answer, ()) = tokio::join!(runner.post(&[], call), async {
            backend.next().await.json("200 OK", "", r#"{"jsonrpc":"2.0","id":2,"result":{}}"#).await;
        });
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}

async fn under_tls(protocol: Protocol, collector: &Collector) -> TlsFront {
    match protocol {
        Protocol::Http => TlsFront::before(collector.address).await,
        Protocol::Grpc => TlsFront::before_http2(collector.address).await,
    }
}

/// The value of a counter.
async fn count(runner: &Runner, series: &str) -> usize {
    let report = runner.get("/metrics").await.body;
    let line = report.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{series} is not in {report}")).parse().unwrap()
}

async fn counted(runner: &Runner, series: &str, least: usize) {
    eventually(&format!("{series} to be {least}"), || async { (count(runner, series).await >= least).then_some(()) })
        .await;
}

const LOST: &str = r#"mcp_runner_telemetry_spans_total{result="lost"}"#;
const EXPORTED: &str = r#"mcp_runner_telemetry_spans_total{result="exported"}"#;

#[tokio::test]
async fn spans_and_metrics_arrive_by_each_protocol() {
    let mut backend = Recorder::start().await;
    for (protocol, has_tls) in Protocol::ALL.into_iter().flat_map(|protocol| [(protocol, false), (protocol, true)]) {
        let case = format!("{protocol:?}, TLS {has_tls}");
        let mut collector = Collector::start(protocol).await;
        let mut members = json!({"headers": {"X-Tenant": "acme"}, "customAttributes": {"team": "tools"}});
        let front = if has_tls { Some(under_tls(protocol, &collector).await) } else { None };
        let address = front.as_ref().map_or(collector.address, |front| front.address);
        if let Some(front) = &front {
            members["insecure"] = false.into();
            members["caCertPath"] = front.ca().to_str().into();
        }
        let environment = [
            &QUICK[..],
            &[
                ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol.as_str()),
                ("OTEL_RESOURCE_ATTRIBUTES", "service.name=from-env,service.namespace=golden,=nameless"),
                ("TOOLHIVE_OTEL_HEADER_X_API_KEY", "s3cret\n"),
                // The SDK's own variables decide nothing.
                ("OTEL_TRACES_SAMPLER", "always_off"),
                ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "0"),
            ],
        ]
        .concat();
        let runner = Runner::http_with(&backend.url(), &exporting(&address.to_string(), &members), &environment).await;
        serves(&runner, &mut backend, 1).await;
        let ((traces, of_traces), (metrics, of_metrics)) = (collector.traces().await, collector.metrics().await);
        for headers in [of_traces, of_metrics] {
            assert_eq!(
                (&headers["x-tenant"], &headers["x-api-key"]),
                (&"acme".parse().unwrap(), &"s3cret".parse().unwrap()),
                "{case}"
            );
            assert!(headers["user-agent"].to_str().unwrap().starts_with("portcullis/"), "{case}: {headers:?}");
        }
        assert_eq!(spans(&traces).count(), 1, "{case}: {traces:?}");
        let (of_spans, measured) = (&traces.resource_spans[0], &metrics.resource_metrics[0]);
        assert_eq!(of_spans.resource, measured.resource, "{case}");
        assert_eq!(of_spans.schema_url, "https://opentelemetry.io/schemas/1.43.0", "{case}");
        let attributes = &of_spans.resource.as_ref().unwrap().attributes;
        for (name, value) in [("service.name", "from-env"), ("service.namespace", "golden"), ("team", "tools")] {
            assert_eq!(text(attributes, name), Some(value), "{case}");
        }
        let mut names: Vec<_> = attributes.iter().map(|attribute| &*attribute.key).collect();
        names.sort_unstable();
        let expected = ["host.name", "service.name", "service.namespace", "service.version", "team"];
        assert_eq!(names, expected, "{case}");
        let scope = "github.com/stacklok/toolhive/pkg/telemetry";
        assert_eq!(of_spans.scope_spans[0].scope.as_ref().unwrap().name, scope, "{case}");
        assert_eq!(measured.scope_metrics[0].scope.as_ref().unwrap().name, scope, "{case}");
        counted(&runner, EXPORTED, 1).await;
        assert_eq!(count(&runner, LOST).await, 0, "{case}");
        assert!(!runner.log().contains("s3cret"), "{case}: {}", runner.log());
    }
}

#[tokio::test]
async fn a_collector_that_fails_costs_spans_and_no_call() {
    let mut backend = Recorder::start().await;
    for protocol in Protocol::ALL {
        for fault in ["down", "resets", "stalls"] {
            let (address, accepting) = match fault {
                "down" => (free_address(), tokio::spawn(async {})),
                fault => broken_collector(fault == "resets").await,
            };
            let environment = [&QUICK[..], &[("OTEL_EXPORTER_OTLP_PROTOCOL", protocol.as_str())]].concat();
            let document = exporting(&address.to_string(), &json!({}));
            let mut runner = Runner::http_with(&backend.url(), &document, &environment).await;
            serves(&runner, &mut backend, 3).await;
            for signal in ["traces", "metrics"] {
                let failures = format!("mcp_runner_telemetry_export_failures_total{{signal=\"{signal}\"}}");
                counted(&runner, &failures, 2).await;
            }
            serves(&runner, &mut backend, 3).await;
            runner.terminate();
            assert!(runner.ended().await.success(), "{protocol:?} {fault}");
            // Once for each signal, however often it fails.
            let log = runner.log();
            assert_eq!(log.matches("telemetry cannot be exported").count(), 2, "{protocol:?} {fault}: {log}");
            accepting.abort();
        }
    }
}

#[tokio::test]
async fn what_a_collector_says_is_not_in_the_log() {
    let mut backend = Recorder::start().await;
    let (address, accepting) = parting_collector("you sent me hunter2").await;
    let environment = [&QUICK[..], &[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]].concat();
    let document = exporting(&address.to_string(), &json!({"metricsEnabled": false}));
    let runner = Runner::http_with(&backend.url(), &document, &environment).await;
    serves(&runner, &mut backend, 1).await;
    runner.logged("telemetry cannot be exported").await;
    let log = runner.log();
    let told = log.lines().find(|line| line.contains("telemetry cannot be exported")).unwrap();
    assert!(told.contains("excessive load") && !told.contains("hunter2"), "{told}");
    accepting.abort();
}

#[tokio::test]
async fn no_more_spans_are_held_than_the_queue_has_places() {
    let mut backend = Recorder::start().await;
    let (address, accepting) = broken_collector(false).await;
    let mut runner = Runner::http(&backend.url(), &exporting(&address.to_string(), &json!({}))).await;
    let calls = QUEUED + 500;
    serves(&runner, &mut backend, calls).await;
    let lost = count(&runner, LOST).await;
    assert_eq!(count(&runner, EXPORTED).await, 0);
    runner.terminate();
    assert!(runner.ended().await.success());
    runner.logged("did not take the last of telemetry").await;
    let log = runner.log();
    let told = log.lines().find(|line| line.contains("did not take the last of telemetry")).unwrap();
    let held: usize = told.split("spans=").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert_eq!(held + lost, calls, "{told}");
    assert!((1..=QUEUED).contains(&held), "{told}");
    accepting.abort();
}

#[tokio::test]
async fn the_last_span_is_exported_before_the_proxy_ends() {
    let mut backend = Recorder::start().await;
    for protocol in Protocol::ALL {
        let mut collector = Collector::start(protocol).await;
        let document = exporting(&collector.address.to_string(), &json!({}));
        // By default, spans wait for five seconds, and metrics for a minute.
        let environment = [("OTEL_EXPORTER_OTLP_PROTOCOL", protocol.as_str())];
        let mut runner = Runner::http_with(&backend.url(), &document, &environment).await;
        serves(&runner, &mut backend, 1).await;
        runner.terminate();
        assert!(runner.ended().await.success(), "{protocol:?}");
        assert_eq!(spans(&collector.traces().await.0).count(), 1, "{protocol:?}");
        collector.metrics().await;
    }
}

#[tokio::test]
async fn a_collector_that_comes_back_gets_the_spans_that_waited() {
    let mut backend = Recorder::start().await;
    for protocol in Protocol::ALL {
        let address = free_address();
        let environment = [&QUICK[..], &[("OTEL_EXPORTER_OTLP_PROTOCOL", protocol.as_str())]].concat();
        let document = exporting(&address.to_string(), &json!({"metricsEnabled": false}));
        let runner = Runner::http_with(&backend.url(), &document, &environment).await;
        serves(&runner, &mut backend, 1).await;
        runner.logged("telemetry cannot be exported").await;
        let mut collector = Collector::at(protocol, address, 0).await;
        assert_eq!(spans(&collector.traces().await.0).count(), 1, "{protocol:?}");
        runner.logged("telemetry is exported again").await;
        assert_eq!((count(&runner, EXPORTED).await, count(&runner, LOST).await), (1, 0), "{protocol:?}");
    }
}

#[tokio::test]
async fn a_new_ca_bundle_is_read_without_a_restart() {
    let mut backend = Recorder::start().await;
    for protocol in Protocol::ALL {
        let mut collector = Collector::start(protocol).await;
        let [front, other] = [under_tls(protocol, &collector).await, under_tls(protocol, &collector).await];
        let folder = tempfile::tempdir().unwrap();
        let bundle = folder.path().join("ca.crt");
        std::fs::copy(other.ca(), &bundle).unwrap();
        let environment = [&QUICK[..], &[("OTEL_EXPORTER_OTLP_PROTOCOL", protocol.as_str())]].concat();
        let document = exporting(&front.address.to_string(), &json!({"insecure": false, "caCertPath": bundle}));
        let runner = Runner::http_with(&backend.url(), &document, &environment).await;
        serves(&runner, &mut backend, 1).await;
        runner.logged("telemetry cannot be exported").await;
        std::fs::copy(front.ca(), &bundle).unwrap();
        assert_eq!(spans(&collector.traces().await.0).count(), 1, "{protocol:?}");
    }
}

#[tokio::test]
async fn spans_that_the_collector_rejects_are_lost() {
    let mut backend = Recorder::start().await;
    for protocol in Protocol::ALL {
        let collector = Collector::at(protocol, ([127, 0, 0, 1], 0).into(), 2).await;
        let environment = [("OTEL_EXPORTER_OTLP_PROTOCOL", protocol.as_str()), ("OTEL_BSP_SCHEDULE_DELAY", "1000")];
        let document = exporting(&collector.address.to_string(), &json!({"metricsEnabled": false}));
        let runner = Runner::http_with(&backend.url(), &document, &environment).await;
        serves(&runner, &mut backend, 5).await;
        counted(&runner, LOST, 2).await;
        let problem = "the collector rejected 2 of them";
        assert_eq!(runner.log().matches(problem).count(), 1, "{protocol:?}: {}", runner.log());
        assert!(!runner.log().contains("too many for us"), "{protocol:?}: {}", runner.log());
    }
}
