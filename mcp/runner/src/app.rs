//! One request: the reserved paths, which methods there are, then the middleware chain around the transport.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time;

use bytes::Bytes;
use http::header::{ALLOW, CONNECTION, HeaderValue, RETRY_AFTER};
use http::{Method, Request, Response, StatusCode};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt as _;
use mcp_http::{Body, BoxError, BoxService, is_type, json, text};
use mcp_listener::{Given, Handler, Place, RequestBody, Streaming};
use mcp_middleware::{Asked, Chain, Guard, Outcome, RequestContext, client_network};
use mcp_store::Client;
use mcp_transport::{DueAnswers, Endpoints, Route, Transport, named_session, names_hop_by_hop_only, refuse_method};
use mcp_wire::headers::{opens_stream, remove_ambiguous};
use prometheus_client::metrics::gauge::Gauge;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::clients::TrustedProxies;
use crate::health::Health;
use crate::metrics::Metrics;
use crate::record::Record;
use crate::reports::Reports;
use crate::shared::Shared;
use crate::upload::Upload;

/// The name of the guard that serves MCP endpoints alone.
pub(crate) const ENDPOINTS: &str = "endpoints";
/// Documents about the proxy; those of a server behind it are not shown (toolhive-auth §1.1).
const DOCUMENTS: &str = "/.well-known/";

/// What every request needs.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) chain: Chain,
    /// What the chain is around.
    pub(crate) transport: BoxService,
    pub(crate) backend: Box<dyn Transport>,
    /// Whether requests go on to the server with the headers of the client.
    pub(crate) forwards: bool,
    /// The paths that are served, where that is not every path, and the guard that they are.
    pub(crate) endpoints: Option<(Endpoints, Guard)>,
    pub(crate) stateless: bool,
    /// The proxies whose headers tell the address of the client.
    pub(crate) trusted_proxies: TrustedProxies,
    /// The loss of a client whose stream ends.
    pub(crate) streams: Given,
    pub(crate) health: Health,
    pub(crate) shared: Shared,
    pub(crate) metrics: Metrics,
    /// The reports that the proxy's port serves.
    pub(crate) reports: Reports,
    /// The port of the diagnostics listener, where it alone serves `/metrics`.
    pub(crate) metrics_elsewhere: Option<u16>,
    /// Whether callers have to log in.
    pub(crate) login: bool,
    /// Set when the proxy is to end: it is not ready, and still serves.
    pub(crate) ending: AtomicBool,
    /// When the last request came while the proxy is to end.
    pub(crate) late: Late,
    /// Cancelled when the listener closes: streams end.
    pub(crate) drain: CancellationToken,
}

/// When a request came last, if one did.
#[derive(Debug, Default)]
pub(crate) struct Late(Mutex<Option<Instant>>);

impl Late {
    pub(crate) fn get(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }
}

impl Handler for App {
    type Body = Body;

