//! The event of one request, in the form of ToolHive's (facts are in toolhive-runner §2.6 and toolhive-0.63 §10).
//!
//! The members and their order are ToolHive's. Ours beside them are in `metadata.extra`: `guards`, `would_refuse`, `denied_by`, `requested_name`
//! and `cancelled`.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use http::{Method, StatusCode};
use jiff::Timestamp;
use mcp_middleware::{Asked, Decision, End, Exchange, Finding, Found, Identity, RequestContext, target_name};
use mcp_runconfig::chain;
use mcp_wire::{OwnedMessage, compact};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::delegation::Delegation;
use super::line::Line;
use super::text::cut;

/// The types of events.
const TYPES: [&str; 15] = [
    "mcp_initialize",
    "mcp_tool_call",
    "mcp_tools_list",
    "mcp_resource_read",
    "mcp_resources_list",
    "mcp_prompt_get",
    "mcp_prompts_list",
    "mcp_notification",
    "mcp_ping",
    "mcp_logging",
    "mcp_completion",
    "mcp_roots_list_changed",
    SSE,
    MCP,
    HTTP,
];
const SSE: &str = "sse_connection";
const MCP: &str = "mcp_request";
const HTTP: &str = "http_request";

/// The settings of a document for its events.
#[derive(Debug)]
pub(super) struct Settings {
    /// The component that they come from, where one is named.
    pub(super) component: Option<String>,
    /// The transport of the MCP server.
    pub(super) transport: String,
    /// Whether they have the client's message.
    pub(super) with_request: bool,
    /// Whether they have the answer.
    pub(super) with_response: bool,
    /// Whether answers are searched for errors of JSON-RPC.
    pub(super) detects_errors: bool,
    /// The bytes of a message or an answer above which events do not have it.
    pub(super) longest: usize,
    /// The actors of a token that are listed.
    pub(super) depth: usize,
}

/// The event of a request whose answer begins.
pub(super) struct Event {
    settings: Arc<Settings>,
    kind: &'static str,
    status: Option<StatusCode>,
    is_stream: bool,
    client: IpAddr,
    asked: Arc<Asked>,
    identity: Option<Arc<Identity>>,
    /// The method of its message, where one was read.
    method: Option<String>,
    /// The thing that the message acts on.
    name: Option<String>,
    /// The name that the client asked for, where the target's is another.
    requested_name: Option<String>,
    /// The guard in front of the chain, or the middleware without a decision, that refused the request.
    denied_by: Option<Cow<'static, str>>,
    decisions: Vec<Decision>,
    request: Option<Box<RawValue>>,
}

/// The error in an answer.
#[derive(Deserialize)]
struct ErrorAnswer<'a> {
    #[serde(borrow)]
    error: RpcError<'a>,
}

#[derive(Deserialize)]
struct RpcError<'a> {
    code: i64,
    #[serde(borrow, default)]
    message: Option<Cow<'a, str>>,
}

/// Whether there are events of this type.
pub(super) fn is_type(name: &str) -> bool {
    TYPES.contains(&name)
}

impl Event {
    /// The event of a request as far as it is known when its answer begins; `None` where nobody `wants` its type.
    pub(super) fn of(exchange: &Exchange<'_>, settings: &Arc<Settings>, wants: impl Fn(&str) -> bool) -> Option<Self> {
        let (asked, context) = (exchange.asked, exchange.context);
        let message = context.and_then(RequestContext::message);
        let kind = settings.kind(exchange, message.as_ref());
        if !wants(kind) {
            return None;
        }
        let method = message.as_ref().and_then(OwnedMessage::method);
        let name = message.as_ref().and_then(target_of);
        // A message that another one replaced is not the client's.
        let is_changed = context.is_some_and(RequestContext::is_changed);
        let sent = context.filter(|_| is_changed).and_then(RequestContext::sent);
        let requested_name = sent.as_ref().and_then(target_of).filter(|sent| Some(sent) != name.as_ref());
        let request = if is_changed { sent.as_ref() } else { message.as_ref() };
        let request = request.map(OwnedMessage::body).filter(|_| settings.with_request);
        let decisions = context.map(RequestContext::decisions).unwrap_or_default();
        Some(Self {
            settings: Arc::clone(settings),
            kind,
            status: exchange.status,
            is_stream: exchange.is_stream,
            client: exchange.client.to_canonical(),
            asked: Arc::clone(asked),
            identity: context.and_then(RequestContext::identity),
            method: method.map(|method| cut(method).to_owned()),
            name,
            requested_name,
            denied_by: refused_by(exchange),
            decisions,
            request: request.filter(|body| body.len() <= settings.longest).and_then(|body| json(body)),
        })
    }

