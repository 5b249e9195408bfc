//! `mcp-parser`: each message is read, for the middleware further in (toolhive-runner §2.11).

use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response};
use mcp_http::Body;
use mcp_middleware::{Middleware, Next};
use mcp_runconfig::NoParameters;

/// Refuses what is no message, unless a middleware further out has read it already.
pub(crate) struct Parser;

impl Parser {
    pub(crate) fn new(_: NoParameters) -> Self {
        Self
    }
}

impl Middleware for Parser {
    fn call<'a>(&'a self, request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        async move {
            match next.context().read(request).await {
                Ok(request) => next.call(request).await,
                Err(refusal) => refusal,
            }
        }
        .boxed()
    }

    fn reads_messages(&self) -> bool {
        true
    }
}