    async fn handle(&self, request: Request<RequestBody>) -> Response<Body> {
        self.metrics.in_flight.inc();
        let mut serving = Serving {
            in_flight: self.metrics.in_flight.clone(),
            drain: None,
            due: None,
            streaming: None,
            record: None,
        };
        let mut response = if let Some(response) = self.reserved(&request) {
            response
        } else {
            let lasts = opens_stream(request.method(), request.headers());
            if lasts {
                serving.drain = Some(Box::pin(self.drain.clone().cancelled_owned()));
            }
            serving.record = self.record(&request, lasts);
            let response = tokio::select! {
                response = self.pass(request, lasts, &mut serving) => response,
                // Some servers send the head of a stream with its first event.
                () = self.drain.cancelled(), if lasts => text(StatusCode::SERVICE_UNAVAILABLE, "the proxy is ending"),
            };
            self.metrics.count(response.status());
            if self.ending.load(Relaxed) {
                self.late.note();
            }
            serving.due = response.extensions().get().cloned();
            serving.record =
                serving.record.take().and_then(|record| record.answered(response.status(), response.body()));
            response
        };
        if self.ending.load(Relaxed) {
            // The client's next request goes over a new connection, which the Service leads to another pod.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response.map(|body| Body::new(Tracked { body, serving }))
    }

    fn client(&self, request: &Request<RequestBody>) -> Option<Client> {
        let peer = request.body().peer();
        let client = self.trusted_proxies.client(peer, request.headers());
        // The connections of a proxy before this one are not its clients'.
        (client != peer).then(|| Client::Network(client_network(Some(client))))
    }

    /// While all connections are at work, probes are still answered.
    async fn shed(&self, request: Request<RequestBody>) -> Response<Body> {
        if let Some(response) = self.reserved(&request) {
            return response;
        }
        let record = self.record(&request, false);
        request.into_body().discard().await;
        self.metrics.count(StatusCode::SERVICE_UNAVAILABLE);
        if let Some(record) = record {
            record.refused(StatusCode::SERVICE_UNAVAILABLE);
        }
        busy("all connections of this proxy are at work; ask again in a second")
    }
}

impl App {
    /// The record of a request, where middleware observe.
    fn record(&self, request: &Request<RequestBody>, is_stream: bool) -> Option<Record> {
        self.chain.observes()?;
        let client = self.trusted_proxies.client(request.body().peer(), request.headers());
        Record::new(&self.chain, Asked::of(request), client.ip(), is_stream)
    }

    async fn pass(
        &self,
        mut request: Request<RequestBody>,
        lasts: bool,
        Serving { streaming, record, .. }: &mut Serving,
    ) -> Response<Body> {
        // The bytes behind it on a connection are a request to some servers, and its body to others (RFC 9110 §9.3.6).
        if request.method() == Method::CONNECT {
            self.metrics.misrouted("method");
            let mut refusal = text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed: this is no tunnel");
            refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, POST, DELETE, OPTIONS"));
            refusal.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            return refusal;
        }
        // Before anything judges by a header: from here on no name can be taken for another.
        let removed = remove_ambiguous(request.headers_mut());
        self.metrics.removed_headers.inc_by(removed as u64);
        if self.forwards && !names_hop_by_hop_only(request.headers()) {
            return text(StatusCode::BAD_REQUEST, "Connection header may only name hop-by-hop headers");
        }
        let (mut head, body) = request.into_parts();
        let judged = self.endpoints.as_ref().map(|(endpoints, guard)| {
            let started = time::Instant::now();
            (endpoints.route(&head), guard, started)
        });
        let route = match judged {
            None => Route::Mcp,
            Some((Ok(route), ..)) => route,
            Some((Err(misrouted), guard, started)) => {
                self.metrics.misrouted(misrouted.reason());
                guard.count(Outcome::Denied, started);
                if let Some(record) = record {
                    record.refused_by = Some(ENDPOINTS);
                }
                return misrouted.answer();
            }
        };
        let client = self.trusted_proxies.client(body.peer(), &head.headers);
        let context = match route {
            Route::Mcp => self.chain.context(client),
            Route::Open => self.chain.open_context(client),
        };
        if let Some((_, guard, started)) = judged {
            context.decided(guard, Outcome::Allowed, started);
        }
        if let Some(session) = named_session(&head).filter(|_| route == Route::Mcp) {
            context.in_session(&session);
        }
        if let Some(record) = record {
            record.context = Some(Arc::clone(&context));
        }
        if route == Route::Mcp
            && let Some(refusal) = refuse_method(self.stateless, &head.method, &head.headers)
        {
            return refusal;
        }
        let place: Option<Place> = head.extensions.remove();
        let request = Request::from_parts(head, Upload::new(body).boxed_unsync());
        let mut answer = pin!(self.chain.serve(&context, request, &self.transport));
        let mut counted = false;
        let answer = poll_fn(|cx| {
            if streaming.as_ref().is_some_and(Streaming::has_to_end) {
                return Poll::Ready(busy("the stream ends: another client needs its connection; open it again"));
            }
            let answer = answer.as_mut().poll(cx);
            if let Some(place) = place.as_ref().filter(|_| !counted) {
                counted = self.count(&context, place);
                *streaming = (counted && lasts).then(|| place.streams(self.streams));
            }
            answer
        });
        let answer = answer.await;
        // Half of anything else would look like the whole.
        if !is_type(answer.headers(), "text/event-stream") {
            *streaming = None;
        }
        answer
    }

