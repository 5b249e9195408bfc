//! `authorization`: who may call what (toolhive-runner §2.16, toolhive-auth §4, toolhive-0.63 §5.2).
//!
//! A call is refused, and lists in answers have the entries that the caller may call, get or read. It judges the messages as the MCP server gets
//! them, and stands further in than all that may change them.

mod callers;
mod cedar;
mod pdp;
mod requests;
mod tools;
mod trial;
mod views;

use std::future::ready;
use std::sync::Arc;
use std::time::Instant;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode};
use mcp_authz::{Asks, Denial, Question, asks};
use mcp_http::{Body, json_error, text};
use mcp_middleware::{BuildContext, BuildError, Guard, ListFilter, Middleware, Next, Outcome, RequestContext, beside};
use mcp_runconfig::chain::AUTH;
use mcp_runconfig::{
    AUTHORIZATION, AuthorizationParameters, AuthzConfig, AuthzKind, TOOL_CALL_FILTER, TOOL_FILTER, webhook,
};
use mcp_store::Bound;
use mcp_wire::{ErrorBody, Kind, List, ListKind, Message, OwnedMessage, code};

use self::cedar::Cedar;
use self::pdp::{Failure, Pdp};
use self::requests::OpenRequests;
use self::tools::{Changes, NOT_LISTED, Tools};

pub(crate) use views::View;

/// The lists of which a caller sees the entries that it may call, get or read, and the most entries that they may have.
const LISTS: [ListKind; 5] =
    [ListKind::Tools, ListKind::Prompts, ListKind::Resources, ListKind::ResourceTemplates, ListKind::Skills];
const ENTRIES: usize = 10_000;

/// Refuses calls that the caller may not make, and hides from it what it may not call.
pub(crate) struct Authorization {
    decider: Decider,
    tools: Arc<Tools>,
    requests: Arc<OpenRequests>,
    guard: Guard,
}

pub(crate) use self::trial::Trial;

/// The part that decides.
#[derive(Clone)]
enum Decider {
    Cedar(Arc<Cedar>),
    Pdp(Arc<Pdp>),
}

impl Authorization {
    pub(crate) fn new(parameters: AuthorizationParameters, context: &BuildContext) -> Result<Self, BuildError> {
        check_place(context)?;
        let decider = match checked(parameters, context)? {
            AuthzConfig { kind: AuthzKind::Http, pdp: Some(pdp), .. } => Pdp::new(pdp, context)
                .map(|pdp| Decider::Pdp(Arc::new(pdp)))
                .map_err(|(field, problem, fix)| fail(context, &format!("pdp.{field}"), problem, &fix))?,
            config => Decider::Cedar(Arc::new(cedar(&config, context)?)),
        };
        let (tools, requests) = (Tools::new(context.settings.answers_on_stream), OpenRequests::new());
        Ok(Self { decider, tools: Arc::new(tools), requests: Arc::new(requests), guard: context.guard() })
    }

    async fn answer(&self, request: Request<Body>, next: Next<'_>) -> Response<Body> {
        let context = next.context();
        let request = match context.read(request).await {
            Ok(request) => request,
            Err(refusal) => return refusal,
        };
        self.filter_lists(context);
        context.watch_messages(watcher(context, &self.requests, &self.tools));
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
        if message.kind() == Kind::Response {
            return Some(self.requests.judge(context, message).map_err(Failure::Denied));
        }
        let (identity, tools, length) = (context.identity(), Arc::clone(&self.tools), message.body().len());
        let message = message.clone();
        match &self.decider {
            Decider::Cedar(cedar) => {
                let (cedar, work) = (Arc::clone(cedar), length.max(cedar.cost()));
                let decision = beside(work, move || cedar.judge(&message, identity.as_ref(), &tools)).await?;
                Some(decision.map_err(Failure::Denied))
            }
            Decider::Pdp(pdp) => {
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
        let (identity, client) = (context.identity(), context.client());
        let (decider, lists) = (self.decider.clone(), Lists::of(context, &self.tools, self.decider.reads_hints()));
        let filter =
            ListFilter { middleware: AUTHORIZATION, kinds: &LISTS, cost: self.decider.cost(), is_private: true };
        context.filter_lists(filter, move |list| match (lists.check(&list), &decider) {
            (Err(reason), _) => ready(Err(reason)).boxed(),
            (Ok(()), Decider::Cedar(cedar)) => ready(cedar.filter(list, identity.as_ref())).boxed(),
            (Ok(()), Decider::Pdp(pdp)) => pdp.filter(list, identity.as_deref(), client.clone()).boxed(),
        });
    }
}

impl Decider {
    /// The work for one entry of a list, as the bytes of a text that take as long to read.
    fn cost(&self) -> usize {
        match self {
            Self::Cedar(cedar) => cedar.cost(),
            Self::Pdp(_) => 0,
        }
    }

    fn reads_hints(&self) -> bool {
        match self {
            Self::Cedar(cedar) => cedar.reads_hints(),
            Self::Pdp(_) => true,
        }
    }
}

/// The lists in the answer to a request, before they are filtered.
struct Lists {
    tools: Arc<Tools>,
    /// Whether hints are learnt from them.
    learns: bool,
    changes: Option<Changes>,
}

impl Lists {
    fn of(context: &RequestContext, tools: &Arc<Tools>, reads_hints: bool) -> Self {
        let message = context.message();
        let learns = reads_hints && tools.learn_from(message.as_ref());
        Self { tools: Arc::clone(tools), learns, changes: message.map(|_| tools.changes()) }
    }

    fn check(&self, list: &List) -> Result<(), &'static str> {
        check_length(list)?;
        if self.learns { self.tools.learn(list, self.changes) } else { Ok(()) }
    }
}

/// A watcher of the MCP server's own messages: requests, which the client may answer, and the news that hints hold no more.
fn watcher(
    context: &RequestContext,
    requests: &Arc<OpenRequests>,
    tools: &Arc<Tools>,
) -> impl Fn(Option<&Arc<str>>, &Message<'_>) + Send + Sync + use<> {
    let (owner, client) = (context.owner(), context.client());
    let (requests, tools) = (Arc::clone(requests), Arc::clone(tools));
    move |session, message| match (message.id(), &owner, session) {
        (Some(id), Some(owner), Some(session)) => requests.open((owner.clone(), Arc::clone(session)), &client, id),
        (None, ..) if message.method() == Some("notifications/tools/list_changed") => tools.forget(),
        _ => {}
    }
}

/// Each entry is a decision, and entries may be a few bytes of a long answer.
fn check_length(list: &List) -> Result<(), &'static str> {
    if list.entries().len() > ENTRIES { Err("it has more than 10,000 entries to decide on") } else { Ok(()) }
}

