//! `recovery`: a panic becomes an answer (toolhive-runner §2.20).

use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode};
use mcp_http::{Body, text};
use mcp_middleware::{Middleware, Next};
use mcp_runconfig::{NoParameters, chain};

/// Answers 500 for what panics further in.
pub(crate) struct Recovery;

impl Recovery {
    pub(crate) fn new(_: NoParameters) -> Self {
        Self
    }
}

impl Middleware for Recovery {
    fn call<'a>(&'a self, request: Request<Body>, next: Next<'a>) -> BoxFuture<'a, Response<Body>> {
        let context = next.context();
        // The request is gone with the future that owned it, so nothing half-done can be seen afterwards.
        let guarded = AssertUnwindSafe(async move { next.call(request).await }).catch_unwind();
        let answer = move |outcome: std::thread::Result<Response<Body>>| {
            outcome.unwrap_or_else(|payload| {
                let message = payload.downcast_ref::<String>().map(String::as_str);
                let message = message.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message");
                tracing::error!(panic = message, "a panic while serving a request was answered with 500");
                context.deny(chain::RECOVERY, format!("a panic: {message}"));
                text(StatusCode::INTERNAL_SERVER_ERROR, "Internal Server Error")
            })
        };
        guarded.map(answer).boxed()
    }
}
