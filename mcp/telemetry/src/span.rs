//! Spans: the parent of a request's span, its attributes, and those of the webhooks that were asked (toolhive-runner
//! §2.12, toolhive-0.63 §10). Nothing is built for a request that is not sampled, but for the headers that tell the
//! server so.

use std::fmt::Write as _;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use http::Request;
use http::header::{HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use http_body::Body as _;
use mcp_http::Body;
use mcp_middleware::{Decision, Finding, Found, Outcome, RequestContext, Running, Shadows, Variables};
use mcp_runconfig::TelemetryParameters;
use mcp_wire::{Members, OwnedMessage};
use opentelemetry::trace::{
    Span as _, SpanBuilder, SpanContext, SpanId, SpanKind, Status, TraceContextExt as _, TraceFlags, TraceId,
    TraceState, Tracer as _,
};
use opentelemetry::{Array, Context, KeyValue, StringValue, Value};
use opentelemetry_sdk::trace::{SdkTracer, Span};
use tokio::runtime::Handle;

use crate::export::queue::CLIENT;
use crate::instruments::{Answer, Network, cut, version_name};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
/// The length of a tracestate that has to be passed on (W3C Trace Context §3.3.1.5); a longer one is not.
const LONGEST_STATE: usize = 512;
/// The most bytes of a client's text in an attribute.
const LONGEST: usize = 256;
/// The most bytes of an argument's value, and of all arguments.
const ARGUMENT: usize = 100;
const ARGUMENTS: usize = 200;
/// The words in the name of an argument whose value is a secret.
const SECRETS: [&str; 7] = ["password", "token", "secret", "key", "auth", "credential", "private"];

/// The spans of one proxy.
#[derive(Debug)]
pub(crate) struct Spans {
    tracer: SdkTracer,
    server: Arc<str>,
    transport: Arc<str>,
    network: Network,
    /// The variables of the document's list, and their values.
    environment: Vec<KeyValue>,
    /// Whether spans have the attributes of older conventions, too.
    legacy: bool,
    /// The spans that wait for what shadows find.
    waiting: Running,
}

/// The span of a request that is sampled.
pub(crate) struct Traced {
    spans: Arc<Spans>,
    span: Span,
    /// The attributes of the request's head, and those of its message.
    head: Vec<KeyValue>,
    message: Vec<KeyValue>,
    began: (SystemTime, Instant),
    /// The request's context, until its answer begins.
    context: Option<Arc<RequestContext>>,
    /// The client, and the shadows of the request, once its answer begins.
    client: Option<KeyValue>,
    shadows: Option<Arc<Shadows>>,
}

// === impl Spans ===

impl Spans {
    /// The spans that `tracer` makes for the proxy of `parameters`.
    pub(crate) fn new(
        tracer: SdkTracer,
        parameters: &TelemetryParameters,
        network: Network,
        variables: Variables,
    ) -> Self {
        let variable = |name: &String| {
            KeyValue::new(format!("environment.{name}"), variables(name).map(limited).unwrap_or_default())
        };
        let TelemetryParameters { config, server_name, transport } = parameters;
        Self {
            tracer,
            server: server_name.as_str().into(),
            transport: transport.as_str().into(),
            network,
            environment: config.environment_variables.iter().map(variable).collect(),
            legacy: config.use_legacy_attributes,
            waiting: Running::default(),
        }
    }

    /// Waits until no span waits for what shadows find.
    pub(crate) async fn ended(&self) {
        self.waiting.none().await;
    }

    /// Starts the span of a request, and tells its context to the server in the request's headers. `None` where it is
    /// not sampled.
    pub(crate) fn start(
        self: &Arc<Self>,
        request: &mut Request<Body>,
        context: &Arc<RequestContext>,
        message: Option<(&OwnedMessage, &str)>,
        began: Instant,
    ) -> Option<Traced> {
        let parent = message.and_then(|(message, _)| parent_of_message(message));
        let parent = parent.or_else(|| parent_of_headers(request.headers()));
        let parent = parent.map_or_else(Context::new, |parent| Context::new().with_remote_span_context(parent));
        let builder = SpanBuilder::from_name("").with_kind(SpanKind::Server);
        let mut span = self.tracer.build_with_context(builder, &parent);
        inject(span.span_context(), request.headers_mut());
        if !span.is_recording() {
            return None;
        }
        let name = match message {
            Some((message, resource)) => {
                let method = cut(message.method().unwrap_or_default());
                if resource.is_empty() { method.to_owned() } else { format!("{method} {}", cut(resource)) }
            }
            None => format!("{} {}", cut(request.method().as_str()), cut(request.uri().path())),
        };
        span.update_name(name);
        context.keep_decisions();
        Some(Traced {
            spans: Arc::clone(self),
            span,
            head: self.of_head(request),
            message: message.map(|message| self.of_message(message, request, context)).unwrap_or_default(),
            began: (SystemTime::now(), began),
            context: Some(Arc::clone(context)),
            client: None,
            shadows: None,
        })
    }

    /// The attributes of a request's head. What follows the path may be a secret.
    fn of_head(&self, request: &Request<Body>) -> Vec<KeyValue> {
        let text = |name| text_of(request.headers(), name);
        let method = limited(request.method().as_str().to_owned());
        let path = limited(request.uri().path().to_owned());
        let host = text(HOST).or_else(|| request.uri().authority().map(|host| limited(host.to_string())));
        let host = host.unwrap_or_default();
        let agent = text(USER_AGENT);
        let size = request.body().size_hint().exact().filter(|size| *size > 0);
        let mut attributes = vec![
            KeyValue::new("http.request.method", method.clone()),
            KeyValue::new("url.full", path.clone()),
            KeyValue::new("url.scheme", ""),
            KeyValue::new("server.address", host.clone()),
            KeyValue::new("url.path", path.clone()),
        ];
        attributes.extend(agent.clone().map(|agent| KeyValue::new("user_agent.original", agent)));
        attributes.extend(size.map(|size| KeyValue::new("http.request.body.size", integer(size))));
        if self.legacy {
            attributes.extend([
                KeyValue::new("http.method", method),
                KeyValue::new("http.url", path.clone()),
                KeyValue::new("http.scheme", ""),
                KeyValue::new("http.host", host),
                KeyValue::new("http.target", path),
            ]);
            attributes.extend(agent.map(|agent| KeyValue::new("http.user_agent", agent)));
            attributes.extend(size.map(|size| KeyValue::new("http.request_content_length", size.to_string())));
        }
        attributes
    }

    /// The attributes of a message that acts on `resource`.
    fn of_message(
        &self,
        (message, resource): (&OwnedMessage, &str),
        request: &Request<Body>,
        context: &RequestContext,
    ) -> Vec<KeyValue> {
        let method = message.method().unwrap_or_default();
        let (name, resource) = (limited(method.to_owned()), limited(resource.to_owned()));
        let id = message.id().map(|id| {
            let text = id.is_string().then(|| serde_json::from_str::<String>(id.raw()).ok()).flatten();
            limited(text.unwrap_or_else(|| id.raw().to_owned()))
        });
        let mut attributes = vec![
            KeyValue::new("mcp.method.name", name.clone()),
            KeyValue::new("rpc.system.name", "jsonrpc"),
            KeyValue::new("jsonrpc.protocol.version", "2.0"),
        ];
        let mut legacy = vec![
            KeyValue::new("mcp.method", name),
            KeyValue::new("rpc.system", "jsonrpc"),
            KeyValue::new("rpc.service", "mcp"),
            KeyValue::new("mcp.transport", Arc::clone(&self.transport)),
        ];
        if let Some(id) = id {
            attributes.push(KeyValue::new("jsonrpc.request.id", id.clone()));
            legacy.push(KeyValue::new("mcp.request.id", id));
        }
        if !resource.is_empty() {
            legacy.push(KeyValue::new("mcp.resource.id", resource.clone()));
            match method {
                "tools/call" => {
                    attributes.push(KeyValue::new("gen_ai.tool.name", resource.clone()));
                    legacy.push(KeyValue::new("mcp.tool.name", resource));
                }
                "prompts/get" => {
                    attributes.push(KeyValue::new("gen_ai.prompt.name", resource.clone()));
                    legacy.push(KeyValue::new("mcp.prompt.name", resource));
                }
                "initialize" => attributes.push(KeyValue::new("mcp.client.name", resource)),
                method if method.starts_with("resources/") => {
                    attributes.push(KeyValue::new("mcp.resource.uri", resource));
                }
                _ => {}
            }
        }
        if method == "tools/call" {
            attributes.push(KeyValue::new("gen_ai.operation.name", "execute_tool"));
            if let Some(arguments) = arguments(message) {
                attributes.push(KeyValue::new("gen_ai.tool.call.arguments", arguments.clone()));
                legacy.push(KeyValue::new("mcp.tool.arguments", arguments));
            }
        }
        attributes.extend(self.of_client(request, context));
        if self.legacy {
            attributes.extend(legacy);
        }
        attributes
    }

    /// The attributes of the client that sent a message, of its connection and of its session.
    fn of_client(&self, request: &Request<Body>, context: &RequestContext) -> impl Iterator<Item = KeyValue> {
        let peer = context.peer();
        let own = [
            KeyValue::new("mcp.server.name", Arc::clone(&self.server)),
            KeyValue::new("client.address", peer.ip().to_canonical().to_string()),
            KeyValue::new("client.port", i64::from(peer.port())),
        ];
        let headers = [("mcp.session.id", "mcp-session-id"), ("mcp.protocol.version", "mcp-protocol-version")];
        let headers = headers.into_iter().filter_map(|(key, header)| {
            Some(KeyValue::new(key, text_of(request.headers(), HeaderName::from_static(header))?))
        });
        own.into_iter().chain(self.network.attributes(version_name(request.version()))).chain(headers)
    }
}

// === impl Traced ===

impl Traced {
    /// The answer begins, or nobody waits for it any more: adds a span for each webhook that was asked.
    pub(crate) fn answered(&mut self) {
        let Some(context) = self.context.take() else { return };
        let client = KeyValue::new(CLIENT, format!("{:?}", context.client()));
        self.span.set_attribute(client.clone());
        self.shadows = context.shadows();
        self.client = Some(client);
        for decision in context.decisions() {
            self.webhook(decision, None);
        }
    }

    /// Adds the span of a webhook's call; `mode` says that it was only tried.
    fn webhook(&self, Decision { guard, webhook, outcome, started, took }: Decision, mode: Option<KeyValue>) {
        let (time, began) = self.began;
        let (Some(webhook), Some(since)) = (webhook, started.checked_duration_since(began)) else { return };
        let started = time + since;
        let own = [
            KeyValue::new("webhook.name", Arc::clone(&webhook)),
            KeyValue::new("webhook.type", guard),
            KeyValue::new("webhook.outcome", outcome.as_str()),
        ];
        let builder = SpanBuilder::from_name(format!("webhook {webhook}"))
            .with_kind(SpanKind::Client)
            .with_start_time(started)
            .with_attributes(own.into_iter().chain(mode).chain(self.client.clone()));
        let parent = Context::new().with_remote_span_context(self.span.span_context().clone());
        let mut span = self.spans.tracer.build_with_context(builder, &parent);
        if matches!(outcome, Outcome::Failed | Outcome::Ignored) {
            span.set_status(Status::error("no usable answer"));
        }
        span.end_with_timestamp(started + took);
    }

    /// Ends the span as of now, once its shadows have nothing to add any more.
    fn end(mut self) {
        let Some(shadows) = self.shadows.take() else { return self.span.end() };
        let ended = SystemTime::now();
        match Handle::try_current() {
            Ok(runtime) if !shadows.are_done() => {
                let waiting = self.spans.waiting.begin();
                runtime.spawn(async move {
                    shadows.done().await;
                    self.end_with(shadows.findings(), ended);
                    drop(waiting);
                });
            }
            _ => self.end_with(shadows.findings(), ended),
        }
    }

    fn end_with(mut self, findings: Vec<Finding>, ended: SystemTime) {
        let refusing = findings.iter().filter(|finding| finding.refuses());
        let names: Vec<StringValue> = refusing.map(|finding| Arc::clone(finding.name()).into()).collect();
        if !names.is_empty() {
            self.span.set_attribute(KeyValue::new("would_refuse", Value::Array(Array::String(names))));
        }
        for Finding { guard, webhook, found } in findings {
            match found {
                Found::Decision(outcome, started, took) => {
                    let mode = KeyValue::new("webhook.mode", "shadow");
                    self.webhook(Decision { guard, webhook, outcome, started, took }, Some(mode));
                }
                Found::Hidden(entries) => {
                    self.span.set_attribute(KeyValue::new("would_hide", integer(entries as u64)));
                }
            }
        }
        self.span.end_with_timestamp(ended);
    }

    /// The request has ended with this answer; `None` where the client left before it began.
    pub(crate) fn ended(mut self, answer: Option<Answer>, sent: u64, took: Duration) {
        self.answered();
        let (head, message) = (std::mem::take(&mut self.head), std::mem::take(&mut self.message));
        let Self { spans, span, .. } = &mut self;
        span.set_attributes(head.into_iter().chain(spans.environment.iter().cloned()).chain(message));
        if let Some(answer) = answer {
            let (status, sent) = (i64::from(answer.status.as_u16()), integer(sent));
            let error = answer.error_type();
            span.set_attributes([
                KeyValue::new("http.response.status_code", status),
                KeyValue::new("http.response.body.size", sent),
            ]);
            if spans.legacy {
                span.set_attributes([
                    KeyValue::new("http.status_code", status),
                    KeyValue::new("http.response_content_length", sent),
                    KeyValue::new("http.duration_ms", took.as_secs_f64() * 1e3),
                ]);
            }
            match status {
                ..400 => span.set_status(Status::Ok),
                500.. => span.set_status(Status::error(format!("HTTP {status}"))),
                _ => {}
            }
            span.set_attributes(error.map(|kind| KeyValue::new("error.type", kind)));
        }
        self.end();
    }

    /// The request opened a stream of events, which outlives its span.
    pub(crate) fn opened(mut self, version: &'static str) {
        self.answered();
        let Self { spans, mut span, head, .. } = self;
        span.update_name("sse.connection_established");
        span.set_attributes(head.into_iter().chain(spans.network.attributes(version)).chain([
            KeyValue::new("sse.event_type", "connection_established"),
            KeyValue::new("mcp.server.name", Arc::clone(&spans.server)),
        ]));
        if spans.legacy {
            span.set_attribute(KeyValue::new("mcp.transport", Arc::clone(&spans.transport)));
        }
        span.set_status(Status::Ok);
        span.end();
    }
}

/// The parent that the message names, which is nearer to the call than what headers name.
fn parent_of_message(message: &OwnedMessage) -> Option<SpanContext> {
    let text = |member| serde_json::from_str::<String>(message.message().meta(member).ok()??.get()).ok();
    let parent = text("traceparent")?;
    parent_of(&parent, text("tracestate").as_deref())
}

fn parent_of_headers(headers: &HeaderMap) -> Option<SpanContext> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    parent_of(text(TRACEPARENT)?, text(TRACESTATE))
}

