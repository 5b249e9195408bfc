//! `usagemetrics`: reports to ToolHive's vendor there; here it is accepted and does nothing.

use futures::future::BoxFuture;
use http::{Request, Response};
use mcp_http::Body;
use mcp_middleware::{Middleware, Next};
use mcp_runconfig::NoParameters;

/// Hands every request on.
pub(crate) struct UsageMetrics;

impl UsageMetrics {
    pub(crate) fn new(_: NoParameters) -> Self {
        Self
    }
}

impl Middleware for UsageMetrics {
    fn call<'a>(&'a self, request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        next.call(request)
    }
}
