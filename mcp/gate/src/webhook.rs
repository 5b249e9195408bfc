//! The two webhook middleware (toolhive-runner §3): who is asked, in which order, and what becomes of the request.

mod call;
mod patch;
mod pointer;
mod review;
mod shadow;
mod signature;
mod tree;
mod trial;

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use http::{Method, Request, Response, StatusCode};
use mcp_http::{Body, json, json_error};
use mcp_middleware::{BuildContext, BuildError, Identity, Middleware, Next, Outcome, ReplaceError, beside};
use mcp_runconfig::chain;
use mcp_runconfig::webhook::{self, FailurePolicy, MAX_REQUEST_BYTES, MAX_RESPONSE_BYTES, Payload, WebhookParameters};
use mcp_store::Bound;
use mcp_wire::{ErrorBody, Kind, MessageError, code};

pub(crate) use call::check;
use call::{CallError, Webhook, preview};
pub(crate) use review::principal;
use review::{Refusal, Review, Sight, Verdict, is_idle};
use trial::Trial;

/// The longest message of which selectors are asked at once, in bytes.
const SHORT: usize = 64 << 10;

/// The webhooks of one middleware entry: those of `mutating-webhook` may change a request, each seeing what the one before made of it; those of
/// `validating-webhook` judge it, all seeing the same.
pub(crate) struct Webhooks(Arc<Asking>);

/// The part that asks, which tasks of shadows share.
struct Asking {
    kind: &'static str,
    /// In the order in which they are called.
    hooks: Vec<Arc<Webhook>>,
    /// Whether each of them has a selector.
    selects: bool,
    context: Arc<webhook::Context>,
}

/// Whether a request has to be reviewed.
enum Entry {
    Review(Review),
    /// It is never sent to webhooks (toolhive-runner §3.3).
    Skip,
    /// It could not be read, and must not pass unread.
    Refuse(Response<Body>),
}

impl Webhooks {
    pub(crate) fn mutating(parameters: WebhookParameters, context: &BuildContext) -> Result<Self, BuildError> {
        Asking::new(webhook::MUTATING, parameters, context).map(|asking| Self(Arc::new(asking)))
    }

    pub(crate) fn validating(parameters: WebhookParameters, context: &BuildContext) -> Result<Self, BuildError> {
        Asking::new(webhook::VALIDATING, parameters, context).map(|asking| Self(Arc::new(asking)))
    }

    fn entry(&self, request: &Request<Body>, next: &Next<'_>) -> Entry {
        if request.method() != Method::POST {
            return Entry::Skip;
        }
        let (kind, context) = (self.0.kind, Arc::clone(next.context()));
        let Some(message) = context.message() else {
            let problem = "Request body is not a JSON-RPC message";
            context.deny(kind, problem);
            let error = ErrorBody::new(code::INVALID_REQUEST, problem);
            return Entry::Refuse(json_error(StatusCode::BAD_REQUEST, &error));
        };
        if message.kind() == Kind::Response {
            return Entry::Skip;
        }
        let identity = context.identity();
        if self.0.selects && message.body().len() <= SHORT && is_idle(&self.0.hooks, &message, identity.as_deref()) {
            return Entry::Skip;
        }
        Entry::Review(Review { kind, context, message, identity })
    }

    async fn answer(&self, review: Review, request: Request<Body>, next: Next<'_>) -> Response<Body> {
        let changed = match self.0.judge(&review).await {
            Ok(changed) => changed.filter(|body| body != review.message.body()),
            Err(refusal) => return review.refuse(refusal),
        };
        let Some(body) = changed else { return next.call(request).await };
        match review.context.replace(request, body).await {
            Ok(request) => next.call(request).await,
            Err(ReplaceError::Refused(refusal)) => {
                tracing::warn!("mutating webhooks made a request of another that a guard refuses");
                *refusal
            }
            Err(ReplaceError::Message(error @ MessageError::Batch)) => {
                review.context.deny(review.kind, error.to_string());
                json(StatusCode::BAD_REQUEST, error.body())
            }
            Err(error) => {
                tracing::error!(%error, "mutating webhooks made an invalid MCP request");
                review.refuse(Refusal::failure("Webhook produced an invalid MCP request", error.to_string()))
            }
        }
    }
}

