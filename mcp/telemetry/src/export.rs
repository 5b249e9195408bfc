//! The export of spans and metrics to a collector, by OTLP (toolhive-runner §2.12).
//!
//! One task of the proxy's runtime exports, and no thread of the SDK: spans wait in a queue that has a bound, each export has a deadline, and
//! no call waits for any of it. The connection is mcp-http's, so a collector is under the same guard on addresses, roots and egress proxy as webhooks are.

mod collector;
mod failure;
mod grpc;
mod headers;
pub(crate) mod queue;
mod report;
mod resource;
mod signal;
mod task;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mcp_middleware::{BuildContext, BuildError, ProxySettings};
use mcp_runconfig::TelemetryConfig;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider, SpanLimits};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use self::collector::Collector;
use self::queue::{Processor, Queue};
use self::report::Report;
use self::signal::Signal;
use self::task::Link;
use crate::instruments::SCOPE;
use crate::reader::Reader;

/// The part of traces that is kept where the document has none.
const SAMPLING_RATE: f64 = 0.05;
/// The longest that a span waits for its export.
const SPAN_DELAY: Duration = Duration::from_secs(5);
/// The time between two exports of metrics.
const METRIC_INTERVAL: Duration = Duration::from_mins(1);
/// The time that the last export may take.
const LAST: Duration = Duration::from_secs(2);

/// Records spans and metrics.
pub(crate) struct Pipeline {
    /// Makes spans. `None` where tracing is off, or there is no collector.
    pub(crate) tracer: Option<SdkTracer>,
    /// Makes instruments.
    pub(crate) meters: SdkMeterProvider,
    export: Mutex<Option<Export>>,
}

/// The task that exports.
struct Export {
    ending: CancellationToken,
    task: JoinHandle<()>,
    queue: Option<Arc<Queue>>,
}

/// Starts the export of what `config` asks for; `scrape` reads the metrics as well. The collector need not be there.
pub(crate) async fn start(
    config: &TelemetryConfig,
    context: &BuildContext,
    scrape: Option<Reader>,
) -> Result<Pipeline, BuildError> {
    let sampler = sampler(config, context)?;
    let resource = resource::resource(config, context).await;
    let mut meters = SdkMeterProvider::builder().with_resource(resource.clone());
    if let Some(scrape) = scrape {
        meters = meters.with_reader(scrape);
    }
    if config.endpoint.is_empty() || !(config.tracing_enabled || config.metrics_enabled) {
        return Ok(Pipeline { tracer: None, meters: meters.build(), export: Mutex::default() });
    }
    let settings = &context.settings;
    let (collector, ending) = (Arc::new(Collector::new(config, context)?), CancellationToken::new());
    let report = Report::new(collector.host(), &settings.metrics);
    let link = |signal: Signal, delay| Link {
        collector: Arc::clone(&collector),
        ending: ending.clone(),
        report: report.of(signal),
        delay,
    };
    let spans = config.tracing_enabled.then(|| {
        let link = link(Signal::Traces, time(settings, "OTEL_BSP_SCHEDULE_DELAY").unwrap_or(SPAN_DELAY));
        (Arc::new(Queue::new(&settings.metrics)), link)
    });
    let metrics = config.metrics_enabled.then(|| {
        let link = link(Signal::Metrics, time(settings, "OTEL_METRIC_EXPORT_INTERVAL").unwrap_or(METRIC_INTERVAL));
        (Reader::default(), link)
    });
    if let Some((reader, _)) = &metrics {
        meters = meters.with_reader(reader.clone());
    }
    let queue = spans.as_ref().map(|(queue, _)| Arc::clone(queue));
    let tracer = queue.clone().map(|queue| {
        let provider = SdkTracerProvider::builder()
            .with_span_processor(Processor(queue))
            .with_sampler(sampler)
            // By default, variables of the environment decide.
            .with_span_limits(SpanLimits::default())
            .with_resource(resource.clone());
        provider.build().tracer(SCOPE)
    });
    let task = tokio::spawn(async move {
        let spans = async {
            if let Some((queue, link)) = spans {
                task::export_spans(&queue, link, &resource).await;
            }
        };
        let metrics = async {
            if let Some((reader, link)) = metrics {
                task::export_metrics(&reader, link).await;
            }
        };
        tokio::join!(spans, metrics);
    });
    Ok(Pipeline { tracer, meters: meters.build(), export: Mutex::new(Some(Export { ending, task, queue })) })
}

/// The time in a variable of the process, in milliseconds; `None` where there is none.
fn time(settings: &ProxySettings, variable: &str) -> Option<Duration> {
    let millis = (settings.variables)(variable)?.trim().parse().ok().filter(|millis| *millis > 0)?;
    Some(Duration::from_millis(millis))
}

/// The decision of whoever began the trace, and else one by the trace's id.
fn sampler(config: &TelemetryConfig, context: &BuildContext) -> Result<Sampler, BuildError> {
    let text = config.sampling_rate.trim();
    let rate = if text.is_empty() { Some(SAMPLING_RATE) } else { text.parse().ok() };
    let rate = rate.filter(|rate| (0.0..=1.0).contains(rate)).ok_or_else(|| {
        let problem = format!("{text:?} is no part of all traces");
        context.error("parameters.config.samplingRate", problem, "write a number from 0 to 1, such as \"0.05\"")
    })?;
    Ok(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(rate))))
}

