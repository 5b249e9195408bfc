//! The two webhook middleware (toolhive-runner §3): who is asked, in which order, and what becomes of the request.

mod call;
mod client;
mod files;
mod patch;
mod pointer;
mod tls;
mod tree;

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::{CONTENT_LENGTH, HeaderValue, TRANSFER_ENCODING};
use http::{Method, Request, Response, StatusCode};
use mcp_http::{Body, full, json_error};
use mcp_runconfig::webhook::{self, FailurePolicy, MAX_REQUEST_BYTES, Payload, WebhookParameters};
use mcp_wire::{ErrorBody, Kind, Message, MessageError, code, headers};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::auth::Principal;
use crate::chain::{GateContext, Next, Step};
use crate::error::{BuildError, Place};
use crate::{Parsed, PeerAddr};
use call::{CallError, Webhook, preview};

/// Webhooks that may change a request, each seeing what the one before made of it.
pub(crate) struct Mutating(pub(crate) Webhooks);

/// Webhooks that judge a request, all seeing the same.
pub(crate) struct Validating(pub(crate) Webhooks);

/// The webhooks of one middleware entry, in the order they are called.
pub(crate) struct Webhooks {
    hooks: Vec<Webhook>,
    server_name: String,
    transport: String,
}

/// Whether a request has to be reviewed.
enum Entry {
    Review(Box<Review>),
    /// It is never sent to webhooks (toolhive-runner §3.3).
    Skip,
    /// It could not be read, and must not pass unread.
    Refuse(Response<Body>),
}

/// What is known of a request while its webhooks are asked.
struct Review {
    parsed: Parsed,
    principal: Option<Arc<webhook::Principal>>,
    source: String,
}

impl Webhooks {
    /// `parsed` says whether a parser stands before this entry.
    pub(crate) fn new(
        parameters: &Value,
        parsed: bool,
        context: &GateContext,
        place: Place<'_>,
    ) -> Result<Self, BuildError> {
        if !parsed {
            let fix = "put {\"type\":\"mcp-parser\"} before it; without it the webhooks would be skipped";
            return Err(place.error("type", "webhooks need the parser before them", fix));
        }
        let path = format!("middleware_configs[{}].parameters", place.index);
        let parameters =
            WebhookParameters::from_value(parameters.clone(), &path).map_err(|error| place.parse(error))?;
        let WebhookParameters { webhooks, server_name, transport, .. } = parameters;
        let hooks = webhooks.into_iter().enumerate();
        let hooks = hooks.map(|(at, config)| Webhook::new(config, at, context, place)).collect::<Result<_, _>>()?;
        let or = |given: String, own: &String| if given.is_empty() { own.clone() } else { given };
        Ok(Self {
            hooks,
            server_name: or(server_name, &context.server_name),
            transport: or(transport, &context.transport),
        })
    }

    fn payload(&self, review: &Review, request: &[u8]) -> Result<Bytes, serde_json::Error> {
        let request: &RawValue = serde_json::from_slice(request)?;
        let uid = uuid::Uuid::new_v4();
        let mut text = uuid::Uuid::encode_buffer();
        let context =
            webhook::Context { server_name: &self.server_name, source_ip: &review.source, transport: &self.transport };
        let payload = Payload::new(
            uid.hyphenated().encode_lower(&mut text),
            jiff::Timestamp::now(),
            review.principal.as_deref(),
            request,
            context,
        );
        let mut body = Vec::with_capacity(request.get().len() + 1024);
        serde_json::to_writer(&mut body, &payload)?;
        Ok(body.into())
    }
}

impl Review {
    fn of(request: &Request<Body>) -> Entry {
        if request.method() != Method::POST {
            return Entry::Skip;
        }
        let extensions = request.extensions();
        let Some(parsed) = extensions.get::<Parsed>() else {
            let error = ErrorBody::new(code::INVALID_REQUEST, "Request body is not a JSON-RPC message");
            return Entry::Refuse(json_error(StatusCode::BAD_REQUEST, &error));
        };
        if parsed.kind() == Kind::Response {
            return Entry::Skip;
        }
        let source = extensions.get::<PeerAddr>().map(|PeerAddr(peer)| peer.to_string()).unwrap_or_default();
        let principal = extensions.get::<Principal>().map(|Principal(principal)| Arc::clone(principal));
        let review = Self { parsed: parsed.clone(), principal, source };
        if review.parsed.body().len() > MAX_REQUEST_BYTES {
            let message = "Request body exceeds maximum size";
            return Entry::Refuse(review.refuse(StatusCode::PAYLOAD_TOO_LARGE, code::INVALID_REQUEST, message));
        }
        Entry::Review(Box::new(review))
    }

    /// A refusal that echoes the id the client sent.
    fn refuse(&self, status: StatusCode, code: i64, message: &str) -> Response<Body> {
        json_error(status, &ErrorBody::new(code, message).raw_id(self.parsed.id()))
    }

