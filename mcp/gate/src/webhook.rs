//! The two webhook middleware (toolhive-runner §3): who is asked, in which order, and what becomes of the request.

mod call;
mod patch;
mod pointer;
mod signature;
mod tree;

use std::borrow::Cow;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode};
use mcp_http::{Body, json, json_error};
use mcp_middleware::{
    BuildContext, BuildError, Identity, Middleware, Next, Outcome, ReplaceError, RequestContext, beside,
};
use mcp_runconfig::chain;
use mcp_runconfig::webhook::{self, FailurePolicy, MAX_REQUEST_BYTES, Payload, TOOL_CALL, WebhookParameters};
use mcp_wire::{ErrorBody, Kind, MessageError, OwnedMessage, code};

use call::{CallError, Webhook, preview};

/// Webhooks that may change a request, each seeing what the one before made of it.
pub(crate) struct Mutating(Webhooks);

/// Webhooks that judge a request, all seeing the same.
pub(crate) struct Validating(Webhooks);

/// The webhooks of one middleware entry, in the order they are called.
struct Webhooks {
    kind: &'static str,
    hooks: Vec<Webhook>,
    context: Arc<webhook::Context>,
}

/// Whether a request has to be reviewed.
enum Entry<'a> {
    Review(Review<'a>),
    /// It is never sent to webhooks (toolhive-runner §3.3).
    Skip,
    /// It could not be read, and must not pass unread.
    Refuse(Response<Body>),
}

/// What is known of a request while its webhooks are asked.
struct Review<'a> {
    kind: &'static str,
    context: &'a Arc<RequestContext>,
    message: OwnedMessage,
    identity: Option<Arc<Identity>>,
}

/// What selectors look at in a message. What cannot be read is `None`.
struct Sight {
    method: Option<String>,
    tool: Option<String>,
}

impl Sight {
    async fn of(message: OwnedMessage) -> Self {
        beside(message.body().len(), move || Self::read(&message)).await
    }

    /// What webhooks made of a message may be none.
    async fn of_body(body: Bytes) -> Self {
        let nothing = |_| Self { method: None, tool: None };
        beside(body.len(), move || OwnedMessage::read(body).map_or_else(nothing, |message| Self::read(&message))).await
    }

    fn read(message: &OwnedMessage) -> Self {
        let method = message.method().map(str::to_owned);
        let is_call = method.as_deref() == Some(TOOL_CALL);
        let tool = is_call.then(|| message.message().target().ok().flatten()).flatten();
        Self { method, tool: tool.map(Cow::into_owned) }
    }
}

impl Webhooks {
    fn new(kind: &'static str, parameters: WebhookParameters, context: &BuildContext) -> Result<Self, BuildError> {
        if !context.is_inside_of(chain::PARSER) {
            let fix = "put {\"type\":\"mcp-parser\"} before it; without it the webhooks would be skipped";
            return Err(context.error("type", "webhooks need the parser before them", fix));
        }
        let WebhookParameters { webhooks, server_name, transport, .. } = parameters;
        let hooks = webhooks.into_iter().enumerate();
        let hooks = hooks.map(|(at, config)| Webhook::new(config, at, context)).collect::<Result<_, _>>()?;
        let or = |given: String, own: &String| if given.is_empty() { own.clone() } else { given };
        let server_name = or(server_name, &context.settings.server_name);
        let transport = or(transport, &context.settings.transport);
        Ok(Self { kind, hooks, context: Arc::new(webhook::Context::new(&server_name, &transport)) })
    }

    /// What a webhook is sent of a request that is `message` by now.
    async fn payload(&self, review: &Review<'_>, message: Bytes) -> Result<Bytes, CallError> {
        let (context, identity) = (Arc::clone(&self.context), review.identity.clone());
        let (source, length) = (review.context.peer(), message.len());
        let encoding =
            move || encode(&context, identity.as_deref(), source, &message).map_err(|error| error.to_string());
        beside(length, encoding).await.map_err(|error| {
            tracing::error!(error, "a webhook's payload could not be encoded, the request is refused");
            CallError::Local(error)
        })
    }

