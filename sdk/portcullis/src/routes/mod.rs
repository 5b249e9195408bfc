//! Requests over HTTP, each to its endpoint.

mod budget;
mod deadline;
mod endpoint;
mod trace;

use std::collections::HashMap;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use hyper::header::{ALLOW, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use tokio::time::{Instant, timeout_at};
use tracing::debug;

pub(crate) use budget::Budget;
pub(crate) use endpoint::{Call, Endpoint, HttpError, Rejected, RouteLimits};
pub(crate) use trace::TraceId;

use crate::metrics::{Metrics, RouteMetrics};
use crate::server::Handler;
use deadline::time_for_answer;

/// The HTTP side of the registered webhooks: paths, limits, deadlines. A [`Handler`] for
/// [`Server::serve_tls`](crate::server::Server::serve_tls).
///
/// Everything that keeps it from a decision is an HTTP error, so that the webhook's failure policy decides: 400 for
/// what is no admission review, 404, 405, 408 for a body that does not come, 413 above 7 MiB, 415 for what is not JSON,
/// 500 for a handler that panicked or did not finish in the time that the API server waits.
#[derive(Clone)]
pub struct Routes {
    routes: Arc<HashMap<String, Route>>,
    metrics: Metrics,
}

/// An endpoint, what it may take and what it counts.
struct Route {
    endpoint: Arc<dyn Endpoint>,
    limits: RouteLimits,
    metrics: RouteMetrics,
}

/// How long the rest of a body that is too large is read before the answer.
const LINGER: Duration = Duration::from_millis(500);
/// And how much of it, in bytes.
const DISCARDED: usize = 8 * 1024 * 1024;

impl Handler for Routes {
    async fn handle(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        self.respond(request).await
    }
}

impl Routes {
    /// The endpoints by their paths, and the metrics that they all count in.
    pub(crate) fn new(endpoints: impl IntoIterator<Item = (String, Arc<dyn Endpoint>)>, metrics: Metrics) -> Self {
        let route = |(path, endpoint): (String, Arc<dyn Endpoint>)| {
            let route = Route { limits: endpoint.limits(), metrics: metrics.route(&path), endpoint };
            (path, route)
        };
        Self { routes: Arc::new(endpoints.into_iter().map(route).collect()), metrics }
    }

    /// The paths that are served, sorted.
    pub fn paths(&self) -> Vec<&str> {
        let mut paths: Vec<_> = self.routes.keys().map(String::as_str).collect();
        paths.sort_unstable();
        paths
    }

    /// What was counted so far, by these routes and their clones.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Answers one request, from whatever its body comes.
    pub async fn respond<B>(&self, request: Request<B>) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let path = request.uri().path().to_owned();
        match self.review(request).await {
            Ok(answer) => {
                let mut response = Response::new(Full::new(answer));
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                response
            }
            Err(HttpError { status, problem, .. }) => {
                debug!(%path, status = status.as_u16(), %problem, "request is answered with an HTTP error");
                let mut response = Response::new(Full::new(Bytes::from(problem.into_owned() + "\n")));
                *response.status_mut() = status;
                let headers = response.headers_mut();
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
                match status {
                    StatusCode::METHOD_NOT_ALLOWED => _ = headers.insert(ALLOW, HeaderValue::from_static("POST")),
                    // What is left of the body is not read, so nothing can follow it.
                    StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT => {
                        headers.insert(CONNECTION, HeaderValue::from_static("close"));
                    }
                    _ => {}
                }
                response
            }
        }
    }

    async fn review<B>(&self, request: Request<B>) -> Result<Bytes, HttpError>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let began = Instant::now();
        let (head, body) = request.into_parts();
        let path = head.uri.path();
        let Route { endpoint, limits, .. } = self.routes.get(path).ok_or_else(|| {
            HttpError::new(StatusCode::NOT_FOUND, Rejected::NotServed, format!("no webhook is served at {path}"))
        })?;
        if head.method != Method::POST {
            let (status, problem) = (StatusCode::METHOD_NOT_ALLOWED, "send reviews with POST");
            return Err(HttpError::new(status, Rejected::NotServed, problem));
        }
        if !head.headers.get(CONTENT_TYPE).is_some_and(is_json) {
            let (status, problem) = (StatusCode::UNSUPPORTED_MEDIA_TYPE, "send content-type application/json");
            return Err(HttpError::new(status, Rejected::NotServed, problem));
        }
        let deadline = began + time_for_answer(head.uri.query(), limits.timeout);
        let announced = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
        let body = read(body, announced, limits.body, deadline).await?;
        let trace = head.headers.get("traceparent").and_then(|header| TraceId::of_traceparent(header.as_bytes()));
        endpoint.answer(body, Call { began, deadline, trace }).await
    }
}

/// The whole body, if it keeps to the limit and comes in time.
async fn read<B>(body: B, announced: Option<usize>, limit: usize, deadline: Instant) -> Result<Bytes, HttpError>
where
    B: Body<Data = Bytes> + Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut body = pin!(body);
    if announced.is_some_and(|length| length > limit) {
        discard(body).await;
        return Err(too_large(limit));
    }
    match timeout_at(deadline, Limited::new(body.as_mut(), limit).collect()).await {
        Ok(Ok(read)) => Ok(read.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            discard(body).await;
            Err(too_large(limit))
        }
        Ok(Err(error)) => Err(HttpError::malformed(format!("body broke off: {error}"))),
        Err(_) => Err(HttpError::new(StatusCode::REQUEST_TIMEOUT, Rejected::Timeout, "body did not come in time")),
    }
}

/// Takes what a peer is still sending, within bounds. Closing a socket with unread bytes in it resets the connection,
/// and the peer would lose the answer that says why.
async fn discard<B: Body<Data = Bytes>>(mut body: Pin<&mut B>) {
    let rest = async {
        let mut left = DISCARDED;
        while let Some(Ok(frame)) = body.frame().await {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            if left == 0 {
                break;
            }
        }
    };
    // Whether it ended or not: the connection is closed after the answer.
    _ = timeout_at(Instant::now() + LINGER, rest).await;
}

fn too_large(limit: usize) -> HttpError {
    let problem = format!("body is larger than {limit} bytes");
    HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, Rejected::TooLarge, problem)
}

/// `application/json`, with or without parameters.
fn is_json(content_type: &HeaderValue) -> bool {
    content_type.to_str().is_ok_and(|value| {
        let media_type = value.split(';').next().unwrap_or_default();
        media_type.trim().eq_ignore_ascii_case("application/json")
    })
}

impl std::fmt::Debug for Routes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Routes").field("paths", &self.paths()).finish_non_exhaustive()
    }
}