/// Reads a context (W3C Trace Context §3.2.2): a later version may have more behind its flags.
fn parent_of(parent: &str, state: Option<&str>) -> Option<SpanContext> {
    let mut parts = parent.trim().splitn(5, '-');
    let mut part = |length: usize| {
        let part = parts.next()?;
        let is_hex = part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        (part.len() == length && is_hex).then_some(part)
    };
    let (version, trace, span, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
    if version == "ff" || version == "00" && parts.next().is_some() {
        return None;
    }
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?) & TraceFlags::SAMPLED;
    let state = state.filter(|state| state.len() <= LONGEST_STATE).and_then(|state| TraceState::from_str(state).ok());
    let (trace, span) = (TraceId::from_hex(trace).ok()?, SpanId::from_hex(span).ok()?);
    let parent = SpanContext::new(trace, span, flags, true, state.unwrap_or_default());
    parent.is_valid().then_some(parent)
}

/// Puts the span's context in place of the client's.
fn inject(context: &SpanContext, headers: &mut HeaderMap) {
    // A tracer that has been shut down gives no ids.
    if !context.is_valid() {
        return;
    }
    let (trace, span, flags) = (context.trace_id(), context.span_id(), u8::from(context.is_sampled()));
    if let Ok(value) = HeaderValue::from_str(&format!("00-{trace}-{span}-{flags:02x}")) {
        headers.insert(TRACEPARENT, value);
    }
    headers.remove(TRACESTATE);
    let state = context.trace_state().header();
    if !state.is_empty()
        && let Ok(value) = HeaderValue::from_str(&state)
    {
        headers.insert(TRACESTATE, value);
    }
}

