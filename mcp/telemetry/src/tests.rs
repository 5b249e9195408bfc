//! The middleware in a chain, with the spans and metrics that come of it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use futures::future::{BoxFuture, ready};
use http::header::{CONTENT_TYPE, HOST, HeaderMap, USER_AGENT};
use http_body_util::BodyExt as _;
use mcp_http::{BoxService, full};
use mcp_middleware::{Chain, Decisions, Entry, Guard, Metrics, Outcome, ProxySettings};
use mcp_runconfig::{MiddlewareConfig, TelemetryConfig};
use opentelemetry::trace::{SpanId, SpanKind, Status, TracerProvider as _};
use opentelemetry::{KeyValue, Value};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{InMemorySpanExporter, Sampler, SdkTracerProvider, SpanData};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::export::queue::CLIENT;
use crate::instruments::SCOPE;

/// The spans of ToolHive for these requests, with the values that its run had.
const SPANS: &str = include_str!("tests/spans.json");
/// The attributes whose values differ from run to run.
const VARY: [&str; 6] = [
    "client.port",
    "http.duration_ms",
    "http.request.body.size",
    "http.request_content_length",
    "http.response.body.size",
    "http.response_content_length",
];
/// The attributes of older conventions.
const LEGACY: [&str; 19] = [
    "http.duration_ms",
    "http.host",
    "http.method",
    "http.request_content_length",
    "http.response_content_length",
    "http.scheme",
    "http.status_code",
    "http.target",
    "http.url",
    "http.user_agent",
    "mcp.method",
    "mcp.prompt.name",
    "mcp.request.id",
    "mcp.resource.id",
    "mcp.tool.arguments",
    "mcp.tool.name",
    "mcp.transport",
    "rpc.service",
    "rpc.system",
];
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const OTHER_PARENT: &str = "00-1af7651916cd43dd8448eb211c80319c-c7ad6b7169203331-01";

/// Reads messages, and asks a webhook whose answer is that it does not know.
struct Inner(Option<Guard>);

impl Middleware for Inner {
    fn call<'a>(&'a self, request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        let context = next.context();
        Box::pin(async move {
            if let Some(webhook) = &self.0 {
                context.decided(webhook, Outcome::Failed, Instant::now());
                context.decided(webhook, Outcome::Allowed, Instant::now());
            }
            match context.read(request).await {
                Ok(request) => next.call(request).await,
                Err(refusal) => refusal,
            }
        })
    }
}

struct Proxy {
    chain: Chain,
    exporter: InMemorySpanExporter,
    /// Ends its instruments when it is dropped.
    _meters: SdkMeterProvider,
    metrics: Metrics,
    decisions: Decisions,
    /// The headers that the server got last.
    seen: Arc<Mutex<HeaderMap>>,
}

