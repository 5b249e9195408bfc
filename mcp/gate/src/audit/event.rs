//! The event of one request, in the form of ToolHive's (facts are in toolhive-runner §2.6 and toolhive-0.63 §10).
//!
//! The members and their order are ToolHive's. Ours beside them are in `metadata.extra`: `guards`, `denied_by`, `requested_name` and
//! `cancelled`.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use jiff::Timestamp;
use mcp_middleware::{Asked, Decision, End, Exchange, Identity, RequestContext, target_name};
use mcp_runconfig::chain;
use mcp_wire::{OwnedMessage, compact};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::delegation::Delegation;
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

#[derive(Serialize)]
struct Subjects<'a> {
    user: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_id: Option<&'a str>,
}

#[derive(Serialize)]
struct Target<'a> {
    endpoint: &'a str,
    method: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    r#type: &'static str,
}

/// The decision of one guard.
#[derive(Serialize)]
struct Judged<'a> {
    guard: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    webhook: Option<&'a str>,
    outcome: &'static str,
    duration_ms: f64,
}

/// The line.
#[derive(Serialize)]
struct Line<'a> {
    time: &'a str,
    level: &'static str,
    msg: &'static str,
    audit_id: uuid::Uuid,
    r#type: &'static str,
    logged_at: &'a str,
    outcome: &'static str,
    component: &'a str,
    source: Source<'a>,
    subjects: Subjects<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delegation: Option<Delegation>,
    target: Target<'a>,
    metadata: Metadata<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Data<'a>>,
}

#[derive(Serialize)]
struct Source<'a> {
    r#type: &'static str,
    value: IpAddr,
    #[serde(skip_serializing_if = "Client::is_empty")]
    extra: Client<'a>,
}

#[derive(Serialize)]
struct Client<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    request_id: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    user_agent: &'a str,
}

#[derive(Serialize)]
struct Metadata<'a> {
    extra: Extra<'a>,
}

#[derive(Serialize)]
struct Extra<'a> {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cancelled: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    denied_by: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "milliseconds")]
    duration_ms: Option<Duration>,
    #[serde(skip_serializing_if = "<[_]>::is_empty", serialize_with = "judged")]
    guards: &'a [Decision],
    #[serde(skip_serializing_if = "Option::is_none")]
    jsonrpc_error_code: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jsonrpc_error_message: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    requested_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_size_bytes: Option<u64>,
    transport: &'a str,
}

#[derive(Serialize)]
struct Data<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    request: &'a Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<Box<RawValue>>,
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
        let sent = context.and_then(RequestContext::sent);
        let method = message.as_ref().and_then(OwnedMessage::method);
        let name = message.as_ref().and_then(target_of);
        let requested_name = sent.as_ref().and_then(target_of).filter(|sent| Some(sent) != name.as_ref());
        // A message that another one replaced is not the client's.
        let is_changed = context.is_some_and(RequestContext::is_changed);
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

    /// Appends the line that is written of it to `text`, now that the request has ended.
    pub(super) fn line(&self, end: &End<'_>, text: &mut Vec<u8>) {
        let settings = &*self.settings;
        let time = Timestamp::now().to_string();
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
        let data = (self.request.is_some() || response.is_some()).then_some(Data { request: &self.request, response });
        let asked = &*self.asked;
        let line = Line {
            time: &time,
            level: "AUDIT",
            msg: "audit_event",
            audit_id: uuid::Uuid::new_v4(),
            r#type: self.kind,
            logged_at: &time,
            outcome,
            component: settings.component.as_deref().unwrap_or("toolhive-api"),
            source: Source {
                r#type: "network",
                value: self.client,
                extra: Client { request_id: &asked.request_id, user_agent: &asked.user_agent },
            },
            subjects: subjects(self.identity.as_deref()),
            delegation: self.identity.as_ref().and_then(|caller| Delegation::of(&caller.claims, settings.depth)),
            target: Target {
                endpoint: &asked.path,
                method: self.method.as_deref().unwrap_or_else(|| cut(asked.method.as_str())),
                name: self.name.as_deref(),
                r#type: match self.method.as_deref() {
                    Some("tools/call") => "tool",
                    Some("resources/read") => "resource",
                    Some("prompts/get") => "prompt",
                    None if self.kind == SSE => "sse_endpoint",
                    _ => "endpoint",
                },
            },
            metadata: Metadata {
                extra: Extra {
                    cancelled: end.left,
                    denied_by,
                    duration_ms: (!self.is_stream).then_some(end.took),
                    guards: &self.decisions,
                    jsonrpc_error_code: error.as_ref().map(|error| error.code),
                    jsonrpc_error_message: error.as_ref().and_then(|error| error.message.as_deref()).map(cut),
                    requested_name: self.requested_name.as_deref(),
                    response_size_bytes: (settings.with_response && !self.is_stream).then_some(end.sent),
                    transport: match (self.is_stream, settings.is_sse()) {
                        (true, _) => &settings.transport,
                        (false, true) => "sse",
                        (false, false) => "http",
                    },
                },
            },
            data,
        };
        // Strings, numbers and JSON that was checked always serialize.
        let _ = serde_json::to_writer(&mut *text, &line);
        text.push(b'\n');
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

impl<'a> Judged<'a> {
    fn of(Decision { guard, webhook, outcome, took, .. }: &'a Decision) -> Self {
        let duration_ms = (took.as_secs_f64() * 1e6).round() / 1e3;
        Self { guard, webhook: webhook.as_deref(), outcome: outcome.as_str(), duration_ms }
    }
}

impl Client<'_> {
    fn is_empty(&self) -> bool {
        self.request_id.is_empty() && self.user_agent.is_empty()
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

fn subjects(identity: Option<&Identity>) -> Subjects<'_> {
    let Some(identity) = identity else { return Subjects { user: "anonymous", user_id: None } };
    let preferred = identity.claims.get("preferred_username").and_then(Value::as_str).unwrap_or_default();
    let names = [&*identity.name, preferred, &*identity.email, &*identity.subject];
    let user = names.into_iter().find(|name| !name.is_empty()).unwrap_or("anonymous");
    Subjects { user: cut(user), user_id: Some(cut(&identity.subject)).filter(|id| !id.is_empty()) }
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

fn judged<S: Serializer>(decisions: &[Decision], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(decisions.iter().map(Judged::of))
}

#[expect(clippy::ref_option, reason = "serde hands over a reference to the field")]
fn milliseconds<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    let milliseconds = time.unwrap_or_default().as_millis();
    serializer.serialize_u64(u64::try_from(milliseconds).unwrap_or(u64::MAX))
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
