//! A request that webhooks are asked about, and what becomes of it.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use mcp_http::{Body, json_error};
use mcp_middleware::{Identity, Outcome, RequestContext, beside};
use mcp_runconfig::webhook::{self, TOOL_CALL};
use mcp_wire::{ErrorBody, OwnedMessage, code};

use super::call::{CallError, Webhook};

/// A request while its webhooks are asked.
#[derive(Clone)]
pub(super) struct Review {
    /// The type of the middleware.
    pub(super) kind: &'static str,
    pub(super) context: Arc<RequestContext>,
    pub(super) message: OwnedMessage,
    pub(super) identity: Option<Arc<Identity>>,
}

/// The fate of a request after a webhook was asked.
pub(super) enum Verdict {
    Pass,
    /// This goes on in place of its body.
    Change(Bytes),
    Refuse(Refusal),
}

/// A refusal: what the client is told, and the reason, which is for the request's context alone.
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    code: i64,
    message: &'static str,
    pub(super) reason: Cow<'static, str>,
}

/// The parts of a message that selectors look at. One that cannot be read is `None`.
pub(super) struct Sight {
    method: Option<String>,
    tool: Option<String>,
}

// === impl Review ===

impl Review {
    /// The answer to the client, which echoes the id that it sent.
    pub(super) fn refuse(&self, refusal: Refusal) -> Response<Body> {
        let Refusal { status, code, message, reason } = refusal;
        self.context.deny(self.kind, reason);
        json_error(status, &ErrorBody::new(code, message).id(self.message.id()))
    }

    /// Whether the webhook is asked about the message that looks like this.
    pub(super) fn concerns(&self, hook: &Webhook, sight: Option<&Sight>) -> bool {
        let Some(sight) = sight else { return true };
        let principal = self.identity.as_deref().and_then(principal);
        hook.selector.matches(sight.method.as_deref(), sight.tool.as_deref(), principal)
    }

    /// The decision that a call of the webhook comes to. Failures are logged.
    pub(super) fn outcome(&self, hook: &Webhook, answer: &Result<webhook::Response, CallError>) -> Outcome {
        match answer {
            Ok(answer) if answer.allowed => Outcome::Allowed,
            Ok(_) => Outcome::Denied,
            Err(error) if error.is_unprocessable() => Outcome::Denied,
            Err(error) if self.is_blamed(hook, error) => Outcome::Blamed,
            Err(error) if hook.enforce(error) => Outcome::Failed,
            Err(_) => Outcome::Ignored,
        }
    }

    /// Whether the request is denied for what the caller wrote in it, which the webhook could not read. Otherwise a caller could choose when a webhook
    /// fails, and with the policy `ignore` pass it. The answer counts for what webhooks are made to judge: one that knows calls alone, and answers
    /// 400 to the rest, must not end every handshake.
    fn is_blamed(&self, hook: &Webhook, error: &CallError) -> bool {
        let judged = match self.message.method().unwrap_or_default() {
            "tools/call" | "prompts/get" | "completion/complete" => true,
            method => method.starts_with("resources/"),
        };
        let blamed = judged && error.blames_request();
        if blamed {
            tracing::warn!(webhook = hook.name, %error, "webhook blames the request, which is denied whatever its failure_policy");
        }
        blamed
    }
}

// === impl Refusal ===

impl Refusal {
    /// A webhook denies the request.
    pub(super) fn denial(message: &'static str, reason: String) -> Self {
        Self { status: StatusCode::FORBIDDEN, code: code::DENIED, message, reason: reason.into() }
    }

    /// A webhook gave no usable answer.
    pub(super) fn failure(message: &'static str, reason: String) -> Self {
        Self { status: StatusCode::INTERNAL_SERVER_ERROR, code: code::INTERNAL, message, reason: reason.into() }
    }

    /// The message is too long to be sent to webhooks.
    pub(super) fn too_long() -> Self {
        let message = "Request body exceeds maximum size";
        Self { status: StatusCode::PAYLOAD_TOO_LARGE, code: code::INVALID_REQUEST, message, reason: message.into() }
    }
}

// === impl Sight ===

impl Sight {
    pub(super) async fn of(message: OwnedMessage) -> Self {
        beside(message.body().len(), move || Self::read(&message)).await
    }

    /// The message that webhooks made may be none.
    pub(super) async fn of_body(body: Bytes) -> Self {
        let nothing = |_| Self { method: None, tool: None };
        beside(body.len(), move || OwnedMessage::read(body).map_or_else(nothing, |message| Self::read(&message))).await
    }

    fn read(message: &OwnedMessage) -> Self {
        Self { method: message.method().map(str::to_owned), tool: tool(message).map(Cow::into_owned) }
    }
}

/// Whether selectors leave out every webhook. Each of them selects, and the message is short.
pub(super) fn is_idle(hooks: &[Arc<Webhook>], message: &OwnedMessage, identity: Option<&Identity>) -> bool {
    let (tool, principal) = (tool(message), identity.and_then(principal));
    !hooks.iter().any(|hook| hook.selector.matches(message.method(), tool.as_deref(), principal))
}

/// The tool that a message calls; none where it cannot be read.
fn tool(message: &OwnedMessage) -> Option<Cow<'_, str>> {
    let is_call = message.method() == Some(TOOL_CALL);
    is_call.then(|| message.message().target().ok().flatten()).flatten()
}

/// The subject of a caller who has logged in.
pub(crate) fn principal(identity: &Identity) -> Option<&str> {
    Some(&*identity.subject).filter(|subject| identity.logged_in && !subject.is_empty())
}