fn text_of(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    let text = String::from_utf8_lossy(headers.get(name)?.as_bytes()).into_owned();
    (!text.is_empty()).then(|| limited(text))
}

/// The beginning of a client's text.
fn limited(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(LONGEST));
    text
}

fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The arguments of a call, as `name=value` in the message's order, without secrets and cut; `None` where there are
/// none.
fn arguments(message: &OwnedMessage) -> Option<String> {
    let arguments = message.message().param("arguments").ok()??;
    let Members(arguments) = serde_json::from_str(arguments.get()).ok()?;
    let mut text = String::new();
    for (name, value) in &arguments {
        if text.len() > ARGUMENTS {
            break;
        }
        let separator = if text.is_empty() { "" } else { ", " };
        let value = value.get();
        let string = value.starts_with('"').then(|| serde_json::from_str::<String>(value).ok()).flatten();
        // The members of an object would have to be compared one by one.
        let is_secret = is_secret(name) || string.is_none() && is_secret(value);
        let value = if is_secret { "[REDACTED]" } else { string.as_deref().unwrap_or(value) };
        // Writing to a String cannot fail.
        let _ = write!(text, "{separator}{name}={}", Cut(value, ARGUMENT));
    }
    (!text.is_empty()).then(|| Cut(&text, ARGUMENTS).to_string())
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRETS.iter().any(|word| name.contains(word))
}

