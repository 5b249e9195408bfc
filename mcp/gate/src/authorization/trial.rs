//! `shadow-authorization`: policies that are tried. They are asked what `authorization` in their place would ask them, what they say is counted, and nothing
//! depends on it.

use std::future::ready;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use http::request::Parts;
use http::{Method, Request, Response};
use mcp_authz::Denial;
use mcp_http::{Body, Budget};
use mcp_middleware::{
    ANSWERS, BuildContext, BuildError, ListFilter, Look, Middleware, Missed, Next, Outcome, RequestContext, Shadow,
    beside,
};
use mcp_runconfig::{AuthorizationParameters, AuthzKind, SHADOW_AUTHORIZATION};
use mcp_store::{Bound, Shares};
use mcp_wire::{Kind, OwnedMessage};
use tokio::time::timeout;

use super::cedar::Cedar;
use super::requests::OpenRequests;
use super::tools::{NOT_LISTED, Tools};
use super::{LISTS, Lists, cedar, check_place, checked, denied, fail, watcher};

/// The memory for pieces of answers on their way to those who look, in all and of each client, in bytes.
const LIMIT: usize = 64 << 20;
const LIMIT_OF_CLIENT: usize = 16 << 20;

/// The time for which a call waits for a list of tools, and that for which none does after one that took longer.
const WAIT: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_mins(1);

/// Policies that are tried.
pub(crate) struct Trial {
    cedar: Arc<Cedar>,
    tools: Arc<Tools>,
    requests: Arc<OpenRequests>,
    shadow: Shadow,
    pieces: Arc<Shares>,
    /// The last time at which a list took too long for a call to wait for it.
    slow: Mutex<Option<Instant>>,
    /// The memory for answers that are looked at: as much as there is for those that are filtered.
    held: Budget,
}

impl Trial {
    pub(crate) fn new(parameters: AuthorizationParameters, context: &BuildContext) -> Result<Self, BuildError> {
        check_place(context)?;
        let config = checked(parameters, context)?;
        if config.kind != AuthzKind::Cedar {
            let fix = "write cedarv1, or try the service as a webhook";
            return Err(fail(context, "type", "is a service, and only Cedar policies can be tried".to_owned(), fix));
        }
        Ok(Self {
            cedar: Arc::new(cedar(&config, context)?),
            tools: Arc::new(Tools::new(context.settings.answers_on_stream)),
            requests: Arc::new(OpenRequests::new()),
            shadow: context.shadow(None),
            pieces: Shares::new(LIMIT, LIMIT_OF_CLIENT),
            slow: Mutex::default(),
            held: Budget::new(ANSWERS),
        })
    }

    async fn answer(&self, request: Request<Body>, next: Next<'_>) -> Response<Body> {
        let context = next.context();
        // A proxy that enforces policies serves no open paths but those that it is told of.
        if context.is_aside() || context.is_open() {
            return next.call(request).await;
        }
        self.look(context);
        let Some(message) = context.message().filter(|_| request.method() == Method::POST) else {
            return next.call(request).await;
        };
        let started = Instant::now();
        let (head, body) = request.into_parts();
        let mut decision = self.decide(context, &message).await;
        if decision == Some(Err(NOT_LISTED)) {
            if self.list(&message, &head, &next).await {
                decision = self.decide(context, &message).await;
            } else {
                self.shadow.drop_call();
                decision = None;
            }
        }
        if let Some(decision) = decision {
            let outcome = decision.as_ref().map_or_else(denied, |()| Outcome::Allowed);
            if let Err(denial) = &decision {
                tracing::debug!(%denial, "a call would be refused by policies that are tried");
            }
            context.decided_in_shadow(&self.shadow, outcome, started);
        }
        next.call(Request::from_parts(head, body)).await
    }

    /// The decision about a message; `None` where it asks for nothing that is decided on.
    async fn decide(&self, context: &RequestContext, message: &OwnedMessage) -> Option<Result<(), Denial>> {
        if message.kind() == Kind::Response {
            return Some(self.requests.judge(context, message));
        }
        let (identity, tools) = (context.identity(), Arc::clone(&self.tools));
        let (cedar, message) = (Arc::clone(&self.cedar), message.clone());
        let work = message.body().len().max(cedar.cost());
        beside(work, move || cedar.judge(&message, identity.as_ref(), &tools)).await
    }

    /// Lists the tools as the caller of one that no list had yet. Returns whether that has ended in the time for which a call waits for a shadow.
    async fn list(&self, message: &OwnedMessage, head: &Parts, next: &Next<'_>) -> bool {
        let slow = || self.slow.lock().unwrap_or_else(PoisonError::into_inner);
        if slow().is_some_and(|since| since.elapsed() < PAUSE) {
            return false;
        }
        let has_ended = timeout(WAIT, self.tools.list(message, head, next)).await.is_ok();
        if !has_ended {
            *slow() = Some(Instant::now());
            tracing::warn!(
                "the MCP server is slow to list its tools: policies that are tried and read hints drop calls of unknown tools for a minute"
            );
        }
        has_ended
    }

    /// Counts the entries of lists in the answer that would be hidden. Lists that would be withheld count as failures.
    fn look(&self, context: &RequestContext) {
        let (started, identity) = (Instant::now(), context.identity());
        let (cedar, lists) = (Arc::clone(&self.cedar), Lists::of(context, &self.tools, self.cedar.reads_hints()));
        let [counted, failed] = [(); 2].map(|()| (context.own_shadows(), self.shadow.clone()));
        let filter =
            ListFilter { middleware: SHADOW_AUTHORIZATION, kinds: &LISTS, cost: cedar.cost(), is_private: true };
        let missed = move |missed| match (missed, &failed) {
            (Missed::Dropped, (_, shadow)) => shadow.drop_call(),
            (Missed::Withheld(reason), (shadows, shadow)) => {
                tracing::debug!(reason, "a list would be withheld by policies that are tried");
                shadows.decide(shadow, Outcome::Failed, started);
            }
        };
        let look = Look::new(context.client(), context.own_shadows(), &self.pieces, &self.held, missed);
        let look = look.at_lists(filter, move |list| {
            let (all, (shadows, shadow)) = (list.entries().len(), &counted);
            let left = lists.check(&list).and_then(|()| cedar.filter(list, identity.as_ref()));
            ready(left.inspect(|left| shadows.hide(shadow, all - left.entries().len())))
        });
        context.look_at_answer(look.at_messages(watcher(context, &self.requests, &self.tools)));
    }
}

impl Middleware for Trial {
    fn call<'a>(&'a self, request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        self.answer(request, next).boxed()
    }

    fn announce(&self) {
        self.cedar.announce();
        tracing::info!("these policies are tried, and decide nothing");
    }

    fn bounds(&self) -> Vec<Bound> {
        vec![self.pieces.bound("shadow_pieces"), self.held.bound("shadow_lists")]
    }
}
