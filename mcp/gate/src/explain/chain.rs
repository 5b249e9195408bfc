//! The part of a chain that decides who may call what, built as the proxy builds it, but for what reads files or calls somebody.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response};
use mcp_http::Body;
use mcp_middleware::{BuildContext, BuildError, Entry, Middleware, Next, ProxySettings, Registry};
use mcp_runconfig::webhook::{self, Mode, Selector, WebhookParameters};
use mcp_runconfig::{
    AUTHORIZATION, AuthParameters, NoParameters, SHADOW_AUTHORIZATION, TOKEN_INJECTION, TOOL_CALL_FILTER, TOOL_FILTER,
    chain,
};

use crate::authorization::{Authorization, Trial};
use crate::tools::ToolNames;
use crate::webhook::{check, check_place};

/// The part of a chain that decides who may call what.
pub struct Gate {
    /// In the order of the chain, the first outermost.
    pub(super) steps: Vec<Step>,
    login: bool,
}

pub(super) enum Step {
    Login,
    List(ToolNames),
    Call(ToolNames),
    Webhook {
        kind: &'static str,
        name: String,
        selector: Selector,
    },
    Authorization(Box<Authorization>),
    /// The type of a middleware that gets a credential for each caller.
    Credential(&'static str),
}

/// Stands for a middleware in a chain that serves nobody.
struct Stand;

impl Middleware for Stand {
    fn call<'a>(&'a self, request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        next.call(request)
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("steps", &self.steps.len()).finish_non_exhaustive()
    }
}

impl Gate {
    /// Builds the guards of `entries`, the first outermost. Files that they name are not read.
    ///
    /// # Errors
    /// Names the first guard that the proxy would refuse, too.
    pub fn build(entries: Vec<Entry>, settings: ProxySettings) -> Result<Self, BuildError> {
        let steps = Arc::new(Mutex::new(Vec::new()));
        let registry = registry(&steps);
        if let Some(built) = registry.build_entries(entries, settings).now_or_never() {
            built?;
        }
        let steps = std::mem::take(&mut *steps.lock().unwrap_or_else(PoisonError::into_inner));
        let login = steps.iter().any(|step| matches!(step, Step::Login));
        Ok(Self { steps, login })
    }

    /// Whether callers have to log in.
    pub fn demands_login(&self) -> bool {
        self.login
    }

    /// Whether a guard reads lists of tools in answers, and withholds those that it cannot read.
    pub(super) fn reads_lists(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::List(_) | Step::Authorization(_)))
    }
}

/// Builders that keep what they build in `steps`. None of them waits.
fn registry(steps: &Arc<Mutex<Vec<Step>>>) -> Registry {
    let mut registry = Registry::default();
    for kind in chain::built_kinds() {
        registry.register(kind, |NoParameters, _| async { Ok(Stand) });
    }
    let keep = |made: fn(ToolNames) -> Step| {
        let steps = Arc::clone(steps);
        move |parameters, context: BuildContext| {
            let step = ToolNames::build(parameters, &context).map(made);
            std::future::ready(step.map(|step| push(&steps, [step])))
        }
    };
    registry.register(TOOL_FILTER, keep(Step::List)).register(TOOL_CALL_FILTER, keep(Step::Call));
    let own = Arc::clone(steps);
    registry.register(chain::AUTH, move |parameters: AuthParameters, context: BuildContext| {
        let login = parameters.oidc_config.map(|_| Step::Login);
        std::future::ready(context.check_single().map(|()| push(&own, login)))
    });
    for kind in [webhook::MUTATING, webhook::VALIDATING] {
        let steps = Arc::clone(steps);
        registry.register(kind, move |parameters: WebhookParameters, context: BuildContext| {
            std::future::ready(webhooks(kind, parameters, &context).map(|hooks| push(&steps, hooks)))
        });
    }
    for kind in chain::CREDENTIALS {
        let steps = Arc::clone(steps);
        registry.register(kind, move |NoParameters, context: BuildContext| {
            // The proxy's own token is the same for every caller.
            let step = (kind != TOKEN_INJECTION).then_some(Step::Credential(kind));
            std::future::ready(context.check_credential().map(|()| push(&steps, step)))
        });
    }
    // Policies that are tried decide nothing, but a proxy does not start with those that cannot be read.
    registry.register(SHADOW_AUTHORIZATION, |parameters, context| {
        std::future::ready(Trial::new(parameters, &context).map(|_| Stand))
    });
    let steps = Arc::clone(steps);
    registry.register(AUTHORIZATION, move |parameters, context: BuildContext| {
        let step = Authorization::new(parameters, &context).map(|built| Step::Authorization(Box::new(built)));
        std::future::ready(step.map(|step| push(&steps, [step])))
    });
    registry
}

fn push(all: &Mutex<Vec<Step>>, steps: impl IntoIterator<Item = Step>) -> Stand {
    all.lock().unwrap_or_else(PoisonError::into_inner).extend(steps);
    Stand
}

fn webhooks(
    kind: &'static str,
    parameters: WebhookParameters,
    context: &BuildContext,
) -> Result<Vec<Step>, BuildError> {
    check_place(kind, context)?;
    let hook = |(at, config): (usize, webhook::WebhookConfig)| {
        check(&config, at, context)?;
        let selector = Selector::new(&config.portcullis.r#match);
        // A shadow has no effect.
        let is_enforced = config.portcullis.mode == Mode::Enforce;
        Ok(is_enforced.then_some(Step::Webhook { kind, name: config.name, selector }))
    };
    let hooks: Result<Vec<_>, _> = parameters.webhooks.into_iter().enumerate().map(hook).collect();
    Ok(hooks?.into_iter().flatten().collect())
}