impl Proxy {
    async fn start(mut config: TelemetryConfig, rate: f64) -> Self {
        config.environment_variables = vec!["REC_REGION".into(), "REC_UNSET".into()];
        let (exporter, scrape) = (InMemorySpanExporter::default(), Reader::default());
        let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(rate)));
        let tracers = SdkTracerProvider::builder().with_sampler(sampler).with_simple_exporter(exporter.clone()).build();
        let resource = Resource::builder_empty().with_attribute(KeyValue::new("service.name", "full-svc")).build();
        let meters = SdkMeterProvider::builder().with_reader(scrape.clone()).with_resource(resource).build();
        let parameters =
            TelemetryParameters { config, server_name: "full".into(), transport: "streamable-http".into() };
        let mut registry = Registry::default();
        let provider = meters.clone();
        registry.register(TELEMETRY, move |(): (), _| {
            let variables = |name: &str| (name == "REC_REGION").then(|| "eu".to_owned());
            let recorder = Recorder::new(&provider, Some(tracers.tracer(SCOPE)), &parameters, variables);
            ready(Ok(Telemetry { recorder: Some(recorder), pipeline: None }))
        });
        registry.register("reads", |(): (), _| ready(Ok(Inner(None))));
        registry.register("asks", |(): (), context: BuildContext| ready(Ok(Inner(Some(context.webhook("policy"))))));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let settings = ProxySettings::new(SocketAddr::from(([127, 0, 0, 1], 8080)), provider);
        let (metrics, decisions) = (settings.metrics.clone(), settings.decisions.clone());
        metrics.register_collector(scrape);
        let entries = ["reads", TELEMETRY, "asks"].map(|kind| MiddlewareConfig::new(kind, json!(null)));
        let chain = registry.build_entries(Entry::list("middleware_configs", &entries), settings).await.unwrap();
        Self { chain, exporter, _meters: meters, metrics, decisions, seen: Arc::default() }
    }

    async fn full() -> Self {
        Self::start(TelemetryConfig::default(), 1.0).await
    }

    /// Answers a request of `port` with this status, once the server has got it.
    async fn send(&self, request: Request<Body>, port: u16, answer: u16) -> StatusCode {
        let seen = Arc::clone(&self.seen);
        let transport = BoxService::new(tower::service_fn(move |request: Request<Body>| {
            let is_stream = request.method() == Method::GET && answer == 200;
            *seen.lock().unwrap() = request.headers().clone();
            let response = Response::builder().status(answer);
            let kind = if is_stream { "text/event-stream" } else { "application/json" };
            ready(Ok::<_, Infallible>(response.header(CONTENT_TYPE, kind).body(full("{}")).unwrap()))
        }));
        let context = self.chain.context(SocketAddr::from(([127, 0, 0, 1], port)));
        let response = self.chain.serve(&context, request, &transport).await;
        let status = response.status();
        response.into_body().collect().await.unwrap();
        status
    }

    async fn post(&self, headers: &[(&'static str, &str)], mut message: serde_json::Value) -> StatusCode {
        message["jsonrpc"] = "2.0".into();
        let request =
            headers.iter().fold(Request::post("/mcp"), |request, (name, value)| request.header(*name, *value));
        self.send(request.body(full(message.to_string())).unwrap(), 1, 200).await
    }

    /// The spans since the last time, in the order in which they ended.
    fn spans(&self) -> Vec<SpanData> {
        let spans = self.exporter.get_finished_spans().unwrap();
        self.exporter.reset();
        spans
    }

    /// The header that the server got.
    fn got(&self, name: &str) -> Option<String> {
        Some(self.seen.lock().unwrap().get(name)?.to_str().unwrap().to_owned())
    }
}

fn attributes(span: &SpanData) -> BTreeMap<&str, serde_json::Value> {
    let value = |value: &Value| match value {
        Value::I64(value) => json!(value),
        Value::F64(value) => json!(value),
        value => json!(value.as_str()),
    };
    let mut attributes: BTreeMap<_, _> =
        span.attributes.iter().map(|KeyValue { key, value: it, .. }| (key.as_str(), value(it))).collect();
    assert_eq!(attributes.len(), span.attributes.len(), "twice in {:?}", span.attributes);
    // The queue takes this one.
    assert!(attributes.remove(CLIENT).is_some(), "{:?}", span.attributes);
    attributes
}

fn call(arguments: &serde_json::Value) -> serde_json::Value {
    json!({"id": 1, "method": "tools/call", "params": {"name": "echo", "arguments": arguments}})
}

/// The request of a case of [`SPANS`].
fn request(case: &serde_json::Value) -> Request<Body> {
    let (method, path) = (case["method"].as_str().unwrap(), case["path"].as_str().unwrap());
    let mut request = Request::builder().method(method).uri(format!("{path}?token=s3cret"));
    for (header, attribute) in [
        (HOST.as_str(), "server.address"),
        (USER_AGENT.as_str(), "user_agent.original"),
        ("mcp-session-id", "mcp.session.id"),
        ("mcp-protocol-version", "mcp.protocol.version"),
    ] {
        if let Some(value) = case["attributes"][attribute].as_str() {
            request = request.header(header, value);
        }
    }
    request.body(full(case["message"].as_str().unwrap_or_default().to_owned())).unwrap()
}

#[tokio::test]
async fn spans_have_the_names_and_attributes_of_toolhive() {
    let modern = TelemetryConfig { use_legacy_attributes: false, ..TelemetryConfig::default() };
    let proxies = [(Proxy::full().await, true), (Proxy::start(modern, 1.0).await, false)];
    let cases: Vec<serde_json::Value> = serde_json::from_str(SPANS).unwrap();
    assert_eq!(cases.len(), 15);
    for (case, (proxy, is_legacy)) in cases.iter().flat_map(|case| proxies.iter().map(move |proxy| (case, proxy))) {
        let answer = u16::try_from(case["answer"].as_u64().unwrap()).unwrap();
        proxy.send(request(case), 4711, answer).await;
        let span = proxy.spans().pop().unwrap();
        let (mut found, mut expected) = (attributes(&span), BTreeMap::new());
        for (name, value) in case["attributes"].as_object().unwrap() {
            if *is_legacy || !LEGACY.contains(&&**name) {
                expected.insert(&**name, value.clone());
            }
        }
        for name in VARY {
            if let (Some(found), Some(expected)) = (found.get_mut(name), expected.get_mut(name)) {
                assert_eq!((found.is_i64(), found.is_f64()), (expected.is_i64(), expected.is_f64()), "{name}");
                *found = expected.clone();
            }
        }
        assert_eq!(found, expected, "{}, legacy {is_legacy}", case["name"]);
        let status = match case["status"].as_str().unwrap() {
            "ok" => Status::Ok,
            "unset" => Status::Unset,
            error => Status::error(error.to_owned()),
        };
        let name = case["name"].as_str().unwrap();
        assert_eq!((&*span.name, &span.status, &span.span_kind), (name, &status, &SpanKind::Server));
        assert_eq!((span.parent_span_id, span.events.len(), span.links.len()), (SpanId::INVALID, 0, 0), "{name}");
        assert!(!format!("{span:?}").contains("s3cret"), "{name}");
    }
}

#[tokio::test]
async fn a_message_names_the_parent_before_headers_do() {
    let proxy = Proxy::full().await;
    let long = format!("a={}", "b".repeat(600));
    for (header, meta, state, parent) in [
        (Some(PARENT), None, Some("a=b"), Some("b7ad6b7169203331")),
        (None, Some(PARENT), Some("a=b"), Some("b7ad6b7169203331")),
        (Some(PARENT), Some(OTHER_PARENT), None, Some("c7ad6b7169203331")),
        (Some(PARENT), Some("00-1-2-01"), None, Some("b7ad6b7169203331")),
        (Some(PARENT), None, Some(&*long), Some("b7ad6b7169203331")),
        (Some("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x"), None, None, Some("b7ad6b7169203331")),
        (Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x"), None, None, None),
        (Some("ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), None, None, None),
        (Some("00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), None, None, None),
        (Some("00-00000000000000000000000000000000-b7ad6b7169203331-01"), None, None, None),
        (Some("00-0af7651916cd43dd8448eb211c80319c-+7ad6b7169203331-01"), None, None, None),
        (None, None, Some("a=b"), None),
    ] {
        let mut message = call(&json!({}));
        if let Some(meta) = meta {
            message["params"]["_meta"] = json!({"traceparent": meta, "tracestate": state});
        }
        let headers = [("traceparent", header), ("tracestate", state.filter(|_| meta.is_none()))];
        let headers: Vec<_> = headers.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        proxy.post(&headers, message).await;
        let span = proxy.spans().pop().unwrap();
        let case = format!("{header:?} {meta:?} {state:?}");
        let found = (span.parent_span_id != SpanId::INVALID).then(|| span.parent_span_id.to_string());
        assert_eq!(found.as_deref(), parent, "{case}");
        let context = &span.span_context;
        let told = format!("00-{}-{}-01", context.trace_id(), context.span_id());
        assert_eq!(proxy.got("traceparent"), Some(told), "{case}");
        let passed = state.filter(|state| parent.is_some() && state.len() < 512);
        assert_eq!(proxy.got("tracestate").as_deref(), passed, "{case}");
    }
}

#[tokio::test]
async fn requests_that_are_not_sampled_make_no_span() {
    let proxy = Proxy::start(TelemetryConfig::default(), 0.0).await;
    proxy.post(&[], call(&json!({}))).await;
    assert!(proxy.spans().is_empty());
    assert!(proxy.got("traceparent").unwrap().ends_with("-00"), "the server samples no more than the proxy");
    // A parent that is sampled decides for its children.
    proxy.post(&[("traceparent", PARENT)], call(&json!({}))).await;
    assert_eq!(proxy.spans().len(), 3);
    proxy.post(&[("traceparent", &PARENT.replace("-01", "-00"))], call(&json!({}))).await;
    assert!(proxy.spans().is_empty());
    let text = proxy.metrics.encode();
    assert!(text.contains("toolhive_mcp_tool_calls_total{") && text.contains("tool=\"echo\"} 3\n"), "{text}");
}

#[tokio::test]
async fn a_webhook_has_a_span_below_that_of_the_request() {
    let proxy = Proxy::full().await;
    proxy.post(&[], call(&json!({}))).await;
    let mut spans = proxy.spans();
    let request = spans.pop().unwrap();
    let found = spans.iter().map(|span| (span.name.to_string(), attributes(span), span.status.clone()));
    let expected =
        [("failed", Status::error("no usable answer")), ("allowed", Status::Unset)].map(|(outcome, status)| {
            let attributes = [
                ("webhook.name", json!("policy")),
                ("webhook.outcome", json!(outcome)),
                ("webhook.type", json!("asks")),
            ];
            ("webhook policy".to_owned(), BTreeMap::from(attributes), status)
        });
    assert_eq!(found.collect::<Vec<_>>(), expected);
    for span in spans {
        assert_eq!(span.span_kind, SpanKind::Client);
        assert_eq!(span.parent_span_id, request.span_context.span_id());
        assert_eq!(span.span_context.trace_id(), request.span_context.trace_id());
        assert!(request.start_time <= span.start_time && span.start_time <= span.end_time, "{span:?}");
    }
}

/// The span of the request ends with what a shadow found later, and as of its own end.
#[tokio::test]
async fn a_span_waits_for_what_shadows_find() {
    let proxy = Proxy::full().await;
    let transport = BoxService::new(tower::service_fn(|_| ready(Ok::<_, Infallible>(Response::new(full("{}"))))));
    let context = proxy.chain.context(SocketAddr::from(([127, 0, 0, 1], 1)));
    let run = context.run_in_shadow();
    let request = Request::post("/mcp").body(full(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#)).unwrap();
    let response = proxy.chain.serve(&context, request, &transport).await;
    drop(response.into_body().collect().await.unwrap());
    let shadow = proxy.decisions.shadow("validating-webhook", Some("trial"));
    context.decided_in_shadow(&shadow, Outcome::Denied, Instant::now());
    context.own_shadows().hide(&proxy.decisions.shadow("policies", None), 3);
    assert_eq!(proxy.exporter.get_finished_spans().unwrap().len(), 2, "those of the webhooks that decide");
    let seen = SystemTime::now();
    drop(run);
    context.own_shadows().done().await;
    let spans = loop {
        let spans = proxy.exporter.get_finished_spans().unwrap();
        if spans.len() == 4 {
            break spans;
        }
        tokio::task::yield_now().await;
    };
    let (tried, request) = (attributes(&spans[2]), attributes(&spans[3]));
    assert_eq!((&*spans[2].name, &tried["webhook.mode"]), ("webhook trial", &json!("shadow")));
    assert_eq!(tried["webhook.outcome"], "denied");
    assert_eq!((&request["would_refuse"], &request["would_hide"]), (&json!(r#"["trial","policies"]"#), &json!(3)));
    assert!(spans[3].end_time <= seen, "{:?}", spans[3]);
}

#[tokio::test]
async fn every_span_counts_for_the_client_that_caused_it() {
    let proxy = Proxy::full().await;
    let transport = BoxService::new(tower::service_fn(|_| ready(Ok::<_, Infallible>(Response::new(full("{}"))))));
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    for address in ["2001:db8::1", "2001:db8::2:0:0:2"] {
        for request in [Request::get("/mcp").body(full("")), Request::post("/mcp").body(full(ping))] {
            let context = proxy.chain.context(SocketAddr::new(address.parse().unwrap(), 1));
            drop(proxy.chain.serve(&context, request.unwrap(), &transport).await);
        }
    }
    let spans = proxy.spans();
    // Two of webhooks for each request.
    assert_eq!(spans.len(), 12);
    let client = |span: &SpanData| {
        let found = span.attributes.iter().find(|attribute| attribute.key.as_str() == CLIENT);
        found.map(|attribute| attribute.value.as_str().into_owned())
    };
    // One host has all addresses of a /64.
    assert!(spans.iter().all(|span| client(span).is_some() && client(span) == client(&spans[0])), "{spans:?}");
}

#[test]
fn a_target_has_each_label_once() {
    let (scrape, metrics) = (Reader::default(), Metrics::default());
    let attributes = [("1a", "digit"), ("a.b", "1"), ("a_b", "2"), ("ab", "3"), ("service.name", "a,b=c%\n\"d")];
    let resource =
        Resource::builder_empty().with_attributes(attributes.map(|(name, value)| KeyValue::new(name, value)));
    let _meters = SdkMeterProvider::builder().with_reader(scrape.clone()).with_resource(resource.build()).build();
    metrics.register_collector(scrape);
    let text = metrics.encode();
    let target = r#"target_info{a_b="1;2",ab="3",key_1a="digit",service_name="a,b=c%\n\"d"} 1"#;
    assert_eq!(text.lines().find(|line| line.starts_with("target_info{")), Some(target));
}

#[tokio::test]
async fn a_client_that_leaves_is_recorded() {
    let proxy = Proxy::full().await;
    let transport = BoxService::new(tower::service_fn(|_| std::future::pending::<Result<_, Infallible>>()));
    let context = proxy.chain.context(SocketAddr::from(([127, 0, 0, 1], 1)));
    let request = Request::post("/mcp").body(full(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#)).unwrap();
    let mut answer = Box::pin(proxy.chain.serve(&context, request, &transport));
    assert!(futures::poll!(&mut answer).is_pending());
    let active = |text: &str, count| text.contains(&format!("transport=\"streamable-http\"}} {count}\n"));
    assert!(active(&proxy.metrics.encode(), 1));
    drop(answer);
    let text = proxy.metrics.encode();
    assert!(text.contains(r#"status="error",status_code="499""#), "{text}");
    let span = proxy.spans().pop().unwrap();
    assert_eq!((&*span.name, &span.status), ("ping ping", &Status::Unset));
    assert!(!attributes(&span).contains_key("http.response.status_code"));
}

/// The values of a label in the series of a metric.
fn values<'a>(text: &'a str, metric: &str, label: &str) -> Vec<&'a str> {
    let series = text.lines().filter_map(|line| line.strip_prefix(metric)?.strip_prefix('{'));
    series.filter_map(|labels| labels.split_once(&format!("{label}=\""))?.1.split('"').next()).collect()
}

/// Has `client` send a message with this method and name, to a server that knows the name or not.
async fn say(proxy: &Proxy, client: [u8; 2], method: &str, name: &str, is_known: bool) {
    let context = proxy.chain.context(SocketAddr::from(([10, 0, client[0], client[1]], 1)));
    let answer = if is_known { r#"{"result":{}}"# } else { r#"{"error":{"code":-32602}}"# };
    let transport =
        BoxService::new(tower::service_fn(move |_| ready(Ok::<_, Infallible>(Response::new(full(answer))))));
    let message =
        json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"name": name, "clientInfo": {"name": name}}});
    let request = Request::post("/mcp").body(full(message.to_string())).unwrap();
    proxy.chain.serve(&context, request, &transport).await.into_body().collect().await.unwrap();
}

#[tokio::test]
async fn clients_make_a_bounded_number_of_series() {
    let proxy = Proxy::start(TelemetryConfig::default(), 0.0).await;
    for at in 0..10_000 {
        say(&proxy, [0, 1], "tools/call", &format!("tool{at}{}", "x".repeat(200)), true).await;
    }
    let tools = |text: &str| values(text, "toolhive_mcp_tool_calls_total", "tool").len();
    // Names that were proven are not called again.
    assert_eq!(tools(&proxy.metrics.encode()), 128 + 1, "those of one client");
    say(&proxy, [0, 2], "tools/call", "echo", true).await;
    assert_eq!(tools(&proxy.metrics.encode()), 128 + 2, "others have theirs");
    for at in 0..10_000_u16 {
        let [_, client] = at.to_be_bytes();
        say(&proxy, [0, client], &format!("x/{at}"), "", true).await;
        for _ in 0..2 {
            say(&proxy, [0, client], "prompts/get", &format!("prompt{at}"), true).await;
        }
    }
    let text = proxy.metrics.encode();
    for metric in ["toolhive_mcp_requests_total", "mcp_server_operation_duration_seconds_count"] {
        // The names beyond the bound: of tools, of prompts, and of methods that there are not. Tools that were proven were called once.
        assert_eq!(text.lines().filter(|line| line.starts_with(metric)).count(), 512 - 128 + 3, "{metric}");
    }
    let others = values(&text, "toolhive_mcp_requests_total", "mcp_method");
    assert!(others.contains(&"other"));
    let longest = values(&text, "toolhive_mcp_tool_calls_total", "tool").into_iter().map(str::len).max();
    assert_eq!(longest, Some(128));
    let bound = proxy.chain.bounds().find(|bound| bound.name == "telemetry_operations").unwrap();
    assert_eq!((bound.used, bound.limit), (512, 512));
}

#[tokio::test]
async fn names_that_do_not_exist_push_no_tool_out() {
    let proxy = Proxy::start(TelemetryConfig::default(), 0.0).await;
    for client in 0..=255 {
        for at in 0..10 {
            say(&proxy, [1, client], "tools/call", &format!("none-{client}-{at}"), false).await;
            // A server answers these, whatever a client is called.
            say(&proxy, [1, client], "initialize", &format!("none-{client}-{at}"), true).await;
        }
    }
    for _ in 0..3 {
        say(&proxy, [2, 1], "tools/call", "echo", true).await;
    }
    let text = proxy.metrics.encode();
    let echo =
        text.lines().find(|line| line.starts_with("toolhive_mcp_tool_calls_total{") && line.contains("tool=\"echo\""));
    assert!(echo.is_some_and(|line| line.ends_with(" 2")), "from the second call on: {echo:?}");
    let bound = proxy.chain.bounds().find(|bound| bound.name == "telemetry_operations").unwrap();
    assert_eq!(bound.used, 256 + 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_text_of_a_client_breaks_a_line_of_metrics(name in any::<String>(), method in "[\\PC\n\"\\\\]{1,200}") {
        let scrape = Reader::default();
        let meters = SdkMeterProvider::builder().with_reader(scrape.clone()).build();
        let (instruments, metrics) = (Instruments::new(&meters, "full", "stdio"), Metrics::default());
        metrics.register_collector(scrape);
        let client = || mcp_store::Client::Network([10, 0, 0, 1].into());
        let (operation, _) = instruments.operation(Some(&method), &name, client);
        instruments.record(&operation, Answer::new(&Method::POST, Version::HTTP_11, StatusCode::OK), Duration::ZERO);
        let text = metrics.encode();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (labels, value) = line.rsplit_once("} ").unwrap();
            prop_assert!(value.parse::<f64>().is_ok(), "{line}");
            let (_, labels) = labels.split_once('{').unwrap();
            let mut rest = labels;
            while !rest.is_empty() {
                let (name, value) = rest.split_once("=\"").unwrap();
                prop_assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{line}");
                let mut is_escaped = false;
                let end = value.find(|c| {
                    let is_end = c == '"' && !is_escaped;
                    is_escaped = c == '\\' && !is_escaped;
                    is_end
                });
                rest = &value[end.unwrap() + 1..];
                rest = rest.strip_prefix(',').unwrap_or(rest);
            }
        }
        prop_assert_eq!(text.lines().filter(|line| line.starts_with("toolhive_mcp_requests_total")).count(), 1);
    }
}
