//! The event of one request, in the form of ToolHive's (facts are in toolhive-runner §2.6 and toolhive-0.63 §10).
//!
//! The members and their order are ToolHive's. Ours beside them are in `metadata.extra`: `guards`, `denied_by`, `requested_name` and
//! `cancelled`.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::Duration;

use http::{Method, StatusCode};
use jiff::Timestamp;
use mcp_middleware::{Decision, End, Exchange, Identity, Outcome, RequestContext};
use mcp_runconfig::chain;
use mcp_wire::{OwnedMessage, compact};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::delegation::Delegation;

/// The most characters of a text of somebody else's.
const LONGEST: usize = 256;

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

/// What a document says of its events.
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
#[derive(Debug)]
pub(super) struct Event {
    kind: &'static str,
    status: Option<StatusCode>,
    is_stream: bool,
    is_sse: bool,
    /// The transport, as the document names it.
    transport: String,
    component: Option<String>,
    client: IpAddr,
    user_agent: String,
    request_id: String,
    subjects: Subjects,
    delegation: Option<Delegation>,
    target: Target,
    /// The name that the client asked for, where the target's is another.
    requested_name: Option<String>,
    denied_by: Option<String>,
    guards: Vec<Judged>,
    request: Option<Box<RawValue>>,
    /// Bytes of the answer up to which the event has it.
    longest_response: Option<usize>,
    detects_errors: bool,
}

#[derive(Debug, Serialize)]
struct Subjects {
    user: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_id: Option<String>,
}

#[derive(Debug, Serialize)]
struct Target {
    endpoint: String,
    method: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    r#type: &'static str,
}

/// The decision of one guard.
#[derive(Debug, Serialize)]
struct Judged {
    guard: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    webhook: Option<String>,
    outcome: &'static str,
    duration_ms: f64,
}

/// The line.
#[derive(Serialize)]
struct Line<'a> {
    time: Timestamp,
    level: &'static str,
    msg: &'static str,
    audit_id: uuid::Uuid,
    r#type: &'static str,
    logged_at: Timestamp,
    outcome: &'static str,
    component: &'a str,
    source: Source<'a>,
    subjects: &'a Subjects,
    #[serde(skip_serializing_if = "Option::is_none")]
    delegation: &'a Option<Delegation>,
    target: &'a Target,
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
    denied_by: &'a Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "milliseconds")]
    duration_ms: Option<Duration>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    guards: &'a [Judged],
    #[serde(skip_serializing_if = "Option::is_none")]
    jsonrpc_error_code: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jsonrpc_error_message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    requested_name: &'a Option<String>,
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
    message: Cow<'a, str>,
}

/// Whether there are events of this type.
pub(super) fn is_type(name: &str) -> bool {
    TYPES.contains(&name)
}

impl Event {
    /// The event of a request as far as it is known when its answer begins.
    pub(super) fn of(exchange: &Exchange<'_>, settings: &Settings) -> Self {
        let context = exchange.context;
        let message = context.and_then(RequestContext::message);
        let sent = context.and_then(RequestContext::sent);
        let name = message.as_ref().and_then(target_name);
        let identity = context.and_then(RequestContext::identity);
        let is_sse = settings.transport == "sse";
        let asked = exchange.asked;
        let kind = match message.as_ref().map(OwnedMessage::method) {
            Some(method) => method.map_or(MCP, kind_of),
            None if exchange.is_stream || is_sse && asked.method == Method::GET => SSE,
            None if is_sse && asked.method == Method::POST => MCP,
            None => HTTP,
        };
        let decisions = context.map(RequestContext::decisions).unwrap_or_default();
        let request = sent.as_ref().or(message.as_ref()).map(OwnedMessage::body).filter(|_| settings.with_request);
        Self {
            kind,
            status: exchange.status,
            is_stream: exchange.is_stream,
            is_sse,
            transport: settings.transport.clone(),
            component: settings.component.clone(),
            client: exchange.client.to_canonical(),
            user_agent: asked.user_agent.clone(),
            request_id: asked.request_id.clone(),
            subjects: subjects(identity.as_deref()),
            delegation: identity.and_then(|identity| Delegation::of(&identity.claims, settings.depth)),
            requested_name: sent.as_ref().and_then(target_name).filter(|sent| Some(sent) != name.as_ref()),
            target: Target {
                endpoint: asked.path.clone(),
                method: cut(message.as_ref().and_then(OwnedMessage::method).unwrap_or(asked.method.as_str())),
                name,
                r#type: match message.as_ref().and_then(OwnedMessage::method) {
                    Some("tools/call") => "tool",
                    Some("resources/read") => "resource",
                    Some("prompts/get") => "prompt",
                    None if kind == SSE => "sse_endpoint",
                    _ => "endpoint",
                },
            },
            denied_by: denied_by(exchange, &decisions),
            guards: decisions.iter().map(Judged::of).collect(),
            request: request.filter(|body| body.len() <= settings.longest).and_then(|body| json(body)),
            longest_response: settings.with_response.then_some(settings.longest),
            detects_errors: settings.detects_errors,
        }
    }

    /// Its type.
    pub(super) fn kind(&self) -> &'static str {
        self.kind
    }

    /// The line that is written of it, now that the request has ended.
    pub(super) fn line(&self, end: &End<'_>) -> Vec<u8> {
        let now = Timestamp::now();
        let error = if self.detects_errors { rpc_error(end.answer) } else { None };
        let outcome = self.outcome(error.is_some(), end.complete);
        let response = self.longest_response.filter(|longest| end.sent > 0 && end.sent <= *longest as u64);
        let response = response.and_then(|_| json(end.answer).or_else(|| text(end.answer)));
        let data = (self.request.is_some() || response.is_some()).then_some(Data { request: &self.request, response });
        let line = Line {
            time: now,
            level: "AUDIT",
            msg: "audit_event",
            audit_id: uuid::Uuid::new_v4(),
            r#type: self.kind,
            logged_at: now,
            outcome,
            component: self.component.as_deref().unwrap_or("toolhive-api"),
            source: Source {
                r#type: "network",
                value: self.client,
                extra: Client { request_id: &self.request_id, user_agent: &self.user_agent },
            },
            subjects: &self.subjects,
            delegation: &self.delegation,
            target: &self.target,
            metadata: Metadata {
                extra: Extra {
                    cancelled: !end.complete,
                    denied_by: &self.denied_by,
                    duration_ms: (!self.is_stream).then_some(end.took),
                    guards: &self.guards,
                    jsonrpc_error_code: error.as_ref().map(|error| error.code),
                    jsonrpc_error_message: error.map(|error| cut(&error.message)),
                    requested_name: &self.requested_name,
                    response_size_bytes: self.longest_response.filter(|_| !self.is_stream).map(|_| end.sent),
                    transport: match (self.is_stream, self.is_sse) {
                        (true, _) => &self.transport,
                        (false, true) => "sse",
                        (false, false) => "http",
                    },
                },
            },
            data,
        };
        // Strings, numbers and JSON that was checked always serialize.
        let mut line = serde_json::to_vec(&line).unwrap_or_default();
        line.push(b'\n');
        line
    }

    fn outcome(&self, has_error: bool, complete: bool) -> &'static str {
        match self.status {
            _ if self.denied_by.is_some() => "denied",
            Some(StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => "denied",
            Some(status) if status.is_client_error() => "failure",
            Some(status) if status.is_server_error() => "error",
            // The client has left.
            _ if !complete => "failure",
            _ if has_error => "application_error",
            _ => "success",
        }
    }
}

