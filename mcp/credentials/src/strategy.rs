//! The middleware that runs a strategy.

use std::time::Instant;

use futures::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use mcp_http::{Body, Unauthorized};
use mcp_middleware::{BuildContext, BuildError, Guard, Middleware, Next, Outcome, RequestContext};
use mcp_runconfig::same_header;
use mcp_store::Bound;
use mcp_wire::headers::remove_where;

use crate::failure::{Failure, TOKEN_STEP};

/// A request with a credential in it, and the credential; or why it has none.
pub(crate) type Applied<'a, U> = BoxFuture<'a, Result<(Request<Body>, U), Failure>>;

/// A way to a credential for the MCP server.
pub(crate) trait Strategy: Send + Sync + 'static {
    /// A credential that was used.
    type Used: Send;
    /// The step that callers are told of when it fails.
    const STEP: &'static str = TOKEN_STEP;
    /// The statuses by which a server says that it does not take a credential.
    const REFUSALS: &'static [StatusCode] = &[StatusCode::UNAUTHORIZED];

    /// The request with the credential in it, and without the caller's.
    fn apply<'a>(&'a self, request: Request<Body>, context: &'a RequestContext) -> Applied<'a, Self::Used>;

    /// Hears that the server does not take a credential.
    fn refused(&self, used: Self::Used) -> BoxFuture<'_, ()>;

    /// Logs what an operator should know of it.
    fn announce(&self) {}

    /// The bounds that callers share.
    fn bounds(&self) -> Vec<Bound> {
        Vec::new()
    }
}

/// Puts the credential of one strategy into each request.
pub(crate) struct Credentials<S> {
    kind: &'static str,
    strategy: S,
    guard: Guard,
}

impl<S: Strategy> Credentials<S> {
    /// An error is a place in the chain where [no credential](BuildContext::check_credential) can be.
    pub(crate) fn new(kind: &'static str, strategy: S, context: &BuildContext) -> Result<Self, BuildError> {
        context.check_credential()?;
        Ok(Self { kind, strategy, guard: context.guard() })
    }

    async fn answer(&self, request: Request<Body>, next: Next<'_>) -> Response<Body> {
        let (context, started) = (next.context(), Instant::now());
        match self.strategy.apply(request, context).await {
            Ok((request, used)) => {
                context.decided(&self.guard, Outcome::Allowed, started);
                let answer = next.call(request).await;
                let is_refusal = S::REFUSALS.contains(&answer.status());
                if is_refusal || answer.extensions().get::<Unauthorized>().is_some() {
                    self.strategy.refused(used).await;
                }
                answer
            }
            Err(failure) => {
                context.decided(&self.guard, failure.outcome(), started);
                let (client, reason) = (context.peer().ip(), failure.reason().to_owned());
                tracing::info!(%client, reason, middleware = self.kind, "a request was refused: it has no credential for the server");
                context.deny(self.kind, reason);
                failure.answer(S::STEP)
            }
        }
    }
}

impl<S: Strategy> Middleware for Credentials<S> {
    fn call<'a>(&'a self, request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        Box::pin(self.answer(request, next))
    }

    fn announce(&self) {
        self.strategy.announce();
    }

    fn bounds(&self) -> Vec<Bound> {
        self.strategy.bounds()
    }
}

/// Puts a credential into `header`, and takes the caller's away, also under the names that some servers take for those of these headers.
pub(crate) fn replace(headers: &mut HeaderMap, header: &HeaderName, credential: HeaderValue) {
    let own = [AUTHORIZATION.as_str(), header.as_str()];
    remove_where(headers, |name| own.iter().any(|own| same_header(own, name)));
    headers.insert(header, credential);
}

/// The value of a header with this token, a word of visible ASCII (RFC 6750 §2.1). `None`: it is none, and a server would read it as something else.
pub(crate) fn bearer_value(token: &str) -> Option<HeaderValue> {
    let is_word = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    let mut value = HeaderValue::try_from(format!("Bearer {token}")).ok().filter(|_| is_word)?;
    value.set_sensitive(true);
    Some(value)
}
