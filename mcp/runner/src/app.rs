//! One request: the reserved paths, the method gate, then the gate and the transport.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use mcp_http::{Body, BoxError, BoxService, json, text};
use mcp_middleware::Chain;
use mcp_transport::refuse_method;
use mcp_wire::headers;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::backend::Backend;
use crate::deadlines::{Phase, TimedBody};
use crate::health::Health;
use crate::metrics::Metrics;

const OAUTH_RESOURCE: &str = "/.well-known/oauth-protected-resource";

/// What every request needs.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) chain: Chain,
    /// What the chain is around.
    pub(crate) transport: BoxService,
    pub(crate) backend: Backend,
    pub(crate) stateless: bool,
    /// How long a request may take to arrive.
    pub(crate) read_timeout: Duration,
    pub(crate) health: Health,
    pub(crate) metrics: Metrics,
    /// Cancelled when the proxy is to end.
    pub(crate) drain: CancellationToken,
}

impl App {
    /// Serves one request of the client at `peer`.
    pub(crate) async fn serve(
        self: Arc<Self>,
        peer: SocketAddr,
        phase: Arc<Phase>,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, Infallible> {
        phase.serving();
        self.metrics.in_flight.fetch_add(1, Relaxed);
        let mut serving = Serving { app: Arc::clone(&self), phase, drain: None };
        let response = if let Some(response) = self.reserved(&request).await {
            response
        } else {
            let lasts = lasts(&request);
            if lasts {
                serving.drain = Some(Box::pin(self.drain.clone().cancelled_owned()));
            }
            let response = tokio::select! {
                response = self.pass(peer, request) => response,
                // Some servers send the head of a stream with its first event.
                () = self.drain.cancelled(), if lasts => text(StatusCode::SERVICE_UNAVAILABLE, "the proxy is ending"),
            };
            self.metrics.count(response.status());
            response
        };
        Ok(response.map(|body| Body::new(Tracked { body, serving })))
    }

    async fn pass(&self, peer: SocketAddr, request: Request<Incoming>) -> Response<Body> {
        if let Some(refusal) = refuse_method(self.stateless, request.method(), request.headers()) {
            return refusal;
        }
        let request = request.map(|body| TimedBody::new(body, self.read_timeout).boxed_unsync());
        let context = self.chain.context(Some(peer));
        self.chain.serve(&context, request, &self.transport).await
    }

    /// What is served outside of the gate.
    async fn reserved(&self, request: &Request<Incoming>) -> Option<Response<Body>> {
        let path = request.uri().path();
        let get = *request.method() == Method::GET;
        match path {
            "/health" | "/readyz" | "/metrics" if !get => {
                let mut refusal = text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed");
                refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
                Some(refusal)
            }
            "/health" => Some(self.health.report(&self.backend).await),
            "/readyz" => Some(text(StatusCode::OK, "ok\n")),
            "/metrics" => {
                let mut response = Response::new(mcp_http::full(self.metrics.text(self.backend.sessions())));
                let kind = HeaderValue::from_static("text/plain; version=0.0.4");
                response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
                Some(response)
            }
            _ => {
                let rest = path.strip_prefix(OAUTH_RESOURCE)?;
                (rest.is_empty() || rest.starts_with('/'))
                    .then(|| json(StatusCode::NOT_FOUND, &br#"{"error":"not_found"}"#[..]))
            }
        }
    }
}

/// Whether the answer is a stream that belongs to no call, and so ends when the proxy does.
fn lasts<B>(request: &Request<B>) -> bool {
    let listens = || request.headers().get(headers::METHOD).is_some_and(|method| method == "subscriptions/listen");
    *request.method() == Method::GET || listens()
}

/// Undone when the answer is complete or nobody wants it any more.
struct Serving {
    app: Arc<App>,
    phase: Arc<Phase>,
    /// Ends the answer's body when the proxy drains.
    drain: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.app.metrics.in_flight.fetch_sub(1, Relaxed);
        self.phase.waiting();
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
        if frame.is_pending()
            && let Some(drain) = &mut this.serving.drain
            && drain.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(None);
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
