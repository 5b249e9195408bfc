//! `authorization`: who may call what (toolhive-runner §2.16, toolhive-auth §4, toolhive-0.63 §5.2).
//!
//! A call is refused, and lists in answers have the entries that the caller may call, get or read. It judges the messages as the MCP server gets
//! them, and stands further in than all that may change them.

mod callers;
mod cedar;
mod pdp;
mod tools;

use std::future::ready;
use std::sync::Arc;
use std::time::Instant;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode};
use mcp_authz::{Asks, Denial, Question, asks};
use mcp_http::{Body, json_error, text};
use mcp_middleware::{BuildContext, BuildError, Guard, Middleware, Next, Outcome, RequestContext, beside};
use mcp_runconfig::chain::AUTH;
use mcp_runconfig::{
    AUTHORIZATION, AuthorizationParameters, AuthzConfig, AuthzKind, TOOL_CALL_FILTER, TOOL_FILTER, webhook,
};
use mcp_store::Bound;
use mcp_wire::{ErrorBody, ListKind, OwnedMessage, code};

use self::cedar::Cedar;
use self::pdp::{Failure, Pdp};
use self::tools::{NOT_LISTED, Tools};

/// The lists of which a caller sees the entries that it may call, get or read.
const LISTS: [ListKind; 5] =
    [ListKind::Tools, ListKind::Prompts, ListKind::Resources, ListKind::ResourceTemplates, ListKind::Skills];

/// Refuses calls that the caller may not make, and hides from it what it may not call.
pub(crate) struct Authorization {
    judge: Judge,
    tools: Arc<Tools>,
    guard: Guard,
}

/// The one that decides.
enum Judge {
    Cedar(Arc<Cedar>),
    Pdp(Arc<Pdp>),
}

impl Authorization {
    pub(crate) fn new(parameters: AuthorizationParameters, context: &BuildContext) -> Result<Self, BuildError> {
        check_place(context)?;
        let fail = |field: &str, problem: String, fix: &str| {
            let member = if field.is_empty() { CONFIG.to_owned() } else { format!("{CONFIG}.{field}") };
            context.error(&member, problem, fix)
        };
        let missing = || fail("", "is missing".to_owned(), "write the policies there, or leave this middleware out");
        let config = parameters.config_data.ok_or_else(missing)?;
        config.check().map_err(|error| fail(&error.field, error.problem, &error.fix))?;
        let judge = match config {
            AuthzConfig { kind: AuthzKind::Cedar, cedar: Some(cedar), .. } => {
                Cedar::new(&cedar, &context.settings.server_name)
                    .map(|cedar| Judge::Cedar(Arc::new(cedar)))
                    .map_err(|(field, problem)| fail(&format!("cedar.{field}"), problem, "mend it"))?
            }
            AuthzConfig { kind: AuthzKind::Http, pdp: Some(pdp), .. } => Pdp::new(pdp, context)
                .map(|pdp| Judge::Pdp(Arc::new(pdp)))
                .map_err(|(field, problem, fix)| fail(&format!("pdp.{field}"), problem, &fix))?,
            _ => return Err(missing()),
        };
        Ok(Self { judge, tools: Arc::new(Tools::new(context.settings.answers_on_stream)), guard: context.guard() })
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
        let started = Instant::now();
        let (head, body) = request.into_parts();
        let mut decision = self.decide(context, &message).await;
        if decision == Some(Err(Failure::Denied(NOT_LISTED))) {
            self.tools.list(&message, &head, &next).await;
            decision = self.decide(context, &message).await;
        }
        if let Some(decision) = decision {
            context.decided(&self.guard, decision.as_ref().map_or_else(outcome, |()| Outcome::Allowed), started);
            if let Err(failure) = decision {
                return refuse(context, &message, failure.to_string());
            }
        }
        let request = Request::from_parts(head, body);
        context.judge_again(|context, message| {
            Some(refuse(context, message, "another middleware has changed the message behind authorization".to_owned()))
        });
        next.call(request).await
    }

    /// The decision about a message; `None` where it asks for nothing that is decided on.
    async fn decide(&self, context: &RequestContext, message: &OwnedMessage) -> Option<Result<(), Failure>> {
        let (identity, tools, length) = (context.identity(), Arc::clone(&self.tools), message.body().len());
        let message = message.clone();
        match &self.judge {
            Judge::Cedar(cedar) => {
                let (cedar, work) = (Arc::clone(cedar), length.max(cedar.cost()));
                let decision = beside(work, move || cedar.judge(&message, identity.as_ref(), &tools)).await?;
                Some(decision.map_err(Failure::Denied))
            }
            Judge::Pdp(pdp) => {
                let asker = Arc::clone(pdp);
                let questions = beside(length, move || asker.questions(&message, identity.as_deref(), &tools)).await?;
                Some(match questions {
                    Ok(questions) => pdp.judge(questions, &context.client()).await,
                    Err(denial) => Err(Failure::Denied(denial)),
                })
            }
        }
    }

    /// Registers the filter of lists, for every request: an answer may come on a stream that a GET opened.
    fn filter_lists(&self, context: &RequestContext) {
        let (identity, tools) = (context.identity(), Arc::clone(&self.tools));
        context.keep_lists_private();
        match &self.judge {
            Judge::Cedar(cedar) => {
                let (cedar, cost) = (Arc::clone(cedar), cedar.cost());
                context.filter_lists(AUTHORIZATION, &LISTS, cost, move |list| {
                    let learnt = if cedar.reads_hints() { tools.learn(&list) } else { Ok(()) };
                    ready(learnt.and_then(|()| cedar.filter(list, identity.as_ref())))
                });
            }
            Judge::Pdp(pdp) => {
                let (pdp, caller) = (Arc::clone(pdp), context.client());
                context.filter_lists(AUTHORIZATION, &LISTS, 0, move |list| {
                    let learnt = tools.learn(&list);
                    let filtered = pdp.filter(list, identity.as_deref(), caller.clone());
                    async move { learnt.and(filtered.await) }
                });
            }
        }
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

/// The questions of a message; `None` where it asks for nothing that is decided on.
fn questions(message: &OwnedMessage) -> Option<Result<Vec<Question<'_>>, Denial>> {
    match asks(message.message()) {
        // An answer goes to a request of the server, whoever may call what.
        Asks::Nothing | Asks::Answer => None,
        Asks::Questions(questions) => Some(Ok(questions)),
        Asks::Refused(reason) => Some(Err(Denial::Refused(reason))),
    }
}

fn outcome(failure: &Failure) -> Outcome {
    match failure {
        Failure::NoAnswer(_) | Failure::Denied(Denial::Failed(_)) => Outcome::Failed,
        Failure::Denied(_) => Outcome::Denied,
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
        match &self.judge {
            Judge::Cedar(cedar) => cedar.announce(),
            Judge::Pdp(pdp) => pdp.announce(),
        }
    }

    fn bounds(&self) -> Vec<Bound> {
        match &self.judge {
            Judge::Cedar(_) => vec![self.tools.bound()],
            Judge::Pdp(pdp) => vec![pdp.bound()],
        }
    }

    fn reads_messages(&self) -> bool {
        true
    }

    fn judges_messages(&self) -> bool {
        true
    }
}
