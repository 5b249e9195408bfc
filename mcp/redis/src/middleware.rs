//! `ratelimit`: calls of tools beyond a limit are refused (toolhive-runner §2.13).
//!
//! It stands behind all that may change or refuse a call. So a call is charged once, on the tool that the MCP server is asked for, and one that another
//! guard refuses costs nothing.

use std::future::ready;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::header::RETRY_AFTER;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use mcp_http::{Body, json_error, text};
use mcp_middleware::{BuildContext, BuildError, Guard, Middleware, Next, Outcome, Registry, RequestContext};
use mcp_runconfig::chain::{AUTH, BEFORE_RATE_LIMIT};
use mcp_runconfig::{RATE_LIMIT, RateLimit, RateLimitConfig, RateLimitParameters};
use mcp_wire::{ErrorBody, OwnedMessage, code};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use crate::clients::{CA_FILE, Clients};
use crate::connection::Redis;
use crate::error::ConfigError;
use crate::failures::Failures;
use crate::limits::{Bucket, Decision, Limit, Limits, RateLimits, Scope};

/// The time between two lines of the log about calls that Redis does not count.
const QUIET: Duration = Duration::from_mins(5);

/// Adds it to `registry`. It counts in one of `clients`. Where Redis does not count a call, `fail_closed` has it refused; otherwise it passes.
pub fn register(registry: &mut Registry, clients: &Clients, fail_closed: bool) {
    let clients = clients.clone();
    registry.register(RATE_LIMIT, move |parameters, context| {
        ready(RateLimiting::new(parameters, &context, &clients, fail_closed))
    });
}

/// Refuses calls of tools beyond a limit.
struct RateLimiting {
    redis: Redis,
    limits: Arc<RateLimits>,
    fail_closed: bool,
    guard: Guard,
    refusals: Family<RefusedBy, Counter>,
    /// Calls that Redis did not count.
    failures: Failures,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusedBy {
    scope: &'static str,
    operation: &'static str,
}

impl RateLimiting {
    fn new(
        parameters: RateLimitParameters,
        context: &BuildContext,
        clients: &Clients,
        fail_closed: bool,
    ) -> Result<Self, BuildError> {
        check_place(context)?;
        if parameters.redis_addr.is_empty() {
            let fix = "write the host and port of the Redis that counts, which replicas share";
            return Err(context.error("parameters.redis_addr", "is missing or empty", fix));
        }
        let redis = clients.of(&parameters.redis()).map_err(|ConfigError { field, problem, fix }| {
            let member = if field == CA_FILE { "parameters.redis_tls.caCertFile" } else { "parameters.redis_addr" };
            context.error(member, problem, fix)
        })?;
        let (refusals, failures) = (Family::<RefusedBy, Counter>::default(), Failures::told_each(QUIET));
        for by in RefusedBy::ALL {
            refusals.get_or_create_owned(&by);
        }
        let metrics = &context.settings.metrics;
        let help = "Calls beyond a rate limit, by the bucket without a token";
        metrics.register("rate_limit_refusals", help, Family::clone(&refusals));
        let help = "Calls that Redis did not count for their rate limits, by the kind of its error";
        failures.register(metrics, "rate_limit_errors", help);
        Ok(Self {
            redis,
            limits: Arc::new(limits(parameters, context)?),
            fail_closed,
            guard: context.guard(),
            refusals,
            failures,
        })
    }

    async fn answer(&self, request: Request<Body>, next: Next<'_>) -> Response<Body> {
        let context = next.context();
        let request = match context.read(request).await {
            Ok(request) => request,
            Err(refusal) => return refusal,
        };
        if request.method() != Method::POST {
            return next.call(request).await;
        }
        let Some(message) = context.message() else {
            context.deny(RATE_LIMIT, "there is no message to count");
            return text(StatusCode::BAD_REQUEST, "Invalid or malformed MCP request");
        };
        let buckets = buckets(&self.limits, context, &message);
        if !buckets.is_empty()
            && let Err(refusal) = self.charge(context, &message, &buckets).await
        {
            return refusal;
        }
        let limits = Arc::clone(&self.limits);
        context.judge_again(move |context, message| {
            let is_charged = self::buckets(&limits, context, message) == buckets;
            (!is_charged).then(|| changed_behind(context, message))
        });
        next.call(request).await
    }

    /// Takes a token from each bucket; `Err` holds the refusal.
    async fn charge(
        &self,
        context: &RequestContext,
        message: &OwnedMessage,
        buckets: &[Bucket],
    ) -> Result<(), Response<Body>> {
        let started = Instant::now();
        match self.redis.consume(buckets).await {
            Ok(Decision::Allowed) => {
                context.decided(&self.guard, Outcome::Allowed, started);
                Ok(())
            }
            Ok(Decision::Refused(bucket)) => {
                context.decided(&self.guard, Outcome::Denied, started);
                let by = RefusedBy::of(bucket);
                context.deny(RATE_LIMIT, by.reason());
                self.refusals.get_or_create_owned(&by).inc();
                Err(exceeded(message, bucket.limit.retry_after()))
            }
            Err(error) if self.fail_closed => {
                context.decided(&self.guard, Outcome::Failed, started);
                self.failures.note(&error, "calls are refused, as Redis does not count them for their rate limits");
                context.deny(RATE_LIMIT, error.to_string());
                Err(uncounted(message))
            }
            Err(error) => {
                context.decided(&self.guard, Outcome::Ignored, started);
                self.failures.note(&error, "calls pass uncounted, as Redis does not count them for their rate limits");
                Ok(())
            }
        }
    }
}

impl Middleware for RateLimiting {
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

impl RefusedBy {
    const ALL: [Self; 4] = [
        Self { scope: "shared", operation: "server" },
        Self { scope: "shared", operation: "tool" },
        Self { scope: "per_user", operation: "server" },
        Self { scope: "per_user", operation: "tool" },
    ];

