//! `tool-call-filter`: calls of tools.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::ACCEPT;
use http::{HeaderMap, Request, Response, StatusCode};
use mcp_http::{Body, empty, json_error};
use mcp_middleware::{
    BuildContext, BuildError, Guard, Middleware, Next, Outcome, ReplaceError, RequestContext, beside,
};
use mcp_runconfig::{TOOL_CALL_FILTER, ToolFilterParameters};
use mcp_wire::{ErrorBody, OwnedMessage, code, splice};
use serde_json::value::RawValue;

use super::names::ToolNames;

/// Refuses calls of tools that clients may not see, and calls renamed ones by the MCP server's name.
pub(crate) struct ToolCallFilter {
    names: Arc<ToolNames>,
    /// The status of the answer to a call of a tool that clients may not see.
    hidden: StatusCode,
    guard: Guard,
}

/// The outcome for a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// It goes on as it is.
    Pass,
    /// This goes on in its place.
    Replace(Vec<u8>),
    /// It calls a tool that there is not, for clients. The name may be as long as a body.
    Hidden(String),
    /// It does not say which tool it calls.
    Malformed,
}

impl ToolCallFilter {
    pub(crate) fn new(parameters: ToolFilterParameters, context: &BuildContext) -> Result<Self, BuildError> {
        // A client that waits for the answer on a stream reads only the status of the response.
        let hidden = if context.settings.answers_on_stream { StatusCode::BAD_REQUEST } else { StatusCode::OK };
        Ok(Self { names: Arc::new(ToolNames::build(parameters, context)?), hidden, guard: context.guard() })
    }

    async fn answer(&self, request: Request<Body>, next: Next<'_>) -> Response<Body> {
        let context = next.context();
        let request = match context.read(request).await {
            Ok(request) => request,
            Err(refusal) => return refusal,
        };
        let Some(message) = context.message() else { return next.call(request).await };
        let refusal = Refusal { hidden: self.hidden, accepts_json: accepts_json(request.headers()) };
        let (names, asked, started) = (Arc::clone(&self.names), message.clone(), Instant::now());
        let call = beside(message.body().len(), move || names.call(&asked)).await;
        if message.method() == Some(CALL) {
            context.decided(&self.guard, call.outcome(), started);
        }
        let request = match call {
            Call::Pass => request,
            Call::Replace(body) => match context.replace(request, body.into()).await {
                Ok(request) => request,
                Err(ReplaceError::Refused(refusal)) => return *refusal,
                Err(error) => {
                    tracing::error!(%error, "the real name of a tool could not be put into a call");
                    return malformed(context, &message, error.to_string());
                }
            },
            Call::Hidden(name) => return refusal.hidden(context, &message, &name),
            Call::Malformed => return malformed(context, &message, UNNAMED),
        };
        // From here on the message has the MCP server's names.
        let (names, guard) = (Arc::clone(&self.names), self.guard.clone());
        context.judge_again(move |context, message| {
            let (started, call) = (Instant::now(), names.real_call(message));
            let refusal = match &call {
                Call::Pass | Call::Replace(_) => return None,
                Call::Hidden(name) => refusal.hidden(context, message, name),
                Call::Malformed => malformed(context, message, UNNAMED),
            };
            context.decided(&guard, call.outcome(), started);
            Some(refusal)
        });
        next.call(request).await
    }
}

/// The method of messages that call a tool.
const CALL: &str = "tools/call";
const UNNAMED: &str = "a call names no tool";

impl Call {
    fn outcome(&self) -> Outcome {
        match self {
            Self::Pass => Outcome::Allowed,
            Self::Replace(_) => Outcome::Changed,
            Self::Hidden(_) | Self::Malformed => Outcome::Denied,
        }
    }
}

/// The form of refusals of one request's calls.
#[derive(Clone, Copy)]
struct Refusal {
    /// The status of the answer to a call of a tool that clients may not see.
    hidden: StatusCode,
    accepts_json: bool,
}

impl Refusal {
    fn hidden(self, context: &RequestContext, message: &OwnedMessage, name: &str) -> Response<Body> {
        let name: String = name.chars().take(256).collect();
        context.deny(TOOL_CALL_FILTER, format!("there is no tool {name:?} for clients"));
        if self.accepts_json {
            let error = ErrorBody::new(code::INVALID_PARAMS, "tool not found").id(message.id());
            return json_error(self.hidden, &error);
        }
        let mut response = Response::new(empty());
        *response.status_mut() = StatusCode::BAD_REQUEST;
        response
    }
}

fn malformed(context: &RequestContext, message: &OwnedMessage, reason: impl Into<Cow<'static, str>>) -> Response<Body> {
    context.deny(TOOL_CALL_FILTER, reason);
    let error = ErrorBody::new(code::INVALID_PARAMS, "invalid tool call").id(message.id());
    json_error(StatusCode::BAD_REQUEST, &error)
}

