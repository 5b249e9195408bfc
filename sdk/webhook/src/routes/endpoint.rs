//! Endpoints, which are served at a path.

use std::borrow::Cow;

use bytes::Bytes;
use futures::future::BoxFuture;
use hyper::StatusCode;
use tokio::time::Instant;

use super::{Budget, TraceId};
use crate::rejected::Rejected;

/// Answers the calls to one path. Admission and conversion each bring their own.
pub(crate) trait Endpoint: Send + Sync + 'static {
    /// The limits of one call, and of all of them together. Read once, when the routes are made.
    fn limits(&self) -> RouteLimits;

    /// The condition that it waits for before it can answer; calls are shed until then.
    fn waits_for(&self) -> Option<String> {
        None
    }

    /// Answers one call, whose body came whole and within the limits. Must be done by `call.deadline`; it is not cut
    /// off there, so that the endpoint can say what took so long. Must not panic.
    fn answer(&self, body: Bytes, call: Call) -> BoxFuture<'_, Result<Bytes, HttpError>>;
}

/// Bounds of one path.
#[derive(Clone, Debug)]
pub(crate) struct RouteLimits {
    /// Bytes of one body.
    pub(crate) body: usize,
    /// Time for an answer where the call's `?timeout=` does not say.
    pub(crate) timeout: std::time::Duration,
    /// Reviews under way at the same time, from the end of the body to the answer. Further ones are shed.
    pub(crate) concurrent: usize,
    /// The budget of bodies while they are read and held; other paths may share it.
    pub(crate) budget: Budget,
}

/// The context of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    /// When its head had been read.
    pub(crate) began: Instant,
    /// When the answer must be on its way.
    pub(crate) deadline: Instant,
    /// The trace that it belongs to, for spans.
    pub(crate) trace: Option<TraceId>,
}

/// An answer that is not a review: the failure policy of an admission webhook decides then, and the API server's client
/// shows its user the text.
#[derive(Debug)]
pub(crate) struct HttpError {
    pub(crate) status: StatusCode,
    pub(crate) problem: Cow<'static, str>,
    pub(crate) reason: Rejected,
}

impl HttpError {
    pub(crate) fn new(status: StatusCode, reason: Rejected, problem: impl Into<Cow<'static, str>>) -> Self {
        Self { status, problem: problem.into(), reason }
    }

    /// HTTP 400: there is no uid to answer to.
    pub(crate) fn malformed(problem: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, Rejected::Malformed, problem)
    }

    /// HTTP 429 with `Retry-After: 1`, which the API server's client obeys within its own timeout.
    pub(crate) fn shed(problem: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, Rejected::Shed, problem)
    }

    /// HTTP 500. Always this one, though 504 and 400 would sometimes be more to the point: it is the one status whose
    /// text the API server passes on to the user (apimachinery's `NewGenericServerResponse` has a sentence of its own
    /// for the others).
    pub(crate) fn failed(reason: Rejected, problem: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, reason, problem)
    }
}
