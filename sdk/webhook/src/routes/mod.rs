//! Routes HTTP requests to their endpoints.

mod body;
mod budget;
mod deadline;
mod endpoint;
mod trace;

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::request::Parts;
use http_body_util::Full;
use hyper::body::Body;
use hyper::header::{ALLOW, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use tokio::time::Instant;
use tower::{BoxError, Service};
use tracing::debug;

pub(crate) use budget::Budget;
pub(crate) use endpoint::{Call, Endpoint, HttpError, RouteLimits};
pub(crate) use trace::TraceId;

use crate::metrics::RouteMetrics;
use crate::rejected::Rejected;
use body::Reading;
use budget::Share;
use deadline::time_for_answer;
use portcullis_listener::{Crowded, Handler, Incoming, discard, retry_later};
use portcullis_manifest::messages::POST_ONLY;
use portcullis_metrics::Metrics;

/// The HTTP side of the registered webhooks: paths, limits, deadlines. A [`Handler`] for
/// [`Server::serve_tls`](portcullis_listener::Server::serve_tls), and a [`tower::Service`] for a router or a server of
/// your own.
///
/// A request that cannot be answered with a review gets an HTTP error, so that the failure policy of an admission
/// webhook decides: 400 for a body that is not a review, 404, 405, 408 for a
/// body that does not arrive in time, 413 for one that is too large (admission: above 7 MiB), 415 for one that is not
/// JSON, 500 for a handler that failed, panicked or exceeded the time that the API server waits.
///
/// Overload is answered at once with 429 and `Retry-After: 1`: reviews above a webhook's concurrency, bodies above the
/// memory that all of them share (64 MiB for admission), slow bodies while others wait. So is a review while a cache
/// that its webhook reads is not filled yet. The API server then retries within the webhook's timeout.
#[derive(Clone)]
pub struct Routes {
    by_path: Arc<HashMap<String, Route>>,
    metrics: Metrics,
}

/// An endpoint, what it may take and what it counts.
struct Route {
    endpoint: Arc<dyn Endpoint>,
    limits: RouteLimits,
    /// Reviews under way.
    reviews: Budget,
    metrics: RouteMetrics,
}

/// Answers above this many bytes keep their calls' part of the memory until they are written.
const HELD: usize = 64 * 1024;

impl Handler for Routes {
    type Body = Full<Bytes>;

    async fn handle(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        self.respond(request).await
    }
}

/// Always ready: overload is answered with 429 instead of waiting.
impl<B> Service<Request<B>> for Routes
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Full<Bytes>>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let routes = self.clone();
        Box::pin(async move { Ok(routes.respond(request).await) })
    }
}

impl Routes {
    /// The endpoints by their paths, and the metrics that they all count in.
    pub(crate) fn new(endpoints: impl IntoIterator<Item = (String, Arc<dyn Endpoint>)>, metrics: Metrics) -> Self {
        let route = |(path, endpoint): (String, Arc<dyn Endpoint>)| {
            let limits = endpoint.limits();
            let reviews = Budget::of(limits.concurrent);
            let route = Route { limits, reviews, metrics: RouteMetrics::new(&metrics, &path), endpoint };
            (path, route)
        };
        let by_path = Arc::new(endpoints.into_iter().map(route).collect());
        Self { by_path, metrics }
    }

    /// Returns the served paths, sorted.
    pub fn paths(&self) -> Vec<&str> {
        let mut paths: Vec<_> = self.by_path.keys().map(String::as_str).collect();
        paths.sort_unstable();
        paths
    }

    /// Returns the metrics of these routes and their clones.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Answers one request, with a body of any type.
    pub async fn respond<B>(&self, request: Request<B>) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (head, body) = request.into_parts();
        let route = self.by_path.get(head.uri.path());
        match review(route, &head, body).await {
            Ok(answer) => {
                let mut response = Response::new(Full::new(answer));
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                response
            }
            Err(error) => http_error(&head, route, error),
        }
    }
}

/// The answer to a review, or why there is none.
async fn review<B>(route: Option<&Route>, head: &Parts, body: B) -> Result<Bytes, HttpError>
where
    B: Body<Data = Bytes> + Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let began = Instant::now();
    let Some(Route { endpoint, limits, reviews, metrics }) = route else {
        let problem = format!("no webhook is served at {}", head.uri.path());
        return Err(HttpError::new(StatusCode::NOT_FOUND, Rejected::NotServed, problem));
    };
    if head.method != Method::POST {
        let (status, problem) = (StatusCode::METHOD_NOT_ALLOWED, POST_ONLY);
        return Err(HttpError::new(status, Rejected::NotServed, problem));
    }
    if !head.headers.get(CONTENT_TYPE).is_some_and(is_json) {
        let (status, problem) = (StatusCode::UNSUPPORTED_MEDIA_TYPE, "send content-type application/json");
        return Err(HttpError::new(status, Rejected::NotServed, problem));
    }
    let deadline = began + time_for_answer(head.uri.query(), limits.timeout);
    let announced = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let crowded = head.extensions.get::<Crowded>();
    let reading = Reading { began, deadline, announced, limit: limits.body, budget: &limits.budget, crowded };
    if let Some(missing) = endpoint.waits_for() {
        discard(body).await;
        return Err(HttpError::shed(missing));
    }
    if reviews.exhausted() {
        // Checked before the body is read, which costs most.
        discard(body).await;
        return Err(busy());
    }
    let (body, memory) = reading.whole(body).await?;
    // The slot is taken only now, so that slow bodies block no others.
    let mut place = reviews.share();
    if !place.grow(1) {
        return Err(busy());
    }
    let _counted = metrics.begin();
    let trace = head.headers.get("traceparent").and_then(|header| TraceId::of_traceparent(header.as_bytes()));
    let answer = endpoint.answer(body, Call { began, deadline, trace }).await?;
    Ok(if answer.len() > HELD { Bytes::from_owner(Answer { answer, _memory: memory }) } else { answer })
}

/// A large answer, with the memory that its call was granted.
struct Answer {
    answer: Bytes,
    _memory: Share,
}

impl AsRef<[u8]> for Answer {
    fn as_ref(&self) -> &[u8] {
        &self.answer
    }
}

fn busy() -> HttpError {
    HttpError::shed("too many concurrent reviews for this webhook")
}

/// An answer that is not a review.
fn http_error(head: &Parts, route: Option<&Route>, error: HttpError) -> Response<Full<Bytes>> {
    let HttpError { status, problem, reason } = error;
    if let Some(route) = route {
        route.metrics.rejected(reason);
    }
    debug!(path = head.uri.path(), status = status.as_u16(), %problem, "request is answered with an HTTP error");
    let mut response = if reason == Rejected::Shed {
        retry_later(status, &problem)
    } else {
        Response::new(Full::new(Bytes::from(problem.into_owned() + "\n")))
    };
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    match status {
        StatusCode::METHOD_NOT_ALLOWED => _ = headers.insert(ALLOW, HeaderValue::from_static("POST")),
        // The rest of the body is not read, so no further request can follow on this connection.
        StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT => {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        _ => {}
    }
    response
}

/// `application/json`, with or without parameters.
fn is_json(content_type: &HeaderValue) -> bool {
    // The API server writes it like this.
    content_type == "application/json"
        || content_type.to_str().is_ok_and(|value| {
            let media_type = value.split(';').next().unwrap_or_default();
            media_type.trim().eq_ignore_ascii_case("application/json")
        })
}

impl std::fmt::Debug for Routes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Routes").field("paths", &self.paths()).finish_non_exhaustive()
    }
}