impl Middleware for ToolCallFilter {
    fn call<'a>(&'a self, request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        self.answer(request, next).boxed()
    }

    fn reads_messages(&self) -> bool {
        true
    }

    fn judges_messages(&self) -> bool {
        true
    }
}

impl ToolNames {
    pub(crate) fn call(&self, message: &OwnedMessage) -> Call {
        let (raw, name) = match called(message) {
            Ok(tool) => tool,
            Err(outcome) => return outcome,
        };
        match self.tool(&name) {
            Some(tool) if tool == name => Call::Pass,
            Some(tool) => {
                let tool = serde_json::Value::from(tool).to_string();
                Call::Replace(splice(message.body(), &[(raw.get(), &tool)]))
            }
            None => Call::Hidden(name),
        }
    }

    /// The same for a message that has the MCP server's names by now.
    fn real_call(&self, message: &OwnedMessage) -> Call {
        match called(message) {
            Ok((_, name)) if self.presented(&name).is_none() => Call::Hidden(name),
            Ok(_) => Call::Pass,
            Err(outcome) => outcome,
        }
    }
}

/// The name of the tool that a message calls, as it was written and as text. An error is the outcome of a message that calls none.
fn called(message: &OwnedMessage) -> Result<(&RawValue, String), Call> {
    if message.method() != Some(CALL) {
        return Err(Call::Pass);
    }
    let raw = message.message().param("name").ok().flatten().ok_or(Call::Malformed)?;
    let name = serde_json::from_str(raw.get()).map_err(|_| Call::Malformed)?;
    Ok((raw, name))
}

/// Whether the client reads an answer in JSON; one that does not say reads anything (RFC 9110 §12.5.1).
fn accepts_json(headers: &HeaderMap) -> bool {
    let ranges = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut ranges = ranges.flat_map(|value| value.split(',')).map(|range| range.split(';').next().unwrap_or_default());
    !headers.contains_key(ACCEPT)
        || ranges
            .any(|range| matches!(&*range.trim().to_ascii_lowercase(), "application/json" | "application/*" | "*/*"))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::{Value, json};

    use super::super::names::tests::names;
    use super::*;

    fn call(names: &ToolNames, params: &str) -> Call {
        let body = format!(r#"{{ "id":1, "jsonrpc":"2.0","method":"tools/call","params":{params} }}"#);
        names.call(&OwnedMessage::read(Bytes::from(body)).unwrap())
    }

    #[test]
    fn a_tool_is_callable_by_the_name_that_clients_see_and_by_no_other() {
        let both = names(json!({
            "filter_tools": ["echo", "say"],
            "tools_override": {"shout": {"name": "say"}, "echo": {"description": "d"}, "other": {"name": "hid"}},
        }));
        let renamed =
            names(json!({"tools_override": {"shout": {"name": "say"}, "a": {"name": "b"}, "b": {"name": "a"}}}));
        for (names, name, tool) in [
            (&both, "echo", Some("echo")),
            (&both, "say", Some("shout")),
            (&both, "shout", None),
            (&both, "other", None),
            (&both, "hid", None),
            (&both, "", None),
            (&both, "Echo", None),
            (&renamed, "anything", Some("anything")),
            (&renamed, "say", Some("shout")),
            (&renamed, "shout", None),
            (&renamed, "a", Some("b")),
            (&renamed, "b", Some("a")),
        ] {
            assert_eq!(names.tool(name), tool, "{name}");
        }
    }

    #[test]
    fn a_renamed_call_keeps_all_its_other_bytes() {
        let names = names(json!({"tools_override": {"sho\"ut": {"name": "say"}}}));
        let params = r#"{"arguments":{"name":"say","n":1.0, "m":12345678901234567890},"name" : "s\u0061y","_meta":{}}"#;
        let Call::Replace(body) = call(&names, params) else { panic!("it is renamed") };
        let params = params.replace(r#""s\u0061y""#, r#""sho\"ut""#);
        let expected = format!(r#"{{ "id":1, "jsonrpc":"2.0","method":"tools/call","params":{params} }}"#);
        assert_eq!(String::from_utf8_lossy(&body), expected);
    }

    #[test]
    fn a_call_that_names_no_tool_is_malformed() {
        for params in ["{}", r#"{"name":7}"#, r#"{"name":null}"#] {
            assert_eq!(call(&names(Value::Null), params), Call::Malformed, "{params}");
        }
    }

    #[test]
    fn an_answer_in_json_is_for_those_who_take_it() {
        for (accept, expected) in [
            (None, true),
            (Some("application/json, text/event-stream"), true),
            (Some("text/event-stream, */*;q=0.1"), true),
            (Some("text/event-stream"), false),
        ] {
            let headers = accept.map(|accept| (ACCEPT, accept.parse().unwrap())).into_iter().collect();
            assert_eq!(accepts_json(&headers), expected, "{accept:?}");
        }
    }
}
