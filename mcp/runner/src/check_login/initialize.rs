//! The answer to a caller with a token.

use http::StatusCode;
use http::header::CONTENT_TYPE;
use mcp_credentials::NoCredential;
use mcp_wire::sse::Decoder;
use serde_json::{Map, Value};

use crate::check_login::answer::{Answer, Call, NoAnswer};
use crate::check_login::challenge::Challenge;
use crate::check_login::token::Token;
use crate::check_login::verdict::{Cause, Finding, Step};
use crate::text::quoted;

/// Judges the answer to `initialize`. `resource`: the name by which the provider knows the server; `now`: the server's time.
pub(crate) fn judge(call: &Call, token: &Token, resource: Option<&str>, now: i64) -> Finding {
    let answer = match &call.answer {
        Ok(answer) => answer,
        Err(NoAnswer::TooLong(_)) => return Finding::failed(Cause::NoMcpAnswer, call.to_string()),
        Err(_) => return Finding::failed(Cause::ServerFailsBehindLogin, call.to_string()),
    };
    let challenge = Challenge::read(&answer.headers).unwrap_or_default();
    let told =
        [call.to_string(), challenge.told()].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(", ");
    if let Some(missing) = NoCredential::read(answer.status, &answer.body) {
        let cause = match missing {
            NoCredential::Refused => Cause::CredentialRefused,
            NoCredential::Unavailable => Cause::CredentialUnavailable,
        };
        let seen = format!("{told}{}; the token is {}", beginning(answer), token.described(now));
        return Finding::failed(cause, seen);
    }
    let with_token = || format!("{told}; the token is {}", token.described(now));
    match answer.status {
        StatusCode::UNAUTHORIZED => refused(token, resource, &with_token()),
        StatusCode::FORBIDDEN if challenge.error.as_deref() == Some("insufficient_scope") => {
            Finding::failed(Cause::ScopeInsufficient, told)
        }
        StatusCode::FORBIDDEN => Finding::failed(Cause::CallerForbidden, told),
        StatusCode::SERVICE_UNAVAILABLE => Finding::failed(Cause::ProxyCannotCheck, told + &beginning(answer)),
        status if status.is_success() => greeted(answer, &told),
        _ => match message(answer) {
            // A server of another revision of MCP refuses the handshake, and no caller.
            Some(message) if message.contains_key("error") && answer.status.is_client_error() => greeted(answer, &told),
            _ => Finding::failed(Cause::ServerFailsBehindLogin, told + &beginning(answer)),
        },
    }
}

/// Whether a client tries a GET after this answer, since older servers take no POST at their URL (MCP 2025-11-25, Backwards Compatibility).
pub(crate) fn may_be_sse(call: &Call) -> bool {
    call.answer.as_ref().is_ok_and(|answer| matches!(answer.status.as_u16(), 400 | 404 | 405))
}

fn refused(token: &Token, resource: Option<&str>, seen: &str) -> Finding {
    let cause = match resource {
        _ if token.claims.is_none() => Cause::TokenOpaque,
        _ if token.looks_like_id_token() => Cause::TokenIsIdToken,
        Some(resource) if !token.audiences().contains(&resource) => {
            let seen = format!("{seen}, and its `aud` has no {}", quoted(resource));
            return Finding::failed(Cause::TokenWrongAudience, seen);
        }
        _ => Cause::TokenRefused,
    };
    Finding::failed(cause, seen)
}

fn greeted(answer: &Answer, told: &str) -> Finding {
    let no_answer = || Finding::failed(Cause::NoMcpAnswer, format!("{told}, which is no answer of JSON-RPC"));
    let Some(message) = message(answer) else { return no_answer() };
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    if let Some(error) = message.get("error") {
        let seen =
            format!("the token is taken; the server answers with the error {}", quoted(&text(error.get("message"))));
        return Finding::ok(Step::Initialize, seen);
    }
    match message.get("result") {
        Some(result) => {
            let version = text(result.get("protocolVersion"));
            Finding::ok(Step::Initialize, format!("the token is taken, and the server speaks MCP {}", quoted(&version)))
        }
        None => no_answer(),
    }
}

/// The JSON-RPC message with an outcome, in a JSON body or in an event.
fn message(answer: &Answer) -> Option<Map<String, Value>> {
    let is_outcome = |message: &Map<String, Value>| message.contains_key("result") || message.contains_key("error");
    let is_stream = answer.header(CONTENT_TYPE.as_str()).is_some_and(|kind| kind.starts_with("text/event-stream"));
    if !is_stream {
        return answer.object().filter(is_outcome);
    }
    let events = Decoder::new(answer.body.len().max(1)).push(&answer.body).ok()?;
    events.iter().filter_map(|event| serde_json::from_str(event.data.as_deref()?).ok()).find(is_outcome)
}

/// The beginning of a body that is text.
fn beginning(answer: &Answer) -> String {
    let text = String::from_utf8_lossy(&answer.body);
    if text.trim().is_empty() { String::new() } else { format!(", {}", quoted(text.trim())) }
}