    fn entry<'a>(&self, request: &Request<Body>, context: &'a Arc<RequestContext>) -> Entry<'a> {
        if request.method() != Method::POST {
            return Entry::Skip;
        }
        let Some(message) = context.message() else {
            let problem = "Request body is not a JSON-RPC message";
            context.deny(self.kind, problem);
            let error = ErrorBody::new(code::INVALID_REQUEST, problem);
            return Entry::Refuse(json_error(StatusCode::BAD_REQUEST, &error));
        };
        if message.kind() == Kind::Response {
            return Entry::Skip;
        }
        Entry::Review(Review { kind: self.kind, context, message, identity: context.identity() })
    }

    /// What selectors look at in the message of a review; `None` where every webhook is asked about everything.
    async fn sight(&self, review: &Review<'_>) -> Option<Sight> {
        if self.hooks.iter().all(|hook| hook.selector.is_all()) {
            return None;
        }
        Some(Sight::of(review.message.clone()).await)
    }

    fn announce(&self) {
        self.hooks.iter().for_each(Webhook::announce);
    }

    /// Hands on the request that `ask` returns, or answers with its refusal.
    fn call<'a, F>(
        &self,
        request: Request<Body>,
        next: Next<'a>,
        ask: impl FnOnce(Review<'a>, Request<Body>) -> F,
    ) -> BoxFuture<'a, Response<Body>>
    where
        F: Future<Output = Result<Request<Body>, Response<Body>>> + Send + 'a,
    {
        let review = match self.entry(&request, next.context()) {
            Entry::Review(review) => review,
            Entry::Skip => return next.call(request),
            Entry::Refuse(refusal) => return std::future::ready(refusal).boxed(),
        };
        let asked = ask(review, request);
        async move {
            match asked.await {
                Ok(request) => next.call(request).await,
                Err(refusal) => refusal,
            }
        }
        .boxed()
    }
}

fn encode(
    context: &webhook::Context,
    identity: Option<&Identity>,
    source: SocketAddr,
    message: &[u8],
) -> Result<Bytes, Box<dyn Error>> {
    let mut uid = uuid::Uuid::encode_buffer();
    let payload = Payload {
        uid: uuid::Uuid::new_v4().hyphenated().encode_lower(&mut uid),
        timestamp: jiff::Timestamp::now(),
        principal: identity.map(Identity::principal).transpose()?,
        mcp_request: std::str::from_utf8(message)?.trim_ascii(),
        source,
        context,
    };
    Ok(payload.encode().into())
}

impl Review<'_> {
    /// A refusal that echoes the id the client sent; `reason` is for the context alone.
    fn refuse(
        &self,
        status: StatusCode,
        code: i64,
        message: &str,
        reason: impl Into<Cow<'static, str>>,
    ) -> Response<Body> {
        self.context.deny(self.kind, reason);
        json_error(status, &ErrorBody::new(code, message).id(self.message.id()))
    }

    /// Whether the webhook is asked about the message that looks like this.
    fn concerns(&self, hook: &Webhook, sight: Option<&Sight>) -> bool {
        let Some(sight) = sight else { return true };
        let proven = self.identity.as_deref().filter(|identity| identity.logged_in);
        let principal = proven.map(|identity| &*identity.subject).filter(|subject| !subject.is_empty());
        hook.selector.matches(sight.method.as_deref(), sight.tool.as_deref(), principal)
    }

    /// The refusal of a message that is too long to be sent to webhooks.
    fn too_long(&self) -> Option<Response<Body>> {
        let message = "Request body exceeds maximum size";
        let is_long = self.message.body().len() > MAX_REQUEST_BYTES;
        is_long.then(|| self.refuse(StatusCode::PAYLOAD_TOO_LARGE, code::INVALID_REQUEST, message, message))
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

    /// The decision that a call of the webhook comes to. Failures are logged.
    fn outcome(&self, hook: &Webhook, answer: &Result<webhook::Response, CallError>) -> Outcome {
        match answer {
            Ok(answer) if answer.allowed => Outcome::Allowed,
            Ok(_) => Outcome::Denied,
            Err(error) if error.is_unprocessable() => Outcome::Denied,
            Err(error) if self.is_blamed(hook, error) => Outcome::Blamed,
            Err(error) if hook.enforce(error) => Outcome::Failed,
            Err(_) => Outcome::Ignored,
        }
    }

    fn deny(&self, status: StatusCode, message: &str, reason: String) -> Response<Body> {
        self.refuse(status, code::DENIED, message, reason)
    }

    fn fail(&self, message: &str, reason: String) -> Response<Body> {
        self.refuse(StatusCode::INTERNAL_SERVER_ERROR, code::INTERNAL, message, reason)
    }
}

