//! `authorization`: who may call what (toolhive-runner §2.16, toolhive-auth §4, toolhive-0.63 §5.2).
//!
//! A call is refused, and lists in answers have the entries that the caller may call, get or read. It judges the messages as the MCP server gets
//! them, and stands further in than all that may change them.

mod cedar;

use std::future::ready;
use std::sync::Arc;
use std::time::Instant;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode};
use mcp_authz::Denial;
use mcp_http::{Body, json_error, text};
use mcp_middleware::{BuildContext, BuildError, Guard, Middleware, Next, Outcome, RequestContext, beside};
use mcp_runconfig::chain::AUTH;
use mcp_runconfig::{
    AUTHORIZATION, AuthorizationParameters, AuthzConfig, AuthzKind, TOOL_CALL_FILTER, TOOL_FILTER, webhook,
};
use mcp_wire::{ErrorBody, ListKind, OwnedMessage, code};

use self::cedar::Cedar;

/// The lists of which a caller sees the entries that it may call, get or read.
const LISTS: [ListKind; 5] =
    [ListKind::Tools, ListKind::Prompts, ListKind::Resources, ListKind::ResourceTemplates, ListKind::Skills];

/// Refuses calls that the caller may not make, and hides from it what it may not call.
pub(crate) struct Authorization {
    cedar: Arc<Cedar>,
    guard: Guard,
}

impl Authorization {
    pub(crate) fn new(parameters: AuthorizationParameters, context: &BuildContext) -> Result<Self, BuildError> {
        check_place(context)?;
        let fail = |field: &str, problem: String, fix: &str| {
            let member = if field.is_empty() { CONFIG.to_owned() } else { format!("{CONFIG}.{field}") };
            context.error(&member, problem, fix)
        };
        let config = parameters.config_data.ok_or_else(|| {
            fail("", "is missing".to_owned(), "write the policies there, or leave this middleware out")
        })?;
        config.check().map_err(|error| fail(&error.field, error.problem, &error.fix))?;
        let AuthzConfig { kind: AuthzKind::Cedar, cedar: Some(cedar), .. } = config else {
            return Err(fail("type", "\"httpv1\" is not supported by this proxy".to_owned(), "use \"cedarv1\""));
        };
        let cedar = Cedar::new(&cedar, &context.settings.server_name)
            .map_err(|(field, problem)| fail(&format!("cedar.{field}"), problem, "mend it"))?;
        Ok(Self { cedar: Arc::new(cedar), guard: context.guard() })
    }

    async fn answer(&self, request: Request<Body>, next: Next<'_>) -> Response<Body> {
        let context = next.context();
        self.filter_lists(context);
        let request = match context.read(request).await {
            Ok(request) => request,
            Err(refusal) => return refusal,
        };
        if request.method() != Method::POST {
            return next.call(request).await;
        }
        let Some(message) = context.message() else {
            context.deny(AUTHORIZATION, "there is no message to judge");
            return text(StatusCode::BAD_REQUEST, "Invalid or malformed MCP request");
        };
        let (cedar, identity, started) = (Arc::clone(&self.cedar), context.identity(), Instant::now());
        let (asked, length) = (message.clone(), message.body().len().max(cedar.cost()));
        let judged = beside(length, move || cedar.judge(&asked, identity.as_deref())).await;
        if let Some(decision) = judged {
            context.decided(&self.guard, decision.as_ref().map_or_else(outcome, |()| Outcome::Allowed), started);
            if let Err(denial) = decision {
                return refuse(context, &message, denial.to_string());
            }
        }
        context.judge_again(|context, message| {
            Some(refuse(context, message, "another middleware has changed the message behind authorization".to_owned()))
        });
        next.call(request).await
    }

    /// Whatever the request is: an answer may come on a stream that a GET opened.
    fn filter_lists(&self, context: &RequestContext) {
        let (cedar, identity) = (Arc::clone(&self.cedar), context.identity());
        context.keep_lists_private();
        context.filter_lists(AUTHORIZATION, &LISTS, self.cedar.cost(), move |list| {
            ready(cedar.filter(list, identity.as_deref()))
        });
    }
}

const CONFIG: &str = "parameters.config_data";

/// Refuses a place in the chain in which something else than the MCP server's own message would be judged, or nobody had called.
fn check_place(context: &BuildContext) -> Result<(), BuildError> {
    if context.is_inside_of(AUTHORIZATION) {
        return Err(context.error("type", "stands in the chain twice", "keep one of them"));
    }
    if !context.is_inside_of(AUTH) {
        let fix = "put {\"type\":\"auth\"} before it, which says who calls";
        return Err(context.error("type", "authorization needs auth before it", fix));
    }
    match [webhook::MUTATING, TOOL_FILTER, TOOL_CALL_FILTER].into_iter().find(|kind| context.is_outside_of(kind)) {
        Some(kind) => {
            let problem = format!("authorization would judge what {kind} changes afterwards");
            Err(context.error("type", problem, format!("put it behind {kind}")))
        }
        None => Ok(()),
    }
}

fn outcome(denial: &Denial) -> Outcome {
    match denial {
        Denial::Failed(_) => Outcome::Failed,
        _ => Outcome::Denied,
    }
}

/// The client is told nothing of the reason, which is for the log and the audit.
fn refuse(context: &RequestContext, message: &OwnedMessage, reason: String) -> Response<Body> {
    tracing::debug!(reason, "a call was refused");
    context.deny(AUTHORIZATION, reason);
    json_error(StatusCode::FORBIDDEN, &ErrorBody::new(code::DENIED, "Unauthorized").id(message.id()))
}

impl Middleware for Authorization {
    fn call<'a>(&'a self, request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        self.answer(request, next).boxed()
    }

    fn announce(&self) {
        self.cedar.announce();
    }

    fn reads_messages(&self) -> bool {
        true
    }

    fn judges_messages(&self) -> bool {
        true
    }
}