impl Middleware for Webhooks {
    fn announce(&self) {
        self.0.hooks.iter().for_each(|hook| hook.announce());
    }

    fn judges_messages(&self) -> bool {
        true
    }

    fn call<'a>(&'a self, request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        match self.entry(&request, &next) {
            Entry::Review(review) => self.answer(review, request, next).boxed(),
            Entry::Skip => next.call(request),
            Entry::Refuse(refusal) => std::future::ready(refusal).boxed(),
        }
    }

    fn bounds(&self) -> Vec<Bound> {
        let name = if self.0.is_mutating() { "mutating_shadows" } else { "validating_shadows" };
        let trials = self.0.hooks.iter().filter_map(|hook| hook.trial.as_ref());
        trials.map(|trial| trial.bound(name)).max_by_key(|bound| bound.used).into_iter().collect()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        let trials = self.0.hooks.iter().filter_map(|hook| hook.trial.as_ref()).map(Trial::close);
        join_all(trials).map(drop).boxed()
    }
}

impl Asking {
    fn new(kind: &'static str, parameters: WebhookParameters, context: &BuildContext) -> Result<Self, BuildError> {
        check_place(kind, context)?;
        let WebhookParameters { webhooks, server_name, transport, .. } = parameters;
        let hooks = webhooks.into_iter().enumerate();
        let hooks = hooks.map(|(at, config)| Webhook::new(config, at, context).map(Arc::new));
        let hooks = hooks.collect::<Result<Vec<Arc<Webhook>>, _>>()?;
        let selects = hooks.iter().all(|hook| !hook.selector.is_all());
        let or = |given: String, own: &String| if given.is_empty() { own.clone() } else { given };
        let server_name = or(server_name, &context.settings.server_name);
        let transport = or(transport, &context.settings.transport);
        let context = Arc::new(webhook::Context::new(&server_name, &transport));
        Ok(Self { kind, hooks, selects, context })
    }

    fn is_mutating(&self) -> bool {
        self.kind == webhook::MUTATING
    }

    /// Asks the webhooks that the message concerns, in their order. Returns the body that they make of its, if they change it.
    async fn judge(self: &Arc<Self>, review: &Review) -> Result<Option<Bytes>, Refusal> {
        let (mut changed, mut payload): (Option<Bytes>, Option<Bytes>) = (None, None);
        let mut sight = self.sight(review).await;
        for hook in &self.hooks {
            if !review.concerns(hook, sight.as_ref()) {
                continue;
            }
            let body = changed.as_ref().unwrap_or_else(|| review.message.body());
            if let Some(trial) = &hook.trial {
                self.try_out(trial, hook, review, body.clone(), payload.clone());
                continue;
            }
            if review.message.body().len() > MAX_REQUEST_BYTES {
                return Err(Refusal::too_long());
            }
            // One uid for all that judge: they judge one request.
            if payload.is_none() || self.is_mutating() {
                payload = self.payload(review, body.clone()).await;
            }
            let started = Instant::now();
            let (outcome, verdict) = self.ask(hook, review, body, payload.clone()).await;
            review.context.decided(&hook.guard, outcome, started);
            match verdict {
                Verdict::Pass => {}
                Verdict::Change(body) => {
                    // The next webhook is asked about the message as it is now.
                    sight = if sight.is_some() { Some(Sight::of_body(body.clone()).await) } else { None };
                    changed = Some(body);
                }
                Verdict::Refuse(refusal) => return Err(refusal),
            }
        }
        Ok(changed)
    }

    /// Reads what selectors look at in the message of a review; `None` where every webhook is asked about everything.
    async fn sight(&self, review: &Review) -> Option<Sight> {
        if self.hooks.iter().all(|hook| hook.selector.is_all()) {
            return None;
        }
        Some(Sight::of(review.message.clone()).await)
    }

    /// Encodes what a webhook is sent of a request that is `message` by now; `None` where it cannot be encoded.
    async fn payload(&self, review: &Review, message: Bytes) -> Option<Bytes> {
        let (context, identity) = (Arc::clone(&self.context), review.identity.clone());
        let (source, length) = (review.context.peer(), message.len());
        let encoding =
            move || encode(&context, identity.as_deref(), source, &message).map_err(|error| error.to_string());
        let encoded = beside(length, encoding).await;
        encoded.inspect_err(|error| tracing::error!(error, "a webhook's payload could not be encoded")).ok()
    }

