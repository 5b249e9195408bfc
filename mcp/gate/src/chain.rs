//! The chain: steps in the order of the document around a transport.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response};
use mcp_http::{Body, BoxService};
use mcp_runconfig::{MiddlewareConfig, chain, webhook};
use rustls::crypto::CryptoProvider;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use crate::auth::Auth;
use crate::bodylimit::{BodyLimit, DEFAULT_LIMIT};
use crate::error::{BuildError, Place};
use crate::json_only::JsonOnly;
use crate::parser::Parser;
use crate::recovery::Recovery;
use crate::webhook::{Mutating, Validating, Webhooks};

/// What the steps need to know about where they run.
#[derive(Clone, Debug)]
pub struct GateContext {
    /// Name of the MCP server; told to webhooks whose parameters name none.
    pub server_name: String,
    /// Transport of the MCP server; told to webhooks whose parameters name none.
    pub transport: String,
    /// Put before the absolute paths of the document, for running it outside the container it was written for.
    pub files_root: Option<PathBuf>,
    /// Who calls when nobody has to log in: the operating system's user, or `local`.
    pub local_user: String,
    /// The cryptography of TLS to webhooks.
    pub provider: Arc<CryptoProvider>,
    /// Where the connections to webhooks run; they end once the gate is dropped and their calls are over.
    pub tasks: TaskTracker,
}

/// The middleware chain of one proxy.
#[derive(Clone)]
pub struct Gate {
    steps: Arc<[Box<dyn Step>]>,
    names: Vec<&'static str>,
}

/// One middleware.
pub(crate) trait Step: Send + Sync {
    /// Answers the request itself or hands it on.
    fn call<'a>(&'a self, request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>>;

    /// Logs what an operator should know of it.
    fn announce(&self) {}
}

/// The rest of the chain.
pub(crate) struct Next<'a> {
    steps: &'a [Box<dyn Step>],
    inner: BoxService,
}

// === impl Gate ===

impl Gate {
    /// Builds the chain of `configs`, the first outermost.
    ///
    /// # Errors
    /// Names the first middleware that cannot be built as it is written: an unknown type, a bad parameter, a missing
    /// or unreadable file, webhooks before the parser they need.
    pub fn build(configs: &[MiddlewareConfig], context: &GateContext) -> Result<Self, BuildError> {
        let mut steps: Vec<Box<dyn Step>> = Vec::new();
        let mut names = Vec::new();
        let mut limit = DEFAULT_LIMIT;
        for (index, config) in configs.iter().enumerate() {
            let place = Place { index, kind: &config.kind };
            let Some(&name) = chain::BUILT.iter().find(|name| **name == config.kind) else {
                let supported = chain::BUILT.join(", ");
                return Err(place.error(
                    "type",
                    format!("{:?} is not supported by this proxy", config.kind),
                    format!("use one of {supported}, or a proxy that has it"),
                ));
            };
            let parameters = &config.parameters;
            let parsed = names.contains(&"mcp-parser");
            match name {
                "bodylimit" => {
                    let step = BodyLimit::new(parameters, place)?;
                    limit = step.0;
                    steps.push(Box::new(step));
                }
                "auth" => steps.push(Box::new(Auth::new(parameters, &context.local_user, place)?)),
                "mcp-parser" => steps.push(Box::new(Parser::new(limit))),
                webhook::MUTATING => steps.push(Box::new(Mutating(Webhooks::new(parameters, parsed, context, place)?))),
                webhook::VALIDATING => {
                    steps.push(Box::new(Validating(Webhooks::new(parameters, parsed, context, place)?)));
                }
                "recovery" => steps.push(Box::new(Recovery)),
                // usagemetrics reports to upstream's vendor; it is accepted and does nothing.
                _ => {}
            }
            names.push(name);
        }
        if names.contains(&"mcp-parser") {
            // Whoever reads requests must read all of them, so what is no JSON is refused before the first step.
            steps.insert(0, Box::new(JsonOnly));
        }
        Ok(Self { steps: steps.into(), names })
    }

    /// Logs what an operator should know of the chain. Call it once nothing can fail any more: a proxy that does not
    /// start says why in one line.
    pub fn announce(&self) {
        self.steps.iter().for_each(|step| step.announce());
    }

    /// Puts the chain around `inner`.
    pub fn wrap(&self, inner: BoxService) -> BoxService {
        let steps = Arc::clone(&self.steps);
        BoxService::new(tower::service_fn(move |request| {
            let (steps, inner) = (Arc::clone(&steps), inner.clone());
            async move { Ok(Next { steps: &steps, inner }.call(request).await) }
        }))
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("names", &self.names).finish_non_exhaustive()
    }
}

// === impl Next ===

impl<'a> Next<'a> {
    /// Runs the rest of the chain.
    pub(crate) fn call(self, request: Request<Body>) -> BoxFuture<'a, Response<Body>> {
        let Self { steps, inner } = self;
        match steps.split_first() {
            Some((step, steps)) => step.call(request, Next { steps, inner }),
            None => inner.oneshot(request).map(|Ok(response)| response).boxed(),
        }
    }
}