impl Judged {
    fn of(Decision { guard, webhook, outcome, took }: &Decision) -> Self {
        Self {
            guard: guard.to_string(),
            webhook: webhook.as_deref().map(str::to_owned),
            outcome: outcome.as_str(),
            duration_ms: (took.as_secs_f64() * 1e6).round() / 1e3,
        }
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

/// The thing that a message acts on; of a handshake, the client's name.
fn target_name(message: &OwnedMessage) -> Option<String> {
    let text = match message.method()? {
        "initialize" => {
            let client: Value = serde_json::from_str(message.message().param("clientInfo").ok()??.get()).ok()?;
            client.get("name")?.as_str()?.to_owned().into()
        }
        "notifications/initialized" => "initialized".into(),
        "ping" => "ping".into(),
        _ => message.message().target().ok()??,
    };
    Some(cut(&text))
}

fn subjects(identity: Option<&Identity>) -> Subjects {
    let Some(identity) = identity else { return Subjects { user: "anonymous".to_owned(), user_id: None } };
    let preferred = identity.claims.get("preferred_username").and_then(Value::as_str).unwrap_or_default();
    let names = [&*identity.name, preferred, &*identity.email, &*identity.subject];
    let user = names.into_iter().find(|name| !name.is_empty()).unwrap_or("anonymous");
    Subjects { user: cut(user), user_id: Some(cut(&identity.subject)).filter(|id| !id.is_empty()) }
}

/// The guard that refused the request: the webhook's name, or the guard's type.
fn denied_by(exchange: &Exchange<'_>, decisions: &[Decision]) -> Option<String> {
    let refusing = decisions.iter().find(|decision| matches!(decision.outcome, Outcome::Denied | Outcome::Blamed));
    let guard = refusing.map(|decision| decision.webhook.as_ref().unwrap_or(&decision.guard).to_string());
    let denial = || exchange.context?.denial();
    let other = || Some(denial()?.middleware.clone().into_owned()).filter(|kind| chain::judges_messages(kind));
    guard.or_else(|| exchange.refused_by.map(str::to_owned)).or_else(other)
}

/// The error in the beginning of an answer, which is JSON or a stream of events.
fn rpc_error(answer: &[u8]) -> Option<RpcError<'_>> {
    let text = std::str::from_utf8(answer).ok()?.trim_ascii();
    let mut data = text.lines().filter_map(|line| line.strip_prefix("data:"));
    let json = if text.starts_with('{') { text } else { data.next()?.trim_ascii() };
    if !json.contains("\"error\"") {
        return None;
    }
    Some(serde_json::from_str::<ErrorAnswer<'_>>(json).ok()?.error)
}

/// JSON on one line.
fn json(body: &[u8]) -> Option<Box<RawValue>> {
    let json: &RawValue = serde_json::from_slice(body).ok()?;
    let line = String::from_utf8(compact(json.get().as_bytes()).into_owned()).ok()?;
    RawValue::from_string(line).ok()
}

/// A text as a string of JSON.
fn text(body: &[u8]) -> Option<Box<RawValue>> {
    serde_json::value::to_raw_value(&String::from_utf8_lossy(body)).ok()
}

fn cut(text: &str) -> String {
    text.chars().take(LONGEST).collect()
}

fn milliseconds<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    let milliseconds = time.unwrap_or_default().as_millis();
    serializer.serialize_u64(u64::try_from(milliseconds).unwrap_or(u64::MAX))
}