/// The beginning of a text, with an ellipsis where that is not all.
struct Cut<'a>(&'a str, usize);

impl std::fmt::Display for Cut<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self(text, limit) = *self;
        let beginning = text.get(..text.floor_char_boundary(limit)).unwrap_or(text);
        f.write_str(beginning)?;
        f.write_str(if beginning.len() < text.len() { "..." } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn arguments_are_shown_without_secrets_and_cut() {
        let (x, y, accent) = ("x".repeat(99), "y".repeat(99), "é".repeat(50));
        for (given, shown) in [
            (r#"{"text":"hi","count":2,"on":true,"none":null}"#, Some("text=hi, count=2, on=true, none=null")),
            (
                r#"{"API_Key":"k","passwordHash":1,"Author":"a"}"#,
                Some("API_Key=[REDACTED], passwordHash=[REDACTED], Author=[REDACTED]"),
            ),
            (r#"{"list":[1,"a"],"deep":{"a":{"apiToken":"t"}}}"#, Some(r#"list=[1,"a"], deep=[REDACTED]"#)),
            (&format!(r#"{{"text":"{accent}é"}}"#), Some(&format!("text={accent}..."))),
            (&format!(r#"{{"a":"{x}","b":"{y}"}}"#), Some(&*format!("a={x}, b={}...", "y".repeat(95)))),
            ("{}", None),
            ("null", None),
            ("[1]", None),
        ] {
            let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"arguments":{given}}}}}"#);
            let message = OwnedMessage::read(Bytes::from(body)).unwrap();
            assert_eq!(arguments(&message).as_deref(), shown, "{given}");
        }
    }
}