// === impl Validating ===

impl Validating {
    pub(crate) fn new(parameters: WebhookParameters, context: &BuildContext) -> Result<Self, BuildError> {
        if context.is_outside_of(webhook::MUTATING) {
            let fix = "put them behind the mutating webhooks";
            return Err(context.error(
                "type",
                "validating webhooks would judge what mutating ones change afterwards",
                fix,
            ));
        }
        Webhooks::new(webhook::VALIDATING, parameters, context).map(Self)
    }

    /// Whether all allow the request; `Err` holds the refusal.
    async fn judge(&self, review: &Review<'_>) -> Result<(), Response<Body>> {
        let sight = self.0.sight(review).await;
        let hooks: Vec<_> = self.0.hooks.iter().filter(|hook| review.concerns(hook, sight.as_ref())).collect();
        if hooks.is_empty() {
            return Ok(());
        }
        if let Some(refusal) = review.too_long() {
            return Err(refusal);
        }
        let denied = |reason| review.deny(StatusCode::FORBIDDEN, "Request denied by policy", reason);
        // One uid for all of them: they judge one request.
        let payload = self.0.payload(review, review.message.body().clone()).await;
        let payload = payload.map_err(|error| denied(error.to_string()))?;
        for hook in hooks {
            let started = Instant::now();
            let answer = hook.call(payload.clone()).await;
            let outcome = review.outcome(hook, &answer);
            review.context.decided(&hook.guard, outcome, started);
            if outcome.refuses() {
                let reason = answer.map_or_else(|error| hook.failed(&error), |answer| hook.denied(&answer));
                return Err(denied(reason));
            }
        }
        Ok(())
    }
}

impl Middleware for Validating {
    fn announce(&self) {
        self.0.announce();
    }

    fn judges_messages(&self) -> bool {
        true
    }

    fn call<'a>(&'a self, request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        self.0.call(request, next, move |review, request| async move { self.judge(&review).await.map(|()| request) })
    }
}

// === impl Mutating ===

impl Middleware for Mutating {
    fn announce(&self) {
        self.0.announce();
    }

    fn judges_messages(&self) -> bool {
        true
    }

    fn call<'a>(&'a self, request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        self.0.call(request, next, move |review, request| async move {
            let body = self.mutate(&review).await?;
            if body == review.message.body() {
                return Ok(request);
            }
            review.context.replace(request, body).await.map_err(|error| match error {
                ReplaceError::Refused(refusal) => {
                    tracing::warn!("mutating webhooks made a request of another that a guard refuses");
                    *refusal
                }
                ReplaceError::Message(error @ MessageError::Batch) => {
                    review.context.deny(review.kind, error.to_string());
                    json(StatusCode::BAD_REQUEST, error.body())
                }
                error => {
                    tracing::error!(%error, "mutating webhooks made an invalid MCP request");
                    review.fail("Webhook produced an invalid MCP request", error.to_string())
                }
            })
        })
    }
}

impl Mutating {
    pub(crate) fn new(parameters: WebhookParameters, context: &BuildContext) -> Result<Self, BuildError> {
        Webhooks::new(webhook::MUTATING, parameters, context).map(Self)
    }

    /// The body that the webhooks make of the request's; `Err` holds the refusal.
    async fn mutate(&self, review: &Review<'_>) -> Result<Bytes, Response<Body>> {
        let mut body = review.message.body().clone();
        let mut sight = self.0.sight(review).await;
        for hook in &self.0.hooks {
            if !review.concerns(hook, sight.as_ref()) {
                continue;
            }
            if let Some(refusal) = review.too_long() {
                return Err(refusal);
            }
            let started = Instant::now();
            let (outcome, after) = self.ask(review, hook, &body).await;
            review.context.decided(&hook.guard, outcome, started);
            if let Some(after) = after? {
                body = after;
                // The next webhook is asked about the message as it is now.
                sight = if sight.is_some() { Some(Sight::of_body(body.clone()).await) } else { None };
            }
        }
        Ok(body)
    }