    /// Counts the connection for the sender of its request; returns whether that is known.
    fn count(&self, context: &RequestContext, place: &Place) -> bool {
        place.counts_for(&context.client());
        !self.login || context.identity().is_some()
    }

    /// What is served outside of the chain.
    fn reserved<B>(&self, request: &Request<B>) -> Option<Response<Body>> {
        let (method, path) = (request.method(), request.uri().path());
        match path {
            "/health" | "/readyz" | "/metrics" if *method != Method::GET => {
                let mut refusal = text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed");
                refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
                Some(refusal)
            }
            "/health" => Some(self.health.report(&*self.backend)),
            "/readyz" if self.ending.load(Relaxed) => {
                Some(text(StatusCode::SERVICE_UNAVAILABLE, "the proxy is ending\n"))
            }
            "/readyz" if !self.health.is_ready(&*self.backend) => {
                Some(text(StatusCode::SERVICE_UNAVAILABLE, "the MCP server does not answer\n"))
            }
            "/readyz" if !self.shared.is_met() => {
                Some(text(StatusCode::SERVICE_UNAVAILABLE, "Redis has not answered yet\n"))
            }
            "/readyz" => Some(text(StatusCode::OK, "ok\n")),
            "/metrics" => Some(match self.metrics_elsewhere {
                Some(port) => text(
                    StatusCode::NOT_FOUND,
                    format!("metrics are served by the diagnostics listener alone, on port {port}\n"),
                ),
                None => self.metrics(&self.reports),
            }),
            _ if path.starts_with(DOCUMENTS) => {
                let document = self.chain.document(method, path, request.headers());
                Some(document.unwrap_or_else(|| json(StatusCode::NOT_FOUND, &br#"{"error":"not_found"}"#[..])))
            }
            _ => None,
        }
    }

    /// Answers a scraper with one of `reports`.
    pub(crate) fn metrics(&self, reports: &Reports) -> Response<Body> {
        let make = || self.metrics.report(&self.chain, &*self.backend, self.health.is_up(&*self.backend));
        let refusal = || busy("scrapers that do not read hold all reports that there may be; ask again in a second");
        reports.answer(make).unwrap_or_else(refusal)
    }
}

/// A refusal for now.
fn busy(why: &'static str) -> Response<Body> {
    let mut refusal = text(StatusCode::SERVICE_UNAVAILABLE, why);
    refusal.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    refusal
}

/// Undone when the answer is complete or nobody wants it any more.
struct Serving {
    in_flight: Gauge,
    /// Ends the answer's body when the proxy drains.
    drain: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    /// What is to be answered in that body before.
    due: Option<DueAnswers>,
    /// Ends the body when another client needs the connection.
    streaming: Option<Streaming>,
    record: Option<Record>,
}

impl Serving {
    /// Whether the answer's body is to end where it is.
    fn ends(&mut self, cx: &mut Context<'_>) -> bool {
        !self.due.as_ref().is_some_and(DueAnswers::any)
            && (self.streaming.as_ref().is_some_and(Streaming::has_to_end)
                || self.drain.as_mut().is_some_and(|drain| drain.as_mut().poll(cx).is_ready()))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.in_flight.dec();
    }
}

struct Tracked {
    body: Body,
    serving: Serving,
}

impl HttpBody for Tracked {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let frame = Pin::new(&mut this.body).poll_frame(cx);
        // The body is asked again after each answer, so that the last one is noticed.
        let frame = if frame.is_pending() && this.serving.ends(cx) { Poll::Ready(None) } else { frame };
        if let (Some(record), Poll::Ready(frame)) = (&mut this.serving.record, &frame) {
            let ended = frame.is_none() || this.body.is_end_stream();
            record.sends(frame.as_ref().map(Result::as_ref), ended);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