const CONFIG: &str = "parameters.config_data";

fn fail(context: &BuildContext, field: &str, problem: String, fix: &str) -> BuildError {
    let member = if field.is_empty() { CONFIG.to_owned() } else { format!("{CONFIG}.{field}") };
    context.error(&member, problem, fix)
}

/// The configuration, with what its type needs.
fn checked(parameters: AuthorizationParameters, context: &BuildContext) -> Result<AuthzConfig, BuildError> {
    let fix = "write the policies there, or leave this middleware out";
    let config = parameters.config_data.ok_or_else(|| fail(context, "", "is missing".to_owned(), fix))?;
    config.check().map_err(|error| fail(context, &error.field, error.problem, &error.fix))?;
    Ok(config)
}

fn cedar(config: &AuthzConfig, context: &BuildContext) -> Result<Cedar, BuildError> {
    let policies = config.cedar.clone().unwrap_or_default();
    Cedar::new(&policies, &context.settings.server_name)
        .map_err(|(field, problem)| fail(context, &format!("cedar.{field}"), problem, &format!("correct {field}")))
}

/// Refuses a place in the chain in which something else than the MCP server's own message would be judged, or nobody had called.
fn check_place(context: &BuildContext) -> Result<(), BuildError> {
    context.check_single()?;
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
        // Answers are judged before, by the requests that are open.
        Asks::Nothing | Asks::Answer => None,
        Asks::Questions(questions) => Some(Ok(questions)),
        Asks::Refused(reason) => Some(Err(Denial::Refused(reason))),
    }
}

fn outcome(failure: &Failure) -> Outcome {
    match failure {
        Failure::NoAnswer(_) => Outcome::Failed,
        Failure::Denied(denial) => denied(denial),
    }
}

fn denied(denial: &Denial) -> Outcome {
    match denial {
        Denial::Failed(_) => Outcome::Failed,
        _ => Outcome::Denied,
    }
}

/// The client is told nothing of the reason, which is for the log and the audit.
fn refuse(context: &RequestContext, message: &OwnedMessage, reason: String) -> Response<Body> {
    let target = message.message().target().ok().flatten();
    tracing::debug!(reason, method = message.message().method(), target = target.as_deref(), "a call was refused");
    context.deny(AUTHORIZATION, reason);
    // The id of an answer is the server's: the client may wait for an answer to one of its own that is equal.
    let id = message.id().filter(|_| message.kind() != Kind::Response);
    json_error(StatusCode::FORBIDDEN, &ErrorBody::new(code::DENIED, "Unauthorized").id(id))
}

impl Middleware for Authorization {
    fn call<'a>(&'a self, request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        self.answer(request, next).boxed()
    }

    fn announce(&self) {
        match &self.decider {
            Decider::Cedar(cedar) => cedar.announce(),
            Decider::Pdp(pdp) => pdp.announce(),
        }
    }

    fn bounds(&self) -> Vec<Bound> {
        let own = match &self.decider {
            Decider::Cedar(_) => self.tools.bound(),
            Decider::Pdp(pdp) => pdp.bound(),
        };
        vec![own, self.requests.bound()]
    }

    fn reads_messages(&self) -> bool {
        true
    }

    fn judges_messages(&self) -> bool {
        true
    }
}