    fn deny(&self, status: StatusCode, message: &str) -> Response<Body> {
        self.refuse(status, code::DENIED, message)
    }

    fn fail(&self, message: &str) -> Response<Body> {
        self.refuse(StatusCode::INTERNAL_SERVER_ERROR, code::INTERNAL, message)
    }
}

// === impl Validating ===

impl Step for Validating {
    fn announce(&self) {
        self.0.hooks.iter().for_each(Webhook::announce);
    }

    fn call<'a>(&'a self, request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        let review = match Review::of(&request) {
            Entry::Review(review) => review,
            Entry::Skip => return next.call(request),
            Entry::Refuse(refusal) => return std::future::ready(refusal).boxed(),
        };
        async move {
            match self.judge(&review).await {
                Some(refusal) => refusal,
                None => next.call(request).await,
            }
        }
        .boxed()
    }
}

impl Validating {
    async fn judge(&self, review: &Review) -> Option<Response<Body>> {
        let denied = || Some(review.deny(StatusCode::FORBIDDEN, "Request denied by policy"));
        // One uid for all of them: they judge one request.
        let Ok(payload) = self.0.payload(review, review.parsed.body()) else { return denied() };
        for hook in &self.0.hooks {
            match hook.call(payload.clone()).await {
                Ok(answer) if answer.allowed => {}
                Ok(_) => return denied(),
                Err(error) => {
                    if error.is_unprocessable() || hook.enforce(&error) {
                        return denied();
                    }
                }
            }
        }
        None
    }
}

// === impl Mutating ===

impl Step for Mutating {
    fn announce(&self) {
        self.0.hooks.iter().for_each(Webhook::announce);
    }

    fn call<'a>(&'a self, request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        let review = match Review::of(&request) {
            Entry::Review(review) => review,
            Entry::Skip => return next.call(request),
            Entry::Refuse(refusal) => return std::future::ready(refusal).boxed(),
        };
        async move {
            let request = match self.mutate(&review).await {
                Ok(body) if body == review.parsed.body() => request,
                Ok(body) => match replace(request, &review.parsed, body) {
                    Ok(request) => request,
                    Err(MessageError::Batch) => return json_error(StatusCode::BAD_REQUEST, &ErrorBody::batch()),
                    Err(error) => {
                        tracing::error!(%error, "mutating webhooks made an invalid MCP request");
                        return review.fail("Webhook produced an invalid MCP request");
                    }
                },
                Err(refusal) => return refusal,
            };
            next.call(request).await
        }
        .boxed()
    }
}

impl Mutating {
    /// The body that the webhooks make of the request's; `Err` holds the refusal.
    async fn mutate(&self, review: &Review) -> Result<Bytes, Response<Body>> {
        let denied = "Request denied by webhook policy";
        let mut body = review.parsed.body().clone();
        for hook in &self.0.hooks {
            let payload = self.0.payload(review, &body).map_err(|_| review.fail("Internal error applying patch"))?;
            let answer = match hook.call(payload).await {
                Ok(answer) if answer.allowed => answer,
                Ok(_) => return Err(review.deny(StatusCode::FORBIDDEN, denied)),
                Err(error) if error.is_unprocessable() => {
                    return Err(review.deny(StatusCode::UNPROCESSABLE_ENTITY, denied));
                }
                Err(error) if hook.enforce(&error) => return Err(review.fail("Webhook error")),
                Err(_) => continue,
            };
            let patch = answer.patch.as_deref().filter(|_| !answer.patch_type.is_empty());
            let Some(patch) = patch else { continue };
            match patch::apply(&body, &answer.patch_type, patch) {
                Ok(None) => {}
                Ok(Some(patched)) => body = patched.into(),
                Err(error) if hook.policy == FailurePolicy::Fail => {
                    tracing::error!(webhook = hook.name, %error, "webhook's patch was refused, and so the request");
                    return Err(review.fail(error.client_message()));
                }
                Err(error) => {
                    tracing::warn!(webhook = hook.name, %error, "webhook's patch was refused and is ignored");
                }
            }
        }
        Ok(body)
    }
}

/// The request with `body` in place of `before`, and with what is said about the body elsewhere made true again.
fn replace(request: Request<Body>, before: &Parsed, body: Bytes) -> Result<Request<Body>, MessageError> {
    let (mut head, _) = request.into_parts();
    let parsed = Parsed::read(body.clone())?;
    if parsed.kind() == Kind::Response {
        return Err(MessageError::Envelope("a webhook must not make a response of a request"));
    }
    headers::update(&mut head.headers, &Message::parse(before.body())?, &Message::parse(&body)?)?;
    head.headers.remove(TRANSFER_ENCODING);
    head.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    head.extensions.insert(parsed);
    Ok(Request::from_parts(head, full(body)))
}

impl Webhook {
    /// Logs a failed call; whether the failure policy refuses the request.
    fn enforce(&self, error: &CallError) -> bool {
        let (webhook, class) = (&self.name, error.class());
        match self.policy {
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