    fn of(bucket: &Bucket) -> Self {
        let scope = match bucket.scope {
            Scope::Shared => "shared",
            Scope::PerUser => "per_user",
        };
        Self { scope, operation: if bucket.of_tool { "tool" } else { "server" } }
    }

    fn reason(&self) -> String {
        format!("the {} bucket of the {} has no token left", self.scope, self.operation)
    }
}

/// Refuses a place in the chain in which a call would be charged that another guard changes or refuses afterwards, or nobody had called.
fn check_place(context: &BuildContext) -> Result<(), BuildError> {
    context.check_single()?;
    if !context.is_inside_of(AUTH) {
        let fix = "put {\"type\":\"auth\"} before it, which says who calls";
        return Err(context.error("type", "ratelimit needs auth before it", fix));
    }
    match BEFORE_RATE_LIMIT.into_iter().find(|kind| context.is_outside_of(kind)) {
        Some(kind) => {
            let problem = format!("ratelimit would charge calls that {kind} changes or refuses afterwards");
            Err(context.error("type", problem, format!("put it behind {kind}")))
        }
        None => Ok(()),
    }
}

/// The limits that the parameters ask for.
fn limits(parameters: RateLimitParameters, context: &BuildContext) -> Result<RateLimits, BuildError> {
    let error = |member: &str, problem: &str, fix: &str| context.error(&format!("{CONFIG}{member}"), problem, fix);
    let limit = |member: &str, limit: Option<RateLimit>| {
        let limit = limit.map(|limit| Limit::new(limit.max_tokens, limit.refill_period)).transpose();
        limit.map_err(|ConfigError { field, problem, fix }| error(&format!("{member}.{field}"), &problem, &fix))
    };
    let both = |path: &str, shared, per_user| {
        let (shared, per_user) =
            (limit(&format!("{path}.shared"), shared)?, limit(&format!("{path}.perUser"), per_user)?);
        Ok(Limits { shared, per_user })
    };
    let RateLimitConfig { shared, per_user, tools } = parameters.config.unwrap_or_default();
    let mut limits = RateLimits::new(&parameters.namespace, &parameters.server_name);
    limits.all = both("", shared, per_user)?;
    for (at, tool) in tools.into_iter().enumerate() {
        let path = format!(".tools[{at}]");
        let own = both(&path, tool.shared, tool.per_user)?;
        if tool.name.is_empty() {
            return Err(error(&format!("{path}.name"), "is missing or empty", "write the name of a tool"));
        }
        if own == Limits::default() {
            return Err(error(&path, "has no limit", "write shared or perUser, or remove it"));
        }
        if limits.tools.insert(tool.name, own).is_some() {
            return Err(error(&format!("{path}.name"), "names a tool that is there already", "keep one of them"));
        }
    }
    if limits.all == Limits::default() && limits.tools.is_empty() {
        return Err(error("", "has no limit", "write shared, perUser or tools, or leave this middleware out"));
    }
    Ok(limits)
}

const CONFIG: &str = "parameters.config";

/// The buckets that a message takes tokens from.
fn buckets(limits: &RateLimits, context: &RequestContext, message: &OwnedMessage) -> Vec<Bucket> {
    let message = message.message();
    if message.method() != Some("tools/call") {
        return Vec::new();
    }
    // A call of no tool counts as one of the server.
    let tool = message.target().ok().flatten().unwrap_or_default();
    let identity = context.identity();
    limits.buckets(&tool, identity.as_ref().map_or("", |identity| &identity.subject))
}

/// The refusal of a call beyond a limit, as ToolHive words it.
fn exceeded(message: &OwnedMessage, seconds: u64) -> Response<Body> {
    let data = format!(r#"{{"retryAfterSeconds":{seconds}}}"#);
    let error = ErrorBody::new(code::RATE_LIMITED, "Rate limit exceeded").data(&data).id(message.id());
    retry_after(seconds, json_error(StatusCode::TOO_MANY_REQUESTS, &error.alphabetical()))
}

/// The refusal of a call that Redis did not count.
fn uncounted(message: &OwnedMessage) -> Response<Body> {
    let error = ErrorBody::new(code::INTERNAL, "Rate limits cannot be checked").id(message.id());
    retry_after(1, json_error(StatusCode::SERVICE_UNAVAILABLE, &error))
}

/// The refusal of a message whose tokens were not taken. The client is told nothing of the reason.
fn changed_behind(context: &RequestContext, message: &OwnedMessage) -> Response<Body> {
    context.deny(RATE_LIMIT, "another middleware has changed the message behind ratelimit");
    json_error(StatusCode::FORBIDDEN, &ErrorBody::new(code::DENIED, "Unauthorized").id(message.id()))
}

fn retry_after(seconds: u64, mut refusal: Response<Body>) -> Response<Body> {
    refusal.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    refusal
}
