//! `shadow-authorization`: policies that are tried. They are asked what `authorization` in their place would ask them, what they say is counted, and nothing
//! depends on it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use http::request::Parts;
use http::{Method, Request, Response};
use mcp_http::Body;
use mcp_middleware::{
    BuildContext, BuildError, LOOKED_AT, ListLook, Middleware, Next, Outcome, RequestContext, Shadow, beside,
};
use mcp_runconfig::{AuthorizationParameters, AuthzKind};
use mcp_store::{Bound, Shares};
use mcp_wire::{Kind, List, OwnedMessage};
use tokio::time::timeout;

use super::cedar::Cedar;
use super::tools::{NOT_LISTED, Tools};
use super::{LISTS, cedar, check_length, check_place, checked, denied, fail};

/// The memory for answers that are looked at, in all and of each client, in bytes.
const LIMIT: usize = 64 * LOOKED_AT;
const LIMIT_OF_CLIENT: usize = 16 * LOOKED_AT;

/// The time for which a call waits for a list of tools, and that for which none does after one that took longer.
const WAIT: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_mins(1);

/// The methods whose answers have lists.
const METHODS: [&str; 5] = ["tools/list", "prompts/list", "resources/list", "resources/templates/list", "skills/list"];

/// Policies that are tried.
pub(crate) struct Trial {
    cedar: Arc<Cedar>,
    tools: Arc<Tools>,
    shadow: Shadow,
    looks: Arc<Shares>,
    /// The last time at which a list took too long for a call to wait for it.
    slow: Mutex<Option<Instant>>,
    /// Whether answers come on the client's own stream, where nobody can tell to which request a list belongs.
    answers_on_stream: bool,
}

impl Trial {
    pub(crate) fn new(parameters: AuthorizationParameters, context: &BuildContext) -> Result<Self, BuildError> {
        check_place(context)?;
        let config = checked(parameters, context)?;
        if config.kind != AuthzKind::Cedar {
            let fix = "write cedarv1, or try the service as a webhook";
            return Err(fail(context, "type", "is a service, and only Cedar policies can be tried".to_owned(), fix));
        }
        let cedar = cedar(&config, context)?;
        let answers_on_stream = context.settings.answers_on_stream;
        Ok(Self {
            cedar: Arc::new(cedar),
            tools: Arc::new(Tools::new(answers_on_stream)),
            shadow: context.shadow(None),
            looks: Shares::new(LIMIT, LIMIT_OF_CLIENT),
            slow: Mutex::default(),
            answers_on_stream,
        })
    }

    async fn answer(&self, request: Request<Body>, next: Next<'_>) -> Response<Body> {
        let context = next.context();
        let message = context.message().filter(|message| message.kind() != Kind::Response);
        let message = message.filter(|_| request.method() == Method::POST && !context.is_aside());
        let Some(message) = message else { return next.call(request).await };
        if METHODS.contains(&message.method().unwrap_or_default()) {
            self.look(context, &message);
        }
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
    async fn decide(&self, context: &RequestContext, message: &OwnedMessage) -> Option<Result<(), mcp_authz::Denial>> {
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

    /// Counts the entries of the list in the answer that would be hidden.
    fn look(&self, context: &RequestContext, message: &OwnedMessage) {
        if self.answers_on_stream {
            return;
        }
        let Some(share) = self.looks.take(&context.client(), LOOKED_AT) else {
            self.shadow.drop_call();
            return;
        };
        let (cedar, tools, shadow) = (Arc::clone(&self.cedar), Arc::clone(&self.tools), self.shadow.clone());
        let (identity, shadows) = (context.identity(), context.own_shadows());
        let learns = cedar.reads_hints() && tools.learn_from(Some(message));
        let (changes, started) = (tools.changes(), Instant::now());
        let hidden = move |list: Result<List, &'static str>| {
            let list = list?;
            check_length(&list)?;
            if learns {
                tools.learn(&list, Some(changes))?;
            }
            let all = list.entries().len();
            Ok::<_, &'static str>(all - cedar.filter(list, identity.as_ref())?.entries().len())
        };
        let found = move |list| match hidden(list) {
            Ok(entries) => shadows.hide(&shadow, entries),
            // Enforcement withholds such an answer.
            Err(reason) => {
                tracing::debug!(reason, "a list would be withheld by policies that are tried");
                shadows.decide(&shadow, Outcome::Failed, started);
            }
        };
        let look = ListLook {
            kinds: &LISTS,
            cost: self.cedar.cost(),
            share,
            run: context.run_in_shadow(),
            look: Box::new(found),
        };
        context.look_at_list(look);
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
        vec![self.looks.bound("shadow_lists")]
    }
}