    /// Appends the line that is written of it to `text`; `ended` is the end of the request, and `findings` are those of shadows that would refuse.
    pub(super) fn line(&self, end: &End<'_>, ended: Timestamp, findings: &[Finding], text: &mut Vec<u8>) {
        let settings = &*self.settings;
        let time = ended.to_string();
        let error = if settings.detects_errors { rpc_error(end.answer) } else { None };
        let denied_by = self.denied_by();
        let outcome = match self.status {
            Some(status) if status.is_server_error() => "error",
            _ if denied_by.is_some() => "denied",
            Some(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => "denied",
            Some(status) if status.is_client_error() => "failure",
            // The client has left, or the answer broke off.
            _ if !end.complete => "failure",
            _ if error.is_some() => "application_error",
            _ => "success",
        };
        let has_response =
            settings.with_response && end.complete && end.sent > 0 && end.sent <= settings.longest as u64;
        let response = has_response.then(|| json(end.answer).or_else(|| string(end.answer))).flatten();
        let asked = &*self.asked;
        let (user, user_id) = subject(self.identity.as_deref());
        let mut line = Line::begin(text);
        line.word("time", &time);
        line.word("level", "AUDIT");
        line.word("msg", "audit_event");
        line.word("audit_id", Uuid::new_v4().hyphenated().encode_lower(&mut Uuid::encode_buffer()));
        line.word("type", self.kind);
        line.word("logged_at", &time);
        line.word("outcome", outcome);
        line.text("component", settings.component.as_deref().unwrap_or("toolhive-api"));
        line.object("source", |source| {
            source.word("type", "network");
            source.json("value", &self.client);
            if !(asked.request_id.is_empty() && asked.user_agent.is_empty()) {
                source.object("extra", |extra| {
                    extra.text_if_any("request_id", any(&asked.request_id));
                    extra.text_if_any("user_agent", any(&asked.user_agent));
                });
            }
        });
        line.object("subjects", |subjects| {
            subjects.text("user", user);
            subjects.text_if_any("user_id", user_id);
        });
        let claims = self.identity.as_ref().map(|caller| &caller.claims);
        line.json_if_any("delegation", claims.and_then(|claims| Delegation::of(claims, settings.depth)).as_ref());
        line.object("target", |target| {
            target.text("endpoint", &asked.path);
            target.text("method", self.method.as_deref().unwrap_or_else(|| cut(asked.method.as_str())));
            target.text_if_any("name", self.name.as_deref());
            target.word("type", self.target_type());
        });
        line.object("metadata", |metadata| {
            metadata.object("extra", |extra| self.extra(extra, end, findings, error, denied_by));
        });
        if self.request.is_some() || response.is_some() {
            line.object("data", |data| {
                data.json_if_any("request", self.request.as_ref());
                data.json_if_any("response", response.as_ref());
            });
        }
        line.end();
    }

    fn extra(
        &self,
        extra: &mut Line<'_>,
        end: &End<'_>,
        findings: &[Finding],
        error: Option<RpcError<'_>>,
        denied_by: Option<&str>,
    ) {
        let settings = &*self.settings;
        if end.left {
            extra.json("cancelled", &true);
        }
        extra.text_if_any("denied_by", denied_by);
        if !self.is_stream {
            extra.json("duration_ms", &u64::try_from(end.took.as_millis()).unwrap_or(u64::MAX));
        }
        if !self.decisions.is_empty() {
            extra.list("guards", &self.decisions, judged);
        }
        if !findings.is_empty() {
            extra.list("would_refuse", findings, would_refuse);
        }
        if let Some(RpcError { code, message }) = error {
            extra.json("jsonrpc_error_code", &code);
            extra.text_if_any("jsonrpc_error_message", message.as_deref().map(cut));
        }
        extra.text_if_any("requested_name", self.requested_name.as_deref());
        if settings.with_response && !self.is_stream {
            extra.json("response_size_bytes", &end.sent);
        }
        let transport = match (self.is_stream, settings.is_sse()) {
            (true, _) => &settings.transport,
            (false, true) => "sse",
            (false, false) => "http",
        };
        extra.text("transport", transport);
    }

    fn target_type(&self) -> &'static str {
        match self.method.as_deref() {
            Some("tools/call") => "tool",
            Some("resources/read") => "resource",
            Some("prompts/get") => "prompt",
            None if self.kind == SSE => "sse_endpoint",
            _ => "endpoint",
        }
    }

    /// The guard that refused the request: the webhook's name, or the guard's type.
    fn denied_by(&self) -> Option<&str> {
        let refusing = self.decisions.iter().find(|decision| decision.outcome.refuses());
        let guard = refusing.map(|decision| decision.webhook.as_deref().unwrap_or(&decision.guard));
        guard.or(self.denied_by.as_deref())
    }
}

impl Settings {
    /// Whether the MCP server speaks HTTP with server-sent events.
    fn is_sse(&self) -> bool {
        self.transport == "sse"
    }