impl Pipeline {
    /// Exports what is left, for [`LAST`]. Call it when the last request has been answered.
    pub(crate) async fn close(&self) {
        let export = self.export.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Export { ending, mut task, queue }) = export else { return };
        ending.cancel();
        if timeout(LAST, &mut task).await.is_err() {
            task.abort();
            let spans = queue.map_or(0, |queue| queue.lose_rest());
            tracing::warn!(spans, "the collector did not take the last of telemetry in time; these spans are lost");
        }
    }
}

#[cfg(test)]
mod tests {
    use mcp_middleware::{Registry, Secret, Variables};
    use mcp_runconfig::{MiddlewareConfig, TELEMETRY};
    use serde_json::{Value, json};

    use super::*;

    async fn build(config: Value, change: impl FnOnce(&mut ProxySettings)) -> Result<(), BuildError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut settings = ProxySettings::new(([127, 0, 0, 1], 0).into(), provider);
        change(&mut settings);
        let mut registry = Registry::default();
        crate::register(&mut registry);
        let config = MiddlewareConfig { kind: TELEMETRY.to_owned(), parameters: json!({ "config": config }) };
        registry.build(&[config], settings).await.map(drop)
    }

    /// Tracing to this endpoint, with `members` over it.
    fn to(endpoint: &str, members: &Value) -> Value {
        let mut config = json!({"endpoint": endpoint, "tracingEnabled": true, "insecure": true});
        config.as_object_mut().unwrap().extend(members.as_object().cloned().unwrap());
        config
    }

    #[tokio::test]
    async fn a_bad_member_is_named_without_secrets() {
        for (config, member, problem) in [
            (to("c:1", &json!({"samplingRate": "half"})), "samplingRate", "\"half\" is no part"),
            (to("c:1", &json!({"samplingRate": "1.5"})), "samplingRate", "\"1.5\" is no part"),
            (to("c:1", &json!({"samplingRate": "NaN"})), "samplingRate", "\"NaN\" is no part"),
            (to("https://c:4318", &json!({})), "endpoint", "contradicts insecure, which is true"),
            (to("http://c:4318", &json!({"insecure": false})), "endpoint", "contradicts insecure, which is false"),
            (to("tcp://c:4318", &json!({})), "endpoint", "is not a URL"),
            (to("u:s3cret@c:4318", &json!({})), "endpoint", "has a user name in it"),
            (to("c:4318/?key=s3cret", &json!({})), "endpoint", "has a query"),
            (to("169.254.169.254:80", &json!({})), "endpoint", "metadata"),
            (to("c:1", &json!({"insecure": false, "caCertPath": "ca"})), "caCertPath", "is not an absolute path"),
            (to("c:1", &json!({"insecure": false, "caCertPath": "/no/ca"})), "caCertPath", "cannot be read"),
            (to("c:1", &json!({"headers": {"X Tenant": "s3cret"}})), "headers", "has no name of a header"),
            (
                to("c:1", &json!({"headers": {"X-Tenant": "s3cret\n"}})),
                "headers",
                "has a value that no header can have",
            ),
            (to("c:1", &json!({"headers": {"Content-Type": "s3cret"}})), "headers", "the proxy writes itself"),
        ] {
            let error = build(config, |_| {}).await.unwrap_err();
            assert_eq!(error.field, format!("middleware_configs[0].parameters.config.{member}"), "{error}");
            assert!(error.problem.contains(problem) && !error.to_string().contains("s3cret"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_bad_variable_is_named_without_its_value() {
        let header = |name: &str, value: &str| vec![(name.to_owned(), Secret::new(value))];
        let unset: Variables = |_| None;
        let json: Variables = |name| (name == "OTEL_EXPORTER_OTLP_PROTOCOL").then(|| "http/json".to_owned());
        let grpc: Variables = |name| (name == "OTEL_EXPORTER_OTLP_PROTOCOL").then(|| "grpc".to_owned());
        for (headers, variables, problem) in [
            (header("X_KEY", "s3cret\r\nx: y"), unset, "TOOLHIVE_OTEL_HEADER_X_KEY has a value"),
            (header("X KEY", "s3cret"), unset, "TOOLHIVE_OTEL_HEADER_X KEY has no name"),
            (header("HOST", "s3cret"), unset, "TOOLHIVE_OTEL_HEADER_HOST is one"),
            (header("GRPC_TIMEOUT", "s3cret"), unset, "TOOLHIVE_OTEL_HEADER_GRPC_TIMEOUT is one"),
            (Vec::new(), json, "OTEL_EXPORTER_OTLP_PROTOCOL is \"http/json\""),
            (Vec::new(), grpc, "\"c:1/otlp\" has a path, and gRPC has paths of its own"),
        ] {
            let change = |settings: &mut ProxySettings| {
                (settings.collector_headers, settings.variables) = (headers, variables);
            };
            let error = build(to("c:1/otlp", &json!({})), change).await.unwrap_err();
            assert!(error.problem.contains(problem) && !error.to_string().contains("s3cret"), "{error}");
        }
    }

    #[tokio::test]
    async fn nothing_is_exported_where_the_document_asks_for_nothing() {
        for config in [
            to("", &json!({"metricsEnabled": true})),
            to("c:1", &json!({"tracingEnabled": false, "caCertPath": "/no/ca", "insecure": false})),
        ] {
            build(config, |_| {}).await.unwrap();
        }
    }
}