    /// The decision of one webhook about a request whose body is `body` by now, and what becomes of the request.
    async fn ask(&self, hook: &Webhook, review: &Review, body: &Bytes, payload: Option<Bytes>) -> (Outcome, Verdict) {
        let answer = called(hook, payload, MAX_RESPONSE_BYTES).await;
        self.weigh(hook, review, body, answer).await
    }

    /// The decision that an answer comes to.
    async fn weigh(
        &self,
        hook: &Webhook,
        review: &Review,
        body: &Bytes,
        answer: Result<webhook::Response, CallError>,
    ) -> (Outcome, Verdict) {
        let outcome = review.outcome(hook, &answer);
        if !self.is_mutating() {
            let refused = |reason| Verdict::Refuse(Refusal::denial("Request denied by policy", reason));
            let verdict = match answer {
                _ if !outcome.refuses() => Verdict::Pass,
                Ok(answer) => refused(hook.denied(&answer)),
                Err(error) => refused(hook.failed(&error)),
            };
            return (outcome, verdict);
        }
        let denied = "Request denied by webhook policy";
        match (outcome, answer) {
            (Outcome::Allowed, Ok(answer)) => patched(hook, body, answer).await,
            (Outcome::Ignored, _) => (outcome, Verdict::Pass),
            (_, Ok(answer)) => (outcome, Verdict::Refuse(Refusal::denial(denied, hook.denied(&answer)))),
            (Outcome::Failed, Err(error)) => {
                (outcome, Verdict::Refuse(Refusal::failure("Webhook error", hook.failed(&error))))
            }
            (_, Err(error)) => {
                let mut denial = Refusal::denial(denied, hook.failed(&error));
                if error.is_unprocessable() {
                    denial.status = StatusCode::UNPROCESSABLE_ENTITY;
                }
                (outcome, Verdict::Refuse(denial))
            }
        }
    }
}

/// Refuses a place in the chain in which webhooks would be passed by, or judge something else than what goes on.
pub(crate) fn check_place(kind: &str, context: &BuildContext) -> Result<(), BuildError> {
    if !context.is_inside_of(chain::PARSER) {
        let fix = "put {\"type\":\"mcp-parser\"} before it; without it the webhooks would be skipped";
        return Err(context.error("type", "webhooks need the parser before them", fix));
    }
    if kind == webhook::VALIDATING && context.is_outside_of(webhook::MUTATING) {
        let problem = "validating webhooks would judge what mutating ones change afterwards";
        return Err(context.error("type", problem, "put them behind the mutating webhooks"));
    }
    Ok(())
}

/// The answer of a webhook, of up to `longest` bytes.
async fn called(hook: &Webhook, payload: Option<Bytes>, longest: usize) -> Result<webhook::Response, CallError> {
    match payload {
        Some(payload) => hook.call(payload, longest).await,
        None => Err(CallError::Local("the payload could not be encoded".to_owned())),
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

/// The verdict after an answer that allows the request, and may change its body.
async fn patched(hook: &Webhook, body: &Bytes, answer: webhook::Response) -> (Outcome, Verdict) {
    let Some(patch) = answer.patch.filter(|_| !answer.patch_type.is_empty()) else {
        return (Outcome::Allowed, Verdict::Pass);
    };
    let (length, before, kind) = (body.len() + patch.get().len(), body.clone(), answer.patch_type);
    match beside(length, move || patch::apply(&before, &kind, &patch)).await {
        Ok(None) => (Outcome::Allowed, Verdict::Pass),
        Ok(Some(patched)) => (Outcome::Changed, Verdict::Change(patched.into())),
        Err(error) if hook.policy == FailurePolicy::Fail => {
            tracing::error!(webhook = hook.name, %error, "webhook's patch was refused, and so the request");
            (Outcome::Failed, Verdict::Refuse(Refusal::failure(error.client_message(), hook.failed(&error))))
        }
        Err(error) => {
            tracing::warn!(webhook = hook.name, %error, "webhook's patch was refused and is ignored");
            (Outcome::Ignored, Verdict::Pass)
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