    /// The type of the event of a request with this message.
    fn kind(&self, exchange: &Exchange<'_>, message: Option<&OwnedMessage>) -> &'static str {
        match message.map(OwnedMessage::method) {
            Some(method) => method.map_or(MCP, kind_of),
            None if exchange.is_stream || self.is_sse() && exchange.asked.method == Method::GET => SSE,
            None if self.is_sse() && exchange.asked.method == Method::POST => MCP,
            None => HTTP,
        }
    }
}

fn kind_of(method: &str) -> &'static str {
    match method {
        "initialize" => "mcp_initialize",
        "tools/call" => "mcp_tool_call",
        "tools/list" => "mcp_tools_list",
        "resources/read" => "mcp_resource_read",
        "resources/list" => "mcp_resources_list",
        "prompts/get" => "mcp_prompt_get",
        "prompts/list" => "mcp_prompts_list",
        "notifications/message" => "mcp_notification",
        "ping" => "mcp_ping",
        "logging/setLevel" => "mcp_logging",
        "completion/complete" => "mcp_completion",
        "notifications/roots/list_changed" => "mcp_roots_list_changed",
        _ => MCP,
    }
}

fn target_of(message: &OwnedMessage) -> Option<String> {
    target_name(message).map(|name| cut(&name).to_owned())
}

/// The name of the caller, and its subject.
fn subject(identity: Option<&Identity>) -> (&str, Option<&str>) {
    let Some(identity) = identity else { return ("anonymous", None) };
    let preferred = identity.claims.get("preferred_username").and_then(Value::as_str).unwrap_or_default();
    let name = [&*identity.name, preferred, &*identity.email, &*identity.subject].into_iter().find_map(any);
    (cut(name.unwrap_or("anonymous")), any(&identity.subject).map(cut))
}

/// A text that is not empty.
fn any(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

/// The guard that refused the request without a decision that is counted.
fn refused_by(exchange: &Exchange<'_>) -> Option<Cow<'static, str>> {
    let denial = exchange.context.and_then(RequestContext::denial).map(|denial| denial.middleware.clone());
    exchange.refused_by.map(Cow::Borrowed).or_else(|| denial.filter(|kind| chain::judges_messages(kind)))
}

/// The error in the beginning of an answer, which is JSON or a stream of events.
fn rpc_error(answer: &[u8]) -> Option<RpcError<'_>> {
    let text = std::str::from_utf8(answer).ok().or_else(|| Some(answer.utf8_chunks().next()?.valid()))?;
    let text = text.strip_prefix('\u{FEFF}').unwrap_or(text).trim_ascii();
    if !text.contains("\"error\"") {
        return None;
    }
    let read = |json| Some(serde_json::from_str::<ErrorAnswer<'_>>(json).ok()?.error);
    if text.starts_with('{') {
        return read(text);
    }
    text.split(['\n', '\r']).filter_map(|line| line.strip_prefix("data:")).find_map(read)
}

/// JSON on one line.
fn json(body: &[u8]) -> Option<Box<RawValue>> {
    let json: &RawValue = serde_json::from_slice(body).ok()?;
    let line = String::from_utf8(compact(json.get().as_bytes()).into_owned()).ok()?;
    RawValue::from_string(line).ok()
}

/// A text as a string of JSON.
fn string(body: &[u8]) -> Option<Box<RawValue>> {
    serde_json::value::to_raw_value(&String::from_utf8_lossy(body)).ok()
}

fn judged(line: &mut Line<'_>, Decision { guard, webhook, outcome, took, .. }: &Decision) {
    line.text("guard", guard);
    line.text_if_any("webhook", webhook.as_deref());
    line.word("outcome", outcome.as_str());
    line.json("duration_ms", &((took.as_secs_f64() * 1e6).round() / 1e3));
}

fn would_refuse(line: &mut Line<'_>, Finding { guard, webhook, found }: &Finding) {
    line.text("guard", guard);
    line.text_if_any("webhook", webhook.as_deref());
    match found {
        Found::Decision(outcome, ..) => line.word("outcome", outcome.as_str()),
        Found::Hidden(entries) => line.json("hidden", entries),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_found_in_every_form_of_an_answer() {
        let error = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"broke"}}"#;
        let silent = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":null}}"#;
        let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{}}"#;
        for (answer, found) in [
            (error.to_owned(), true),
            (silent.to_owned(), true),
            (format!("\u{FEFF}{error}"), true),
            (format!("event: message\ndata: {error}\n\n"), true),
            (format!("id: 1\ndata: \n\nid: 2\ndata: {error}\n\n"), true),
            (format!("data: {progress}\r\rdata: {error}\r\r"), true),
            (format!("data: {progress}\n\n"), false),
            (r#"{"jsonrpc":"2.0","id":1,"result":{"error":{"code":1}}}"#.to_owned(), false),
            (r#"{"jsonrpc":"2.0","id":1,"result":"\"error\""}"#.to_owned(), false),
        ] {
            assert_eq!(rpc_error(answer.as_bytes()).is_some(), found, "{answer}");
        }
    }
}
