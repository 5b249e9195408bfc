//! Requests over HTTP, each to its webhook.

use std::any::Any;
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use hyper::header::{ALLOW, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use portcullis_review::{ADMISSION_LIMIT, Review, Verdict};
use tokio::time::{Instant, timeout_at};
use tracing::debug;

use super::Context;
use super::admit::{Admit, Decision};
use super::deadline::time_for_answer;
use super::decision_log::{Outcome, log};
use crate::server::Handler;

/// The HTTP side of the registered webhooks: paths, limits, deadlines. A [`Handler`] for
/// [`Server::serve_tls`](crate::server::Server::serve_tls).
///
/// Everything that keeps it from a decision is an HTTP error, so that the webhook's failure policy decides: 400 for
/// what is no admission review, 404, 405, 408 for a body that does not come, 413 above 7 MiB, 415 for what is not JSON,
/// 500 for a handler that panicked or did not finish in the time that the API server waits.
#[derive(Clone)]
pub struct Routes {
    webhooks: HashMap<String, Arc<dyn Admit>>,
}

/// How long the rest of a body that is too large is read before the answer.
const LINGER: Duration = Duration::from_millis(500);

/// An answer that is not a review.
struct HttpError {
    status: StatusCode,
    problem: String,
}

fn http_error(status: StatusCode, problem: impl Into<String>) -> HttpError {
    HttpError { status, problem: problem.into() }
}

impl Handler for Routes {
    async fn handle(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        self.respond(request).await
    }
}

impl Routes {
    pub(super) fn new(webhooks: HashMap<String, Arc<dyn Admit>>) -> Self {
        Self { webhooks }
    }

    /// The paths that are served, sorted.
    pub fn paths(&self) -> Vec<&str> {
        let mut paths: Vec<_> = self.webhooks.keys().map(String::as_str).collect();
        paths.sort_unstable();
        paths
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
            Err(HttpError { status, problem }) => {
                debug!(%path, status = status.as_u16(), problem, "request is answered with an HTTP error");
                let mut response = Response::new(Full::new(Bytes::from(problem + "\n")));
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
        let webhook = self
            .webhooks
            .get(path)
            .ok_or_else(|| http_error(StatusCode::NOT_FOUND, format!("no webhook is served at {path}")))?;
        if head.method != Method::POST {
            return Err(http_error(StatusCode::METHOD_NOT_ALLOWED, "send admission reviews with POST"));
        }
        if !head.headers.get(CONTENT_TYPE).is_some_and(is_json) {
            return Err(http_error(StatusCode::UNSUPPORTED_MEDIA_TYPE, "send content-type application/json"));
        }
        let deadline = began + time_for_answer(head.uri.query(), webhook.settings().timeout);
        let announced = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
        let body = read(body, announced, deadline).await?;
        let review = Review::parse(&body).map_err(|error| http_error(StatusCode::BAD_REQUEST, error.to_string()))?;
        decide(&**webhook, &review, began, deadline).await
    }
}

/// The whole body, if it keeps to the limit and comes in time.
async fn read<B>(body: B, announced: Option<usize>, deadline: Instant) -> Result<Bytes, HttpError>
where
    B: Body<Data = Bytes> + Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut body = pin!(body);
    if announced.is_some_and(|length| length > ADMISSION_LIMIT) {
        discard(body).await;
        return Err(too_large());
    }
    match timeout_at(deadline, Limited::new(body.as_mut(), ADMISSION_LIMIT).collect()).await {
        Ok(Ok(read)) => Ok(read.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            discard(body).await;
            Err(too_large())
        }
        Ok(Err(error)) => Err(http_error(StatusCode::BAD_REQUEST, format!("body broke off: {error}"))),
        Err(_) => Err(http_error(StatusCode::REQUEST_TIMEOUT, "body did not come in time")),
    }
}

/// Takes what a peer is still sending, within bounds. Closing a socket with unread bytes in it resets the connection,
/// and the peer would lose the answer that says why.
async fn discard<B: Body<Data = Bytes>>(mut body: Pin<&mut B>) {
    let rest = async {
        let mut left = ADMISSION_LIMIT;
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

/// Has the webhook decide, within the deadline and whatever its handler does.
async fn decide(
    webhook: &dyn Admit,
    review: &Review<'_>,
    began: Instant,
    deadline: Instant,
) -> Result<Bytes, HttpError> {
    let settings = webhook.settings();
    let request = &review.request;
    let admitted = AssertUnwindSafe(webhook.admit(request, Context::of_request(request))).catch_unwind();
    let problem = match timeout_at(deadline, admitted).await {
        Ok(Ok(Ok(Decision { verdict, patch, note }))) => {
            let outcome = Outcome::Decided { verdict: &verdict, patched: patch.is_some(), note: note.as_deref() };
            log(&settings.name, request, &outcome, began.elapsed());
            return Ok(review.answer(&verdict, patch.as_ref()).into());
        }
        Ok(Ok(Err(failure))) => failure.to_string(),
        Ok(Err(panic)) => {
            // The message of a panic is for the log: it may hold anything.
            let said = format!("handler panicked: {}", panic_message(&*panic));
            let outcome = Outcome::Failed { problem: &said, denied: settings.deny_on_failure };
            log(&settings.name, request, &outcome, began.elapsed());
            return failed(review, settings.deny_on_failure, "handler failed");
        }
        Err(_) => {
            let waited: Duration = deadline - began;
            format!("handler did not finish within {} ms", waited.as_millis())
        }
    };
    let outcome = Outcome::Failed { problem: &problem, denied: settings.deny_on_failure };
    log(&settings.name, request, &outcome, began.elapsed());
    failed(review, settings.deny_on_failure, &problem)
}

/// The answer where there is no decision: an HTTP error, or a denial where the webhook chose that.
///
/// Always 500, though 504 and 400 would sometimes be more to the point: it is the one status whose text the API server
/// passes on to the user (apimachinery's `NewGenericServerResponse` has a sentence of its own for the others).
fn failed(review: &Review<'_>, deny: bool, problem: &str) -> Result<Bytes, HttpError> {
    if deny {
        return Ok(review.answer(&Verdict::deny(problem).code(500), None).into());
    }
    Err(http_error(StatusCode::INTERNAL_SERVER_ERROR, problem))
}

fn too_large() -> HttpError {
    http_error(StatusCode::PAYLOAD_TOO_LARGE, format!("body is larger than {ADMISSION_LIMIT} bytes"))
}

/// `application/json`, with or without parameters.
fn is_json(content_type: &HeaderValue) -> bool {
    content_type.to_str().is_ok_and(|value| {
        let media_type = value.split(';').next().unwrap_or_default();
        media_type.trim().eq_ignore_ascii_case("application/json")
    })
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

impl std::fmt::Debug for Routes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Routes").field("paths", &self.paths()).finish_non_exhaustive()
    }
}