    /// The decision of one webhook, and the body that it makes of `body`, if it makes another; `Err` holds the refusal.
    async fn ask(
        &self,
        review: &Review<'_>,
        hook: &Webhook,
        body: &Bytes,
    ) -> (Outcome, Result<Option<Bytes>, Response<Body>>) {
        let denied = "Request denied by webhook policy";
        let answer = match self.0.payload(review, body.clone()).await {
            Ok(payload) => hook.call(payload).await,
            Err(error) => Err(error),
        };
        match (review.outcome(hook, &answer), answer) {
            (Outcome::Allowed, Ok(answer)) => patched(review, hook, body, answer).await,
            (outcome @ Outcome::Ignored, _) => (outcome, Ok(None)),
            (outcome, Ok(answer)) => (outcome, Err(review.deny(StatusCode::FORBIDDEN, denied, hook.denied(&answer)))),
            (outcome @ Outcome::Failed, Err(error)) => {
                (outcome, Err(review.fail("Webhook error", hook.failed(&error))))
            }
            (outcome, Err(error)) => {
                let is_unprocessable = error.is_unprocessable();
                let status = if is_unprocessable { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::FORBIDDEN };
                (outcome, Err(review.deny(status, denied, hook.failed(&error))))
            }
        }
    }
}

/// The request's body after an answer that allows the request, and may change it.
async fn patched(
    review: &Review<'_>,
    hook: &Webhook,
    body: &Bytes,
    answer: webhook::Response,
) -> (Outcome, Result<Option<Bytes>, Response<Body>>) {
    let Some(patch) = answer.patch.filter(|_| !answer.patch_type.is_empty()) else {
        return (Outcome::Allowed, Ok(None));
    };
    let (length, before, kind) = (body.len() + patch.get().len(), body.clone(), answer.patch_type);
    match beside(length, move || patch::apply(&before, &kind, &patch)).await {
        Ok(None) => (Outcome::Allowed, Ok(None)),
        Ok(Some(patched)) => (Outcome::Changed, Ok(Some(patched.into()))),
        Err(error) if hook.policy == FailurePolicy::Fail => {
            tracing::error!(webhook = hook.name, %error, "webhook's patch was refused, and so the request");
            (Outcome::Failed, Err(review.fail(error.client_message(), hook.failed(&error))))
        }
        Err(error) => {
            tracing::warn!(webhook = hook.name, %error, "webhook's patch was refused and is ignored");
            (Outcome::Ignored, Ok(None))
        }
    }
}

impl Webhook {
    /// Logs a failed call; whether the failure policy refuses the request.
    fn enforce(&self, error: &CallError) -> bool {
        let (webhook, class) = (&self.name, error.class());
        match self.policy {
            _ if error.is_local() => {
                tracing::error!(webhook, class, %error, "webhook could not be called, the request is refused");
                true
            }
            FailurePolicy::Fail => {
                tracing::error!(webhook, class, %error, "webhook failed, the request is refused (failure_policy fail)");
                true
            }
            FailurePolicy::Ignore => {
                tracing::warn!(webhook, class, %error, "webhook failed and is ignored (failure_policy ignore)");
                false
            }
        }
    }

    /// Why the request is refused after this answer, for the request's context.
    fn denied(&self, answer: &webhook::Response) -> String {
        format!("webhook {:?} denied it: {} {}", self.name, preview(&answer.reason), preview(&answer.message))
    }

    /// Why the request is refused after this failure, for the request's context.
    fn failed(&self, error: &dyn Error) -> String {
        format!("webhook {:?} failed: {error}", self.name)
    }

    /// Logs why a webhook's answer denies the request. What it says goes no further than the log.
    fn log_denial(&self, said: bool, reason: &str, message: &str) {
        let webhook = &self.name;
        if said {
            tracing::info!(webhook, reason = preview(reason), said = preview(message), "webhook denied the request");
        } else {
            tracing::warn!(
                webhook,
                "webhook answered without `allowed: true` and so denied the request; is it a review endpoint?"
            );
        }
    }
}
